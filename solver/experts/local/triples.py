"""Descent for three slots per chip: a hot chip and two others are dealt anew in all 280 ways."""

from __future__ import annotations

import time
from functools import cache
from itertools import combinations

import numpy as np

from solver.experts.local.repartition import table_loads
from solver.experts.slots import Floats, Ints

#: Hottest chips of each layer that one step deals anew.
HOTTEST = 8


@cache
def deals() -> tuple[Floats, Ints, Ints]:
    """All ways to put 9 items on 3 chips: 0/1 matrix of the 84 triples, triples and items of each."""
    triples = list(combinations(range(9), 3))
    number: dict[tuple[int, ...], int] = {triple: index for index, triple in enumerate(triples)}
    member = np.zeros((9, len(triples)))
    for triple, index in number.items():
        member[list(triple), index] = 1.0
    parts, orders = [], []
    for first in triples:
        rest = [item for item in range(9) if item not in first]
        if first[0] != 0:
            continue
        for second in combinations(rest[1:], 2):
            middle = (rest[0], *second)
            third = tuple(item for item in rest if item not in middle)
            parts.append((number[first], number[middle], number[third]))
            orders.append(first + middle + third)
    return member, np.array(parts), np.array(orders)


def step(table: Ints, pieces: Floats, target: Floats, rng: np.random.Generator) -> None:
    """Change ``table [layers, chips, 3]`` in place: its hottest chips, each with two random others.

    Of the ways under ``target [layers]`` a random one is taken, else the one with the lowest peak.
    """
    layers, chips, _ = table.shape
    groups = min(HOTTEST, chips // 3)
    size, load = table_loads(pieces, table)
    order = np.argsort(-load, axis=1)
    others = rng.permuted(order[:, groups:], axis=1)[:, : 2 * groups]
    trio = np.stack([order[:, :groups], others[:, :groups], others[:, groups:]], axis=2)
    rows = np.arange(layers)[:, None, None]
    items = table[rows, trio].reshape(layers, groups, 9)
    sizes = size[rows, trio].reshape(layers, groups, 9)
    member, parts, orders = deals()
    sums = sizes @ member
    ordered = np.sort(items, axis=2)
    where = np.nonzero((ordered[..., 1:] == ordered[..., :-1]).any(axis=2))
    if where[0].size:
        same = items[where][:, :, None] == items[where][:, None, :]
        same &= np.triu(np.ones((9, 9), dtype=bool), 1)
        sums[where] += 1e3 * np.einsum("nij,is,js->ns", same.astype(float), member, member)
    peak = sums[..., parts].max(axis=3)
    mean = load[rows, trio].mean(axis=2)
    room = mean + np.maximum(target[:, None] - mean, 0.0) * rng.random(mean.shape)
    peak = np.maximum(peak, room[..., None]) + 1e-9 * rng.random(peak.shape[-1])
    dealt = np.take_along_axis(items, orders[peak.argmin(axis=2)], axis=2)
    table[rows, trio] = dealt.reshape(layers, groups, 3, 3)


def descend_triples(
    table: Ints,
    pieces: Floats,
    bound: Floats,
    *,
    steps: int,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None = None,
) -> tuple[Ints, Floats]:
    """Best tables seen in ``steps`` steps and their busiest chips' loads. ``table`` is not changed."""
    table = table.copy()
    best, peak = table.copy(), table_loads(pieces, table)[1].max(axis=1)
    if table.shape[1] < 3:
        return best, peak
    for _ in range(steps):
        active = np.flatnonzero(peak > bound * (1 + tolerance))
        if not active.size or (deadline is not None and time.monotonic() > deadline):
            break
        part = table[active]
        step(part, pieces[active], bound[active] * (1 + 0.9 * tolerance), rng)
        table[active] = part
        now = table_loads(pieces[active], part)[1].max(axis=1)
        better = now < peak[active]
        best[active[better]] = part[better]
        peak[active[better]] = now[better]
    return best, peak

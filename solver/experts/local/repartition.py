"""Descent for all layers at once: match the chips in pairs and deal each pair's experts anew.

One sweep matches chips in disjoint pairs, takes up to four slots of each, and tries every way to
split them (70 for four and four). A pair that can stay under the target takes a random such
split, which moves the walk along plateaus; other pairs take the most even one.
"""

from __future__ import annotations

import time
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from solver.experts.slots import Floats, Ints

#: Slots taken from each chip of a pair; all C(8, 4) = 70 splits are tried.
MOST_TAKEN = 4
_Rows = NDArray[np.int64]


@cache
def splits(taken: int) -> tuple[Floats, Ints]:
    """All ways to keep ``taken`` of ``2 taken`` items: a 0/1 matrix by column, and the item order."""
    kept = list(combinations(range(2 * taken), taken))
    chosen = np.zeros((2 * taken, len(kept)))
    for column, items in enumerate(kept):
        chosen[list(items), column] = 1.0
    order = np.argsort(-chosen, axis=0, kind="stable").T
    return chosen, np.ascontiguousarray(order)


def table_loads(pieces: Floats, table: Ints) -> tuple[Floats, Floats]:
    """Load of each place ``[layers, chips, width]`` and chip; ``pieces`` ends with a zero column."""
    layers = table.shape[0]
    size = np.take_along_axis(pieces, table.reshape(layers, -1), axis=1).reshape(table.shape)
    return size, size.sum(axis=2)


def match(load: Floats, step: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Disjoint pairs of chips ``[layers, chips // 2]``: hot with cold, or anybody every third step."""
    chips = load.shape[1]
    half = chips // 2
    if step % 3 == 2:
        order = np.argsort(rng.random(load.shape), axis=1)
        return order[:, :half], order[:, half : 2 * half]
    order = np.argsort(-load, axis=1)
    cold = order[:, chips - half :]
    cold = cold[:, ::-1] if step % 3 == 0 else rng.permuted(cold, axis=1)
    return order[:, :half], cold


def shuffled(
    expert: Ints, size: Floats, num_experts: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """The places of each chip in random order, places beyond its slots last."""
    order = np.argsort(rng.random(expert.shape) + (expert == num_experts), axis=2)
    return np.take_along_axis(expert, order, axis=2), np.take_along_axis(size, order, axis=2)


def sweep(
    table: Ints, pieces: Floats, target: Floats, least: int, step: int, rng: np.random.Generator
) -> None:
    """Change ``table [layers, chips, width]`` in place by one sweep towards ``target [layers]``.

    ``pieces [layers, experts + 1]`` is the load of one replica, ending with a zero for places
    beyond a chip's slots; ``least`` is the smallest number of slots of a chip.
    """
    num_experts = pieces.shape[1] - 1
    width = table.shape[2]
    taken = min(least, MOST_TAKEN)
    size, load = table_loads(pieces, table)
    hot, cold = match(load, step, rng)
    rows = np.arange(table.shape[0])[:, None]
    ours, ours_size = table[rows, hot], size[rows, hot]
    theirs, theirs_size = table[rows, cold], size[rows, cold]
    if taken < width:
        ours, ours_size = shuffled(ours, ours_size, num_experts, rng)
        theirs, theirs_size = shuffled(theirs, theirs_size, num_experts, rng)
    chosen, order = splits(taken)
    items = np.concatenate([ours[..., :taken], theirs[..., :taken]], axis=2)
    sizes = np.concatenate([ours_size[..., :taken], theirs_size[..., :taken]], axis=2)
    middle = (load[rows, hot] + load[rows, cold]) / 2
    uneven = np.abs(sizes @ chosen - (middle - ours_size[..., taken:].sum(axis=2))[..., None])
    if step % 3:
        slack = (target[:, None] - middle) * rng.random(middle.shape)
        uneven = np.maximum(uneven, slack[..., None])
        uneven += 1e-9 * rng.random(uneven.shape[-1])
    same = ours[..., :, None] == theirs[..., None, :]
    if same[..., :taken, :].any() or same[..., :taken].any():
        stays = same.any(axis=3)[..., :taken].astype(np.float64)
        away = same.any(axis=2)[..., :taken].astype(np.float64)
        moved = np.concatenate([-stays, away], axis=2) @ chosen
        uneven += 1e3 * (moved + stays.sum(axis=2)[..., None])
    best = uneven.argmin(axis=2)
    dealt = np.take_along_axis(items, order[best], axis=2)
    table[rows, hot] = np.concatenate([dealt[..., :taken], ours[..., taken:]], axis=2)
    table[rows, cold] = np.concatenate([dealt[..., taken:], theirs[..., taken:]], axis=2)


def descend(
    table: Ints,
    pieces: Floats,
    bound: Floats,
    *,
    least: int,
    sweeps: int,
    tolerance: float,
    rng: np.random.Generator,
    deadline: float | None = None,
) -> tuple[Ints, Floats]:
    """Sweep until every layer is within ``tolerance`` of ``bound`` or ``sweeps`` are done
    or ``deadline`` (of ``time.monotonic``) has passed.

    Returns the best table seen per layer and its busiest chip's load. ``table`` is not changed.
    """
    table = table.copy()
    best, peak = table.copy(), table_loads(pieces, table)[1].max(axis=1)
    if table.shape[1] < 2:
        return best, peak
    goal = bound * (1 + tolerance)
    target = bound * (1 + 0.9 * tolerance)
    for step in range(sweeps):
        active = np.flatnonzero(peak > goal)
        if not active.size or (deadline is not None and time.monotonic() > deadline):
            break
        part = table[active]
        sweep(part, pieces[active], target[active], least, step, rng)
        table[active] = part
        now = table_loads(pieces[active], part)[1].max(axis=1)
        better = now < peak[active]
        best[active[better]] = part[better]
        peak[active[better]] = now[better]
    return best, peak

"""Descent of the experts that a chip touches: chips dealt anew in pairs, under a cap on their loads.

Where few tokens are routed in a pass, a chip's time is set by the experts whose weights it reads, not by its tokens: a cold
expert is read for a few tokens as a hot one is for many. Placements with the same busiest load differ in that.
"""

from __future__ import annotations

import numpy as np

from solver.experts.local.repartition import MOST_TAKEN, match, shuffled, splits, table_loads
from solver.experts.slots import Floats, Ints


def descend_touched(
    table: Ints,
    pieces: Floats,
    touched: Floats,
    cap: Floats,
    target: Floats,
    *,
    least: int,
    sweeps: int,
    tolerance: float,
    rng: np.random.Generator,
) -> Ints:
    """A table whose fullest chip touches fewer experts, no chip's load above ``cap [layers]``.

    ``table [layers, chips, width]``; ``pieces``, ``touched [layers, experts + 1]``: load of one replica and the chance that
    a token reaches it, with a zero for places beyond a chip's slots; ``least``: fewest slots of a chip. A layer within
    ``tolerance`` of ``target [layers]`` is left alone. ``table`` is not changed; no load in it may be above the cap.
    """
    table = table.copy()
    if table.shape[1] < 2:
        return table
    for step in range(sweeps):
        most = table_loads(touched, table)[1].max(axis=1)
        active = np.flatnonzero(most > target * (1 + tolerance))
        if not active.size:
            break
        part = table[active]
        _sweep(part, pieces[active], touched[active], cap[active], least, step, rng)
        table[active] = part
    return table


def _sweep(
    table: Ints, pieces: Floats, touched: Floats, cap: Floats, least: int, step: int, rng: np.random.Generator
) -> None:  # fmt: skip
    """Change ``table`` in place: each pair of chips takes the split that touches fewest on the fuller one."""
    rows = np.arange(len(table))[:, None]
    sizes = [table_loads(each, table) for each in (touched, pieces)]
    hot, cold = match(sizes[0][1], step, rng)
    taken = min(least, MOST_TAKEN)
    ours, theirs = (
        shuffled(table[rows, own], table[rows, own].astype(float), pieces.shape[1] - 1, rng)[0]
        for own in (hot, cold)
    )
    chosen, order = splits(taken)
    items = np.concatenate([ours[..., :taken], theirs[..., :taken]], axis=2)
    fuller: list[Floats] = []
    for each, (_, total) in zip((touched, pieces), sizes, strict=True):
        one = np.take_along_axis(each, items.reshape(len(table), -1), axis=1).reshape(items.shape)
        stays = total[rows, hot] - one[..., :taken].sum(axis=2)
        first = stays[..., None] + one @ chosen
        fuller.append(np.maximum(first, (total[rows, hot] + total[rows, cold])[..., None] - first))
    value, load = fuller
    # as they lie is the first split
    over = load > np.maximum(cap[:, None, None], load[..., :1]) * (1 + 1e-12)
    value = np.where(over, np.inf, value)
    same = ours[..., :, None] == theirs[..., None, :]
    if same[..., :taken, :].any() or same[..., :taken].any():
        # an expert that both chips have stays on each
        kept = np.concatenate(
            [same.any(axis=3)[..., :taken], same.any(axis=2)[..., :taken]], axis=2
        )
        lies = np.arange(2 * taken)[:, None] < taken
        value[(kept.astype(float) @ np.abs(chosen - lies)) > 0] = np.inf
    best = value.argmin(axis=2)
    dealt = np.take_along_axis(items, order[best], axis=2)
    table[rows, hot] = np.concatenate([dealt[..., :taken], ours[..., taken:]], axis=2)
    table[rows, cold] = np.concatenate([dealt[..., taken:], theirs[..., taken:]], axis=2)

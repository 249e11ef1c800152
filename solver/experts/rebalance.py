"""From a running placement to a better one with few moves, because every move copies weights.

A move is one expert written into one slot of a chip that did not hold it. Each layer is improved
step by step (exchange two slots: two moves; give a slot of a replicated expert to a hot one: one
move), which gives a curve of peak against moves; moves are then shared out where they gain most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from costmodel.experts.dispatch import check_placement
from solver.experts.bounds.closed_form import load_bounds
from solver.experts.place import LayerPlacements, finish
from solver.experts.slots import Floats, Ints, check_loads, check_slots
from topology.errors import InstanceError, Problem

#: Sharpness of the potential whose fall a step maximises, and steps per layer.
SHARPNESS, MOST_STEPS = 60.0, 48


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A layer after some steps: moves since the start, busiest chip's share, slot table."""

    moves: int
    peak: float
    table: Ints


def rebalance(
    loads: ArrayLike,
    current: ArrayLike,
    slots_per_chip: tuple[int, ...],
    *,
    max_moves: int,
) -> tuple[LayerPlacements, Ints]:
    """Better placements than ``current [layers, slots]`` for ``loads``, and moves used per layer.

    At most ``max_moves`` in all layers together; no layer gets worse. Raises ``InstanceError`` for
    an invalid placement.
    """
    shares = check_loads(loads)
    slots = check_slots(slots_per_chip, shares.shape[1])
    rows = check_placement(current, shares.shape[1], slots.counts)
    if rows.shape[0] != shares.shape[0] or max_moves < 0:
        raise InstanceError(
            Problem(
                "current", f"{rows.shape[0]} layers and {max_moves} moves for {len(shares)} layers"
            )
        )
    table = np.full((len(rows), slots.num_chips, slots.width), shares.shape[1], dtype=np.int64)
    table[:, slots.mask()] = rows
    curves = [
        improve(share, start, max_moves) if max_moves else [stage_of(share, start, start)]
        for share, start in zip(shares, table, strict=True)
    ]
    chosen = share_out(curves, max_moves)
    best = np.stack([curve[at].table for curve, at in zip(curves, chosen, strict=True)])
    moves = np.array([curve[at].moves for curve, at in zip(curves, chosen, strict=True)])
    bound = load_bounds(shares, slots.num_chips, slots.total)
    return finish(shares, best, slots, bound), moves


def share_out(curves: list[list[Snapshot]], max_moves: int) -> list[int]:
    """Stage of each layer: repeatedly the jump with the largest fall of the peak per move."""
    at = [0] * len(curves)
    left = max_moves
    while True:
        best, where = 0.0, (-1, -1)
        for layer, curve in enumerate(curves):
            now = curve[at[layer]]
            for index in range(at[layer] + 1, len(curve)):
                cost = curve[index].moves - now.moves
                gain = (now.peak - curve[index].peak) / max(cost, 1)
                if cost <= left and gain > best + 1e-15:
                    best, where = gain, (layer, index)
        if where[0] < 0:
            return at
        layer, index = where
        left -= curves[layer][index].moves - curves[layer][at[layer]].moves
        at[layer] = index


def stage_of(share: Floats, start: Ints, table: Ints) -> Snapshot:
    """``table [chips, width]`` judged against where the layer started."""
    chips, _ = table.shape
    experts = len(share)
    counts = np.bincount(table.ravel(), minlength=experts + 1)
    pieces = np.append(share / np.maximum(counts[:experts], 1), 0.0)
    moves = sum(
        len(set(table[chip].tolist()) - set(start[chip].tolist()) - {experts})
        for chip in range(chips)
    )
    return Snapshot(moves, float(pieces[table].sum(axis=1).max()), table.copy())


def improve(share: Floats, start: Ints, most: int) -> list[Snapshot]:
    """Stages of one layer with falling peak, by steps that change its hottest chip's load."""
    table = start.copy()
    stages = [stage_of(share, start, table)]
    for _ in range(min(most, MOST_STEPS)):
        changed = best_step(share, table)
        if changed is None:
            break
        table = changed
        stage = stage_of(share, start, table)
        if stage.peak < stages[-1].peak * (1 - 1e-12):
            stages.append(stage)
        if stage.moves >= most:
            break
    return stages


def best_step(share: Floats, table: Ints) -> Ints | None:
    """The exchange or re-replication at the hottest chip with the largest fall of the potential."""
    experts, chips = len(share), len(table)
    counts = np.bincount(table.ravel(), minlength=experts + 1)[:experts]
    piece = np.append(share / counts, 0.0)
    load = piece[table].sum(axis=1)
    sharp = SHARPNESS * chips
    hot = int(load.argmax())
    level = float(load[hot])
    heat = np.exp(sharp * (load - level))
    mine = table[hot]
    holds = np.zeros((experts + 1, chips), dtype=bool)
    holds[table, np.arange(chips)[:, None]] = True
    delta = piece[table][None] - piece[mine][:, None, None]
    after = np.exp(sharp * (load[hot] + delta - level)) + np.exp(
        sharp * (load[None, :, None] - delta - level)
    )
    fall = heat[hot] + heat[None, :, None] - after
    barred = holds[mine][:, :, None] | holds[table, hot][None] | (table == experts)[None]
    barred |= (mine == experts)[:, None, None]
    swap = np.where(barred, -np.inf, fall / 2)
    best = float(swap.max())
    choice = np.unravel_index(int(swap.argmax()), swap.shape)
    changed = table.copy()
    if best > 0:
        one, chip, at = (int(axis) for axis in choice)
        changed[hot, one], changed[chip, at] = table[chip, at], table[hot, one]
    spare = np.argwhere((table < experts) & (np.append(counts, 0)[table] > 1))
    where, place = spare[:, 0], spare[:, 1]
    other = table[where, place]
    grown = share[other] / np.maximum(counts[other] - 1, 1)
    for expert in mine[mine < experts] if len(spare) else ():
        lighter = share[expert] / (counts[expert] + 1)
        new = load - np.where(holds[expert], piece[expert] - lighter, 0.0)
        new = new + np.where(holds[other], (grown - piece[other])[:, None], 0.0)
        new[np.arange(len(spare)), where] += lighter - grown
        gain = heat.sum() - np.exp(sharp * (new - level)).sum(axis=1)
        gain[holds[expert, where] | (other == expert)] = -np.inf
        if gain.max() > best:
            best, index = float(gain.max()), int(gain.argmax())
            changed = table.copy()
            changed[where[index], place[index]] = expert
    return changed if best > 1e-12 else None

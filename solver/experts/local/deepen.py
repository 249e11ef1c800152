"""Layers whose gap is still open after the descent: programs that improve and prove, layer by layer.

Loads OR-Tools, so it is imported only when some layer needs it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from solver.experts.bounds.replica_bound import raise_bound
from solver.experts.counts import find_counts
from solver.experts.fillers import hot_chips
from solver.experts.local.neighbourhood import literals_needed, place_anew
from solver.experts.local.pairs import improve_pairs
from solver.experts.local.repartition import descend, table_loads
from solver.experts.local.triples import descend_triples
from solver.experts.packing import pack_largest_first, paired_table
from solver.experts.slots import Floats, Ints, Slots

#: Largest model (literals) that is given to CP-SAT whole.
WHOLE = 1500
#: Targets above the bound for which replica counts are tried, and the gap worth a program.
STEPS = (0.001, 0.003, 0.006, 0.01)
CLOSE = 2e-3
#: With spare slots and three or more per chip, smaller gaps are left to the descent.
WORTH = 4e-3
#: The same where whole layers get less effort than this: who places many layers is better served by their number.
SPARED, HASTY = 1.6e-2, 0.1
#: Closeness of a raised bound there.
CLOSE_ENOUGH = 5e-3
#: Coldest chips that are placed anew together with the hottest one.
NEIGHBOURS = 5
#: Effort for whole layers from which neighbourhoods are tried too.
THOROUGH = 5.0


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer's loads (shares), slot table, busiest chip and bound."""

    share: Floats
    table: Ints
    peak: float
    bound: float


def deepen(
    shares: Floats,
    table: Ints,
    peak: Floats,
    bound: Floats,
    slots: Slots,
    *,
    tolerance: float,
    deadline: float | None,
    seed: int,
    workers: int,
    whole_effort: float = 1.0,
    hot_copies: bool = False,
) -> tuple[Ints, Floats]:
    """Better tables and bounds for the layers with a gap above ``tolerance``; others unchanged.

    Layers are independent; ``workers`` of them run at once. Small layers are given to CP-SAT whole,
    for ``whole_effort`` of deterministic time each. ``hot_copies``: replicas of two slots per chip stay as they are. After ``deadline`` (of
    ``time.monotonic``) no further layer or program is begun, and the longest program ends.
    """
    if slots.width > 2 and slots.even and slots.total > shares.shape[1]:
        small = literals_needed(shares.shape[1], slots.num_chips, slots.total) <= WHOLE
        worth = SPARED if whole_effort < HASTY else WORTH
        tolerance = tolerance if small else max(tolerance, worth)
    todo = np.flatnonzero(peak > bound * (1 + tolerance))
    table, bound = table.copy(), bound.copy()

    def work(index: int) -> LayerState | None:
        if deadline is not None and time.monotonic() > deadline:
            return None
        layer = LayerState(shares[index], table[index], float(peak[index]), float(bound[index]))
        return deepen_layer(layer, slots, seed, whole_effort, deadline, hot_copies=hot_copies)

    jobs = Parallel(n_jobs=max(workers, 1), backend="threading")
    for index, layer in zip(todo, jobs(delayed(work)(index) for index in todo), strict=True):
        if layer is not None:
            table[index], bound[index] = layer.table, layer.bound
    return table, bound


def deepen_layer(
    layer: LayerState,
    slots: Slots,
    seed: int,
    whole_effort: float,
    deadline: float | None = None,
    *,
    hot_copies: bool = False,
) -> LayerState:
    """The same layer with the programs that fit its slots applied."""
    experts, chips = len(layer.share), slots.num_chips
    if literals_needed(experts, chips, slots.total) <= WHOLE:
        table, bound = place_anew(
            layer.share, layer.table, np.arange(chips),
            effort=whole_effort, seed=seed, deadline=deadline,
        )  # fmt: skip
        return better(layer, table, bound)
    if not slots.even or chips < 2 or slots.width < 2:
        return layer
    if slots.total == experts:
        return deepen_fixed(layer, slots, seed)
    close = CLOSE_ENOUGH if whole_effort < HASTY else CLOSE
    bound = raise_bound(layer.share, chips, slots.width, layer.bound, layer.peak, close=close)
    layer = better(layer, layer.table, bound)
    if (deadline is not None and time.monotonic() > deadline) or (hot_copies and slots.width == 2):
        return layer
    replicas = np.bincount(layer.table.ravel(), minlength=experts)
    if slots.width == 2:
        replicas, bound = improve_pairs(
            layer.share, chips, replicas, layer.bound, close=CLOSE / 2, seed=seed
        )
        return better(layer, paired_table(layer.share, replicas), bound)
    layer = deepen_counts(layer, slots, replicas, seed)
    return place_hottest_anew(layer, seed) if whole_effort >= THOROUGH else layer


def better(layer: LayerState, table: Ints, bound: float) -> LayerState:
    """The better of two tables, and the higher bound."""
    pieces = replica_pieces(layer.share, table)
    peak = float(table_loads(pieces, table[None])[1].max())
    bound = max(bound, layer.bound)
    if peak < layer.peak:
        return LayerState(layer.share, table, peak, bound)
    return LayerState(layer.share, layer.table, layer.peak, bound)


def replica_pieces(share: Floats, table: Ints) -> Floats:
    """Piece of each expert ``[1, experts + 1]`` (zero at the end) by its slots in ``table``."""
    counts = np.bincount(table.ravel(), minlength=len(share) + 1)[: len(share)]
    return np.append(share / np.maximum(counts, 1), 0.0)[None]


def deepen_counts(layer: LayerState, slots: Slots, replicas: Ints, seed: int) -> LayerState:
    """Three or more slots per chip: replica counts that pass the counting conditions, then packed."""
    if layer.peak <= layer.bound * (1 + CLOSE):
        return layer
    unit = layer.share * slots.num_chips
    for step in STEPS:
        target = layer.bound * (1 + step)
        if target >= layer.peak * (1 - 1e-3) or layer.peak <= layer.bound * (1 + WORTH):
            break
        found = find_counts(
            unit, slots.num_chips, slots.width, target * slots.num_chips, replicas, seed=seed
        )
        if found is None:
            continue
        table = pack_largest_first(layer.share[None], found[None], slots)
        layer = better(layer, polish(layer, table, slots, seed), layer.bound)
    return layer


def place_hottest_anew(layer: LayerState, seed: int) -> LayerState:
    """The hottest chip and the coldest ones given to CP-SAT together, if a gap is left."""
    if layer.peak <= layer.bound * (1 + CLOSE):
        return layer
    size = table_loads(replica_pieces(layer.share, layer.table), layer.table[None])[1][0]
    order = np.argsort(-size, kind="stable")
    part = np.unique(np.concatenate([order[:1], order[-NEIGHBOURS:]]))
    changed, _ = place_anew(layer.share, layer.table, part, effort=0.2, seed=seed)
    return better(layer, changed, layer.bound)


def polish(layer: LayerState, table: Ints, slots: Slots, seed: int) -> Ints:
    """``table [1, chips, width]`` after a descent towards the layer's bound."""
    rng = np.random.default_rng(seed)
    bound = np.array([layer.bound])
    pieces = replica_pieces(layer.share, table[0])
    table, _ = descend(table, pieces, bound, least=slots.least, sweeps=60, tolerance=1e-3, rng=rng)
    if slots.width == 3:
        table, _ = descend_triples(table, pieces, bound, steps=200, tolerance=1e-3, rng=rng)
    best: Ints = table[0]
    return best


def deepen_fixed(layer: LayerState, slots: Slots, seed: int) -> LayerState:
    """No spare slots: two per chip are paired exactly; else the hottest chips are solved first."""
    chips, width = slots.num_chips, slots.width
    if width == 2:
        table = paired_table(layer.share, np.ones(len(layer.share), dtype=np.int64))
        peak = float(table_loads(replica_pieces(layer.share, table), table[None])[1].max())
        return better(layer, table, peak * (1 - 1e-12))
    found = hot_chips(layer.share, chips, width, layer.peak, seed=seed)
    if found is None:
        return layer
    bound, hot = found
    rest = np.setdiff1d(np.arange(len(layer.share)), hot)
    if not rest.size:
        return better(layer, hot, bound)
    others = Slots((width,) * (chips - len(hot)))
    share = layer.share[rest]
    cold = pack_largest_first(share[None], np.ones((1, len(rest)), dtype=np.int64), others)
    goal = LayerState(share, cold[0], 0.0, bound)
    table = np.concatenate([hot, rest[polish(goal, cold, others, seed)]])
    return better(layer, table, bound)

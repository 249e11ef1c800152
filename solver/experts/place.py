"""Placement of each layer's experts for one workload: replicas, slots, and a bound beside each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from solver.experts.bounds.closed_form import ROUNDING, counting_bound, load_bounds
from solver.experts.hot_counts import hot_counts, improve_wide, place_pairs
from solver.experts.local.repartition import descend, table_loads
from solver.experts.local.triples import descend_triples
from solver.experts.packing import pack_largest_first
from solver.experts.replicas import greedy_replicas, paired_replicas
from solver.experts.slots import Floats, Ints, Slots, check_loads, check_slots
from topology.errors import InstanceError, Problem, VerificationError

Effort = Literal["fast", "enough", "good", "best"]

#: Sweeps of the descent, and the gap to the bound at which a layer is left alone.
SWEEPS = {"fast": 4, "enough": 600, "good": 600, "best": 2000}
TOLERANCE = {"fast": 1e-3, "enough": 1e-3, "good": 1e-3, "best": 2e-4}
#: CP-SAT's deterministic time for a layer that is small enough to be solved whole.
WHOLE_EFFORT = {"fast": 0.0, "enough": 0.05, "good": 0.5, "best": 10.0}


@dataclass(frozen=True, slots=True)
class LayerPlacements:
    """Placements of all layers with their proven quality.

    ``physical_to_logical [layers, slots]``: expert in each slot, slots contiguous chip by chip.
    ``max_load [layers]``: the busiest chip's share of the layer's load when each expert's tokens
    split evenly over its replicas. ``bound [layers]``: no placement with these slots is below it.
    """

    physical_to_logical: Ints
    max_load: Floats
    bound: Floats
    slots_per_chip: tuple[int, ...]

    @property
    def gap(self) -> Floats:
        """``max_load / bound - 1`` per layer."""
        return np.maximum(self.max_load / self.bound - 1, 0.0)


def place_layers(
    loads: ArrayLike,
    slots_per_chip: Sequence[int],
    *,
    effort: Effort = "good",
    time_limit_s: float | None = None,
    seed: int = 0,
    workers: int = 1,
    hot_copies: bool = False,
) -> LayerPlacements:
    """Place ``loads [layers, experts]`` on chips with ``slots_per_chip`` slots each.

    Every expert has at least one slot, every slot is used and no expert is twice on a chip.
    ``effort`` "fast" is a construction and a few sweeps; "good" stops at a proven gap of 0.1 %; "best" goes on to 0.02 %.
    "enough", for those who place many, is "good" that leaves a small layer sooner where its proof is hard.
    ``hot_copies``: no expert is to have more replicas than a busier one, as engines place them. Where the list of such counts is short
    (:func:`solver.experts.hot_counts.hot_counts`), all are tried, and the bound is that of such placements. Where it is long, other
    placements may come with more than two slots per chip.
    ``time_limit_s`` ends the search early with what is best by then.
    The result depends on ``seed``, not on ``workers``, unless the time limit cuts it short. Raises ``InstanceError`` when the slots cannot hold the experts.
    """
    shares = check_loads(loads)
    slots = check_slots(slots_per_chip, shares.shape[1])
    if effort not in SWEEPS:
        raise InstanceError(
            Problem("effort", f"unknown {effort!r}; known: fast, enough, good, best")
        )
    first, like = unlike_layers(shares)
    if len(first) < len(shares):  # even load, say
        found = place_layers(
            shares[first], slots_per_chip, effort=effort, time_limit_s=time_limit_s, seed=seed, workers=workers,
            hot_copies=hot_copies,
        )  # fmt: skip
        return LayerPlacements(
            found.physical_to_logical[like], found.max_load[like], found.bound[like], slots.counts
        )
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    bound = load_bounds(shares, slots.num_chips, slots.total)
    if slots.total == shares.shape[1]:
        fixed = counting_bound(shares, slots.num_chips, slots.least) * (1 - ROUNDING)
        bound = np.maximum(bound, fixed)
    tolerance = TOLERANCE[effort]
    some = hot_counts(shares.shape[1], slots) if hot_copies and effort != "fast" else None
    rng = np.random.default_rng(seed)
    if some is not None and slots.width == 2:
        table, low = place_pairs(shares, some, slots, deadline)
        return finish(shares, table, slots, np.maximum(bound, low))
    table, peak = construct(shares, slots, bound, effort, rng, deadline, hot_copies=hot_copies)
    if some is not None:
        tried = improve_wide(
            shares, table, peak, bound, some, slots, tolerance=tolerance, rng=rng, deadline=deadline
        )
        if tried is not None:
            return finish(shares, tried[0], slots, tried[1])
    if effort != "fast" and (peak > bound * (1 + tolerance)).any():
        from solver.experts.local.deepen import deepen

        table, bound = deepen(
            shares,
            table,
            peak,
            bound,
            slots,
            tolerance=tolerance,
            deadline=deadline,
            seed=seed,
            workers=workers,
            whole_effort=WHOLE_EFFORT[effort],
            hot_copies=hot_copies,
        )
    return finish(shares, table, slots, bound)


def unlike_layers(shares: Floats) -> tuple[Ints, Ints]:
    """Layers of which none before has the same loads, in order, and for each layer which of these is like it."""
    _, first, like = np.unique(shares, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[like.ravel()]


def construct(
    shares: Floats,
    slots: Slots,
    bound: Floats,
    effort: Effort,
    rng: np.random.Generator,
    deadline: float | None,
    most_sweeps: int | None = None,
    *,
    hot_copies: bool = False,
) -> tuple[Ints, Floats]:
    """Slot tables ``[layers, chips, width]`` by packing and descent, and each busiest chip's share.

    Two slots per chip packed largest first are paired with the smallest, which no sweep improves: their replica counts
    are moved instead. Three are first balanced in pairs of chips, then in triples.
    """
    tolerance = TOLERANCE[effort]
    if slots.width == 2 and slots.even:
        replicas = paired_replicas(
            shares, bound, slots.num_chips,
            quick=effort == "fast", hot_copies=hot_copies, tolerance=tolerance, rng=rng, deadline=deadline,
        )  # fmt: skip
    else:
        replicas = greedy_replicas(shares, slots.total, slots.num_chips)
    pieces = np.concatenate([shares / replicas, np.zeros((shares.shape[0], 1))], axis=1)
    table = pack_largest_first(shares, replicas, slots)
    if slots.width == 2 and slots.even:
        return table, table_loads(pieces, table)[1].max(axis=1)
    sweeps = min(SWEEPS[effort], most_sweeps or SWEEPS[effort])
    trios = slots.width == 3 and slots.even and effort != "fast"
    table, peak = descend(
        table,
        pieces,
        bound,
        least=slots.least,
        sweeps=min(sweeps, 60) if trios else sweeps,
        tolerance=tolerance,
        rng=rng,
        deadline=deadline,
    )
    if trios:
        table, peak = descend_triples(
            table, pieces, bound, steps=sweeps, tolerance=tolerance, rng=rng, deadline=deadline
        )
    return table, peak


def finish(shares: Floats, table: Ints, slots: Slots, bound: Floats) -> LayerPlacements:
    """The result of ``table [layers, chips, width]``, its loads computed anew from the slots.

    Raises ``VerificationError`` for an invalid table or a bound above what was reached.
    """
    layers, experts = shares.shape
    flat = table[:, slots.mask()]
    counts = np.zeros((layers, experts + 1), dtype=np.int64)
    np.add.at(counts, (np.arange(layers)[:, None], flat), 1)
    rising = np.sort(np.where(slots.mask(), table, -1 - np.arange(slots.width)), axis=2)
    repeats = (rising[..., 1:] == rising[..., :-1]).any()
    if (counts[:, :experts] < 1).any() or counts[:, experts].any() or repeats:
        raise VerificationError("a placement misses an expert or repeats one on a chip")
    pieces = np.concatenate([shares / counts[:, :experts], np.zeros((layers, 1))], axis=1)
    sizes = np.take_along_axis(pieces, flat, axis=1)
    starts = np.concatenate([[0], np.cumsum(slots.counts)[:-1]])
    max_load = np.add.reduceat(sizes, starts, axis=1).max(axis=1)
    if (bound > max_load * (1 + 1e-9)).any():
        raise VerificationError("a placement is better than its proven bound")
    return LayerPlacements(flat, max_load, np.minimum(bound, max_load), slots.counts)

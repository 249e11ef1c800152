"""``rackfit place`` where layers may have unlike numbers of slots: one budget, shared among the layers.

How many slots each layer gets is chosen on the recorded loads as a whole; layers with equally many are then
placed together by the same search as ever, and everything is judged anew, layer by layer.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.dispatch import chip_loads, imbalance
from costmodel.experts.expert_load import ExpertLoads
from costmodel.experts.fanout import remote_copies
from rackfit.exporters.placements.table import UnlikeTable
from rackfit.placement.alike import place_alike
from rackfit.placement.placed import Placed, Shared
from solver.experts import LoadBounds
from solver.experts.bounds.shared_bound import SharedBound
from solver.experts.layer_slots import (
    SlotShares,
    busiest_shares,
    on_chips,
    slot_choices,
    staggered,
)
from solver.experts.request import PlaceOptions
from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]


def place_sharing(loads: ExpertLoads, options: PlaceOptions) -> Placed:
    """Place loads with ``options.slots`` slots to a layer on average. Raises ``InstanceError``."""
    start = time.monotonic()
    counts, most = _chosen(loads, options, start)
    searches = 1 + len(set(counts))
    alike = replace(options, layer_slots="same")
    uniform = place_alike(loads, alike.part_of_time(start, searches))
    layers, experts = loads.total.shape
    rows: list[tuple[int, ...]] = [()] * layers
    bound = np.zeros(layers)
    for done, count in enumerate(sorted(set(counts)), 1):
        own = [layer for layer, slots in enumerate(counts) if slots == count]
        if count == options.slots and len(own) == layers:
            part = uniform
        else:
            asked = replace(alike, slots=count).part_of_time(start, searches - done)
            part = place_alike(_of_layers(loads, own), asked)
        bound[own] = part.bound
        for layer, row in zip(own, part.table.rows(), strict=True):
            rows[layer] = tuple(row)
    slots = staggered(counts, options.gpus)
    rows = [on_chips(row, own) for row, own in zip(rows, slots, strict=True)]
    table = UnlikeTable(tuple(rows), experts, tuple(slots), loads.layer_ids, loads.num_layers)
    ratios = np.array(
        [
            [_ratio(row, window[layer], own, options) for layer, (row, own) in enumerate(zip(rows, slots, strict=True))]
            for window in (loads.total[None] if options.objective == "sum" else loads.windows)
        ]
    )  # fmt: skip
    ratio = ratios.max(axis=0) if options.objective == "worst" else ratios.mean(axis=0)
    shared = Shared(
        layer_slots=tuple(counts),
        budget=options.slots * layers,
        slots=sum(counts),
        fullest_gpu=int(np.sum(slots, axis=0).max()),
        bound=min(_bound(loads, options, most), float(ratio.mean())),
        uniform=uniform,
    )
    return Placed(
        table=table,
        replicas=np.array([np.bincount(row, minlength=experts) for row in rows]),
        imbalance=ratio,
        bound=np.minimum(bound, ratio),
        copies=_copies(rows, slots, loads, options),
        wall_s=time.monotonic() - start,
        options=options,
        moves=None,
        trade_off=[],
        by_window=ratios.mean(axis=1),
        windows=loads.names if len(ratios) == len(loads.names) else ("sum",),
        shared=shared,
    )


#: share of the time that the choice of the counts may take
_CHOOSING = 0.4


def _chosen(loads: ExpertLoads, options: PlaceOptions, start: float) -> tuple[tuple[int, ...], int]:
    """Slots of each layer, and the most that one may have.

    Where time ends before layers were tried with as many slots as they have on average, all have these.
    """
    layers, experts = loads.total.shape
    budget = options.slots * layers
    rows = options.layer_slots == "rows"
    most = min(2 * experts + options.gpus, experts * options.gpus)
    choices = slot_choices(experts, options.gpus, most, rows=rows)
    if not choices or budget < layers * choices[0]:
        least = options.gpus * -(-experts // options.gpus) if rows else max(experts, options.gpus)
        words = f"{options.slots} slots to a layer on average; need {least} or more"
        message = f"{words} for {experts} experts on {options.gpus} GPUs" + (
            " with equally many on each" if rows else ""
        )
        raise InstanceError(Problem("--slots", message))
    deadline = None if options.time_limit_s is None else start + _CHOOSING * options.time_limit_s
    busiest = busiest_shares(
        loads.total, options.gpus, choices, seed=options.seed, deadline=deadline
    )
    usual = max(count for count in choices if count <= options.slots)
    late = deadline is not None and time.monotonic() > deadline
    if late and np.isinf(busiest[:, choices.index(usual)]).all():
        return (usual,) * layers, most
    return SlotShares.of(busiest, choices, budget).choose(budget), most


def _of_layers(loads: ExpertLoads, layers: list[int]) -> ExpertLoads:
    """The recorded loads of some layers."""
    ids = tuple(loads.layer_ids[layer] for layer in layers)
    return replace(loads, windows=loads.windows[:, layers], layer_ids=ids)


def _ratio(
    row: tuple[int, ...], load: Floats, slots: tuple[int, ...], options: PlaceOptions
) -> float:
    """Busiest GPU over the mean of one layer."""
    found = chip_loads(
        np.array([row]),
        load[None],
        slots,
        dispatch=options.dispatch,
        chips_per_node=options.gpus_per_node,
    )
    return float(imbalance(found)[0])


def _copies(
    rows: list[tuple[int, ...]],
    slots: list[tuple[int, ...]],
    loads: ExpertLoads,
    options: PlaceOptions,
) -> Floats:
    """Expected copies of a token to remote nodes, per layer."""
    if options.gpus_per_node is None:
        return np.zeros(len(rows))
    gpus = np.arange(options.gpus)
    found = [
        remote_copies(
            np.array([row]),
            loads.total[layer : layer + 1],
            np.repeat(gpus, own) // options.gpus_per_node,
            top_k=options.experts_per_token(loads.num_experts),
            num_groups=options.groups,
            top_groups=options.top_groups,
            local_first=options.dispatch == "sglang-static",
        )[0]
        for layer, (row, own) in enumerate(zip(rows, slots, strict=True))
    ]
    return np.array(found)


def _bound(loads: ExpertLoads, options: PlaceOptions, most: int) -> float:
    """Mean busiest GPU over the mean at least, for every share of the budget."""
    windows = loads.total[None] if options.objective == "sum" else loads.windows
    budget = options.slots * loads.total.shape[0]
    each = [
        SharedBound(LoadBounds(window), options.gpus, most).mean_and_least(budget)[0] * options.gpus
        for window in windows
    ]
    return float(np.max(each) if options.objective == "worst" else np.mean(each))

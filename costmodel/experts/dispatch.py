"""What a placement of experts gives under the engine's dispatch: load per chip and imbalance.

Judges placements from any source; never imports the solver. Everything is recomputed from
``physical_to_logical`` and the loads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Dispatch = Literal["even", "sglang-static", "lp"]

#: Seed of SGLang's static dispatch table.
SGLANG_SEED = 42


def chip_of_slot(num_slots: int, slots_per_chip: int | Sequence[int]) -> Ints:
    """Chip of each slot, slots contiguous chip by chip. Raises ``InstanceError`` if they do not add up."""
    if isinstance(slots_per_chip, (int, np.integer)):
        if slots_per_chip < 1 or num_slots % slots_per_chip:
            raise InstanceError(
                Problem("slots", f"{num_slots} slots do not divide into {slots_per_chip} per chip")
            )
        return np.arange(num_slots) // int(slots_per_chip)
    counts = np.asarray(slots_per_chip, dtype=np.int64)
    if counts.ndim != 1 or (counts < 0).any() or counts.sum() != num_slots:
        raise InstanceError(Problem("slots", f"slots per chip do not add up to {num_slots}"))
    return np.repeat(np.arange(len(counts)), counts)


def check_placement(
    physical_to_logical: ArrayLike, num_experts: int, slots_per_chip: int | Sequence[int]
) -> Ints:
    """``physical_to_logical [layers, slots]`` if valid, else ``InstanceError`` with every problem.

    Valid: expert numbers in range, every expert in at least one slot, none twice on a chip.
    """
    table = np.asarray(physical_to_logical)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iu":
        raise InstanceError(
            Problem("placement", f"expected whole numbers [layers, slots], got shape {table.shape}")
        )
    chip = chip_of_slot(table.shape[1], slots_per_chip)
    problems = []
    for layer, row in enumerate(table.astype(np.int64)):
        if row.min() < 0 or row.max() >= num_experts:
            problems.append(
                Problem(f"layer {layer}", f"expert {row.max()} outside 0..{num_experts - 1}")
            )
            continue
        missing = np.flatnonzero(np.bincount(row, minlength=num_experts) == 0)
        if missing.size:
            problems.append(
                Problem(
                    f"layer {layer}", f"{missing.size} experts have no slot, first {missing[0]}"
                )
            )
        pairs, times = np.unique(chip * num_experts + row, return_counts=True)
        if (times > 1).any():
            twice = int(pairs[times > 1][0])
            where = f"expert {twice % num_experts} is twice on chip {twice // num_experts}"
            problems.append(Problem(f"layer {layer}", where))
    if problems:
        raise InstanceError(problems)
    return table.astype(np.int64)


def replica_counts(physical_to_logical: Ints, num_experts: int) -> Ints:
    """Replicas ``[layers, experts]`` of each expert."""
    layers = physical_to_logical.shape[0]
    counts = np.zeros((layers, num_experts), dtype=np.int64)
    np.add.at(counts, (np.arange(layers)[:, None], physical_to_logical), 1)
    return counts


def chip_loads(
    physical_to_logical: Ints,
    loads: Floats,
    slots_per_chip: int | Sequence[int],
    *,
    dispatch: Dispatch = "even",
    chips_per_node: int | None = None,
) -> Floats:
    """Share of each layer's load on each chip ``[layers, chips]`` (rows sum to 1).

    ``even``: an expert's tokens split evenly over its replicas (vLLM, SGLang dynamic).
    ``sglang-static``: every source chip uses the replica on itself, else on its node, else one of
    a fair table; tokens start evenly on all chips. ``lp``: the split over replicas that makes the
    busiest chip's load smallest.
    """
    shares = loads / loads.sum(axis=1, keepdims=True)
    chip = chip_of_slot(physical_to_logical.shape[1], slots_per_chip)
    num_chips = int(chip[-1]) + 1
    if dispatch == "lp":
        from costmodel.experts.balanced_split import split_loads

        return np.stack(
            [
                split_loads(row, share, chip)
                for row, share in zip(physical_to_logical, shares, strict=True)
            ]
        )
    if dispatch == "sglang-static":
        table = static_table(physical_to_logical, shares.shape[1], chip, chips_per_node)
        load = np.zeros((shares.shape[0], num_chips))
        rows = np.arange(shares.shape[0])[:, None]
        for source in range(num_chips):
            np.add.at(load, (rows, chip[table[source]]), shares / num_chips)
        return load
    if dispatch != "even":
        raise InstanceError(
            Problem("dispatch", f"unknown {dispatch!r}; known: even, sglang-static, lp")
        )
    pieces = shares / np.maximum(replica_counts(physical_to_logical, shares.shape[1]), 1)
    size = np.take_along_axis(pieces, physical_to_logical, axis=1)
    even = np.zeros((shares.shape[0], num_chips))
    np.add.at(even, (np.arange(shares.shape[0])[:, None], chip[None, :]), size)
    return even


def imbalance(chip_load: Floats) -> Floats:
    """Busiest chip over mean chip per layer (1 is balanced) of ``chip_load [layers, chips]``."""
    ratio: Floats = chip_load.max(axis=1) / chip_load.mean(axis=1)
    return ratio


def static_table(
    physical_to_logical: Ints, num_experts: int, chip: Ints, chips_per_node: int | None
) -> Ints:
    """SGLang's static dispatch: slot used by each source chip ``[chips, layers, experts]``.

    The replica on the source chip, else the first on its node (when that leaves some out), else
    the sources left are dealt over all replicas equally often, in an order drawn with a fixed
    seed. Source: SGLang ``srt/eplb/expert_location.py``.
    """
    layers = physical_to_logical.shape[0]
    num_chips = int(chip[-1]) + 1
    node = np.arange(num_chips) // (chips_per_node or num_chips)
    table = np.zeros((num_chips, layers, num_experts), dtype=np.int64)
    draw = random.Random(SGLANG_SEED)
    for layer in range(layers):
        order = np.argsort(physical_to_logical[layer], kind="stable")
        edges = np.searchsorted(physical_to_logical[layer][order], np.arange(num_experts + 1))
        for expert in range(num_experts):
            slots = order[edges[expert] : edges[expert + 1]]
            if len(slots) == 1:
                table[:, layer, expert] = slots[0]
                continue
            table[:, layer, expert] = _nearest(slots, chip, node, draw)
    return table


def _nearest(slots: Ints, chip: Ints, node: Ints, draw: random.Random) -> Ints:
    """Slot of one replicated expert for every source chip, by the rule of :func:`static_table`."""
    chosen = np.full(len(node), -1, dtype=np.int64)
    nodes = node[chip[slots]]
    for home in np.unique(nodes)[::-1]:
        same = slots[nodes == home]
        if len(same) < len(slots):
            chosen[node == home] = same[0]
    chosen[chip[slots]] = slots
    left = np.flatnonzero(chosen < 0)
    often, rest = divmod(len(left), len(slots))
    candidates = slots.tolist()
    dealt = candidates * often + draw.sample(candidates, k=rest)
    draw.shuffle(dealt)
    chosen[left] = dealt
    return chosen

"""How routed tokens fall on the chips of many stages under the expert maps of a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.instance import Instance
from costmodel.layout import Layout, Stage, count_copies
from costmodel.moe_load import placed_shares, reached
from costmodel.operations import LayerKind
from costmodel.tokens import ExpertShares

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

#: numbers in an array ``[layers, slots]`` up to which several stages are looked at together
_IN_CACHE = 1 << 13


def stage_shares(
    instance: Instance,
    layout: Layout,
    stages: Sequence[Stage],
    kind: LayerKind,
    starts: Ints,
    counts: Ints,
    tokens: Array,
) -> ExpertShares:
    """Load of the chips in every layer of a kind, stage after stage, on structurally sound stages.

    A stage has ``counts`` layers from ``kind.layers[starts]`` on; ``tokens [stages]`` in the pass over
    all ranks. Stages with the same slots on their chips are computed together; where stages differ in
    width, the narrower ones have chips without load.
    """
    moe = kind.moe
    assert moe is not None
    of_kind = [
        slice(*span) for span in zip(starts.tolist(), (starts + counts).tolist(), strict=True)
    ]
    ends = counts.cumsum()
    of_stage = [slice(*span) for span in zip((ends - counts).tolist(), ends.tolist(), strict=True)]
    alike: dict[tuple[int, ...], list[int]] = {}
    unlike = []
    for index, stage in enumerate(stages):
        if counts[index] and stage.layer_slots:
            unlike.append(index)
        elif counts[index]:
            alike.setdefault(stage.slots(), []).append(index)
    # what an expert without copies sees of so many tokens is the same in every pass
    missed = instance.log_missed(kind)
    every = {number: reached(missed, number) for number in set(tokens[counts > 0].tolist())}
    loads = instance.kind_loads(kind)
    chips = max(
        (len(stage.chips) for stage, own in zip(stages, counts, strict=True) if own), default=1
    )
    load, touched = np.zeros((counts.sum(), chips)), np.zeros((counts.sum(), chips))
    for slots, members in alike.items():
        if slots == (moe.num_experts,):  # one chip that has every expert once
            for index in members:
                load[of_stage[index], 0] = 1.0
                touched[of_stage[index], 0] = every[tokens[index]][of_kind[index]].sum(axis=-1)
            continue
        for few in _small_groups([int(counts[index]) * sum(slots) for index in members]):
            indices = [members[place] for place in few]
            placed = [
                _experts(layout, stages[i], kind.layers[of_kind[i]], moe.num_experts)
                for i in indices
            ]
            shares = placed_shares(
                _joined([loads[of_kind[index]] for index in indices]),
                _joined([every[tokens[index]][of_kind[index]] for index in indices]),
                _joined([experts for experts, _ in placed]),
                _joined([copies for _, copies in placed]),
                slots,
                moe.top_k,
                np.repeat(tokens[indices], counts[indices]),
            )
            first = 0
            for index in indices:
                last = first + int(counts[index])
                load[of_stage[index], : len(slots)] = shares.load[first:last]
                touched[of_stage[index], : len(slots)] = shares.touched[first:last]
                first = last
    for index in unlike:
        layers, own = kind.layers[of_kind[index]], loads[of_kind[index]]
        alone, wide = every[tokens[index]][of_kind[index]], len(stages[index].chips)
        for slots, places in _layers_alike(stages[index], layers).items():
            experts, copies = _experts(
                layout, stages[index], tuple(layers[place] for place in places), moe.num_experts
            )
            shares = placed_shares(
                own[places], alone[places], experts, copies, slots, moe.top_k, tokens[index]
            )
            rows = of_stage[index].start + np.array(places)
            load[rows, :wide], touched[rows, :wide] = shares.load, shares.touched
    return ExpertShares(load, touched, stage_layers=counts)


def _layers_alike(stage: Stage, layers: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    """Places in ``layers`` of those with the same slots on the stage's chips, by these slots."""
    found: dict[tuple[int, ...], list[int]] = {}
    for place, layer in enumerate(layers):
        found.setdefault(stage.slots(layer), []).append(place)
    return found


def _small_groups(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Places of neighbouring stages whose arrays ``[layers, slots]`` together fit a core's cache."""
    group: list[int] = []
    total = 0
    for place, size in enumerate(sizes):
        if group and total + size > _IN_CACHE:
            yield group
            group, total = [], 0
        group.append(place)
        total += size
    if group:
        yield group


def _joined(arrays: Sequence[NDArray[T]]) -> NDArray[T]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _experts(
    layout: Layout, stage: Stage, layers: tuple[int, ...], num_experts: int
) -> tuple[Ints, Ints]:
    """Expert of each slot ``[layers, slots]`` and slots of each expert in some layers of a stage."""
    table = layout.slot_tables.get(stage.expert_map or "")
    if table is not None and table.copies is not None and table.copies.shape[1] == num_experts:
        rows = table.rows(layers)
        return table.experts[rows], table.copies[rows]
    maps = layout.experts_of(stage)
    experts = np.array([maps[layer] for layer in layers], dtype=np.int64)
    return experts, count_copies(experts, num_experts)

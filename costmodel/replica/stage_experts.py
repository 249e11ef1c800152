"""How routed tokens fall on the chips of many stages under the expert maps of a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import cut_shares, placed_shares
from costmodel.layout.layout import Layout, Stage
from costmodel.layout.slot_table import SlotTable, slot_table
from costmodel.passes.operations import LayerKind
from costmodel.passes.tokens import ExpertShares
from costmodel.question.instance import Instance

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
    unlike, cut = [], []
    for index, stage in enumerate(stages):
        if counts[index] and stage.cut:
            cut.append(index)
        elif counts[index] and stage.layer_slots:
            unlike.append(index)
        elif counts[index]:
            alike.setdefault(stage.slots(), []).append(index)
    by_layer = tokens.repeat(counts)
    # what an expert without copies sees of so many tokens is the same in every pass
    every = {number: instance.reached(kind, number) for number in set(by_layer.tolist())}
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
            tables = [
                _table(layout, stages[i], kind.layers[of_kind[i]], moe.num_experts) for i in indices
            ]
            shares = placed_shares(
                _joined([loads[of_kind[index]] for index in indices]),
                _joined([every[tokens[index]][of_kind[index]] for index in indices]),
                _stacked(tables),
                slots,
                moe.top_k,
                _joined([by_layer[of_stage[index]] for index in indices]),
            )
            first = 0
            for index in indices:
                last = first + int(counts[index])
                load[of_stage[index], : len(slots)] = shares.load[first:last]
                touched[of_stage[index], : len(slots)] = shares.touched[first:last]
                first = last
    for index in cut:
        wide = len(stages[index].chips)
        shares = cut_shares(every[tokens[index]][of_kind[index]], moe, wide)
        load[of_stage[index], :wide], touched[of_stage[index], :wide] = shares.load, shares.touched
    for index in unlike:
        layers, own = kind.layers[of_kind[index]], loads[of_kind[index]]
        alone, wide = every[tokens[index]][of_kind[index]], len(stages[index].chips)
        for slots, places in _layers_alike(stages[index], layers).items():
            rows = of_stage[index].start + np.array(places)
            named = tuple(layers[place] for place in places)
            table = _table(layout, stages[index], named, moe.num_experts)
            shares = placed_shares(
                own[places], alone[places], table, slots, moe.top_k, by_layer[rows]
            )
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


def _table(layout: Layout, stage: Stage, layers: tuple[int, ...], num_experts: int) -> SlotTable:
    """Experts in the slots of some layers of a stage."""
    whole = layout.slot_tables.get(stage.expert_map or "")
    table = None if whole is None else whole.of_layers(layers)
    if table is not None and table.holds(num_experts):
        return table
    maps = layout.experts_of(stage)
    experts = np.array([maps[layer] for layer in layers], dtype=np.int64)
    return slot_table(layers, experts, num_experts)


def _stacked(tables: Sequence[SlotTable]) -> SlotTable:
    """Several tables of as many slots and experts as one, layer after layer."""
    if len(tables) == 1:
        return tables[0]
    return SlotTable(
        tuple(chain.from_iterable(table.layers for table in tables)),
        np.concatenate([table.experts for table in tables]),
        np.concatenate([table.copies for table in tables if table.copies is not None]),
    )

"""How routed tokens fall on the chips of many stages under the expert maps of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.instance import Instance
from costmodel.layout import Layout, Stage
from costmodel.moe_load import placed_shares, reached, small_groups
from costmodel.operations import LayerKind
from costmodel.tokens import ExpertShares

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


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
    for index, stage in enumerate(stages):
        if counts[index]:
            alike.setdefault(stage.slots(), []).append(index)
    # what an expert without copies sees of so many tokens is the same in every pass
    missed = instance.log_missed(kind)
    every = {number: reached(missed, number) for number in set(tokens[counts > 0].tolist())}
    loads = instance.kind_loads(kind)
    chips = max((len(slots) for slots in alike), default=1)
    load, touched = np.zeros((counts.sum(), chips)), np.zeros((counts.sum(), chips))
    for slots, members in alike.items():
        if slots == (moe.num_experts,):  # one chip that has every expert once
            for index in members:
                load[of_stage[index], 0] = 1.0
                touched[of_stage[index], 0] = every[tokens[index]][of_kind[index]].sum(axis=-1)
            continue
        for few in small_groups([int(counts[index]) * sum(slots) for index in members]):
            indices = [members[place] for place in few]
            shares = placed_shares(
                _joined([loads[of_kind[index]] for index in indices]),
                _joined([every[tokens[index]][of_kind[index]] for index in indices]),
                _joined([_experts(layout, stages[i], kind.layers[of_kind[i]]) for i in indices]),
                slots,
                moe.top_k,
                np.repeat(tokens[indices], counts[indices]),
                copies=sum(slots) != moe.num_experts,
            )
            first = 0
            for index in indices:
                last = first + int(counts[index])
                load[of_stage[index], : len(slots)] = shares.load[first:last]
                touched[of_stage[index], : len(slots)] = shares.touched[first:last]
                first = last
    return ExpertShares(load, touched, stage_layers=counts)


def _joined(arrays: Sequence[NDArray[T]]) -> NDArray[T]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _experts(layout: Layout, stage: Stage, layers: tuple[int, ...]) -> Ints:
    """Expert of each slot in some layers of a stage ``[layers, slots]``."""
    table = layout.slot_tables.get(stage.expert_map or "")
    if table is not None:
        return table.rows(layers)
    maps = layout.experts_of(stage)
    return np.array([maps[layer] for layer in layers], dtype=np.int64)

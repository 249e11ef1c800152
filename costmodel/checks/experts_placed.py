"""Each expert of each MoE layer has a slot; no chip holds an expert of a layer twice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout, Stage
from costmodel.moe_load import small_groups


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Missing layers, missing experts, wrong slot counts, repeated experts on a chip."""
    moe = instance.operations.moe
    if moe is None:
        return []
    violations = []
    # replicas share maps: stages with the same one, layers and slots are looked at once
    different: dict[tuple[str | None, tuple[int, int], tuple[int, ...]], tuple[str, Stage]] = {}
    for index, replica in enumerate(layout.replicas):
        for number, stage in enumerate(replica.stages):
            place, slots = f"replicas[{index}].stages[{number}]", stage.slots()
            if len(slots) != len(stage.chips):
                message = f"slots_per_chip for {len(slots)} of {len(stage.chips)} chips"
                violations.append(Violation("experts_placed", place, message))
                continue
            different.setdefault((stage.expert_map, stage.layers, slots), (place, stage))
    alike: dict[tuple[int, ...], list[tuple[str, Stage]]] = {}
    for (_, _, slots), (place, stage) in different.items():
        alike.setdefault(slots, []).append((place, stage))
    for slots, stages in alike.items():
        layers = [_moe_layers(instance, stage) for _, stage in stages]
        for few in small_groups([len(of_stage) * sum(slots) for of_stage in layers]):
            some, own = [stages[index] for index in few], [layers[index] for index in few]
            if not _sound(layout, [stage for _, stage in some], own, slots, moe.num_experts):
                for (place, stage), of_stage in zip(some, own, strict=True):
                    violations += _stage(layout, stage, place, of_stage, moe.num_experts)
    return violations


def _moe_layers(instance: Instance, stage: Stage) -> Sequence[int]:
    layers = instance.operations.moe_layers
    return layers[bisect_left(layers, stage.layers[0]) : bisect_right(layers, stage.layers[1])]


def _stage(
    layout: Layout, stage: Stage, place: str, layers: Sequence[int], num_experts: int
) -> list[Violation]:
    """What is wrong with the experts of one stage, layer by layer."""
    found = []
    maps, slots = layout.experts_of(stage), stage.slots()
    for layer in layers:
        where = f"{place} layer {layer}"
        placed = maps.get(layer)
        if placed is None:
            found.append(Violation("experts_placed", where, "has no expert map"))
            continue
        if len(placed) != sum(slots):
            message = f"{len(placed)} slots in the map, {sum(slots)} on the chips"
            found.append(Violation("experts_placed", where, message))
            continue
        strange = [expert for expert in placed if not 0 <= expert < num_experts]
        if strange:
            message = f"expert {strange[0]}; experts are 0-{num_experts - 1}"
            found.append(Violation("experts_placed", where, message))
        missing = sorted(set(range(num_experts)) - set(placed))
        if missing:
            message = f"experts without a slot: {missing[:5]}"
            found.append(Violation("experts_placed", where, message))
        start = 0
        for chip, count in zip(stage.chips, slots, strict=True):
            here = placed[start : start + count]
            start += count
            if len(set(here)) != count:
                found.append(
                    Violation("experts_placed", where, f"chip {chip} holds an expert twice")
                )
                break
    return found


def _sound(
    layout: Layout,
    stages: Sequence[Stage],
    layers: Sequence[Sequence[int]],
    slots: Sequence[int],
    num_experts: int,
) -> bool:
    """Whether every layer of some stages with these slots keeps the rule, all layers at once.

    No finding of its own; ``layers``: those with experts of each stage.
    """
    placed = []
    for stage, own in zip(stages, layers, strict=True):
        table = layout.slot_tables.get(stage.expert_map or "")
        if not own:
            continue
        if table is None or any(layer not in table.row_of for layer in own):
            return False
        if table.experts.shape[1] != sum(slots) or not sum(slots):
            return False
        placed.append(table.rows(own))
    if not placed:
        return True
    experts = placed[0] if len(placed) == 1 else np.concatenate(placed)
    # a negative number is the largest of all without its sign
    if experts.view(np.uint64).max() >= num_experts:
        return False
    size = len(experts) * num_experts
    at = np.arange(0, size, num_experts)[:, None] + experts
    counts = np.bincount(at.ravel(), minlength=size)
    if not counts.all():
        return False
    if experts.shape[1] == num_experts:  # every expert once
        return True
    copied = counts.take(at) > 1
    chip_of_slot = np.broadcast_to(np.repeat(np.arange(len(slots)), slots), at.shape)
    pairs = np.sort(chip_of_slot[copied] * size + at[copied])
    return not bool((pairs[1:] == pairs[:-1]).any())

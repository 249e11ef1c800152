"""Each expert of each MoE layer has a slot; no chip holds an expert of a layer twice."""

from __future__ import annotations

import numpy as np

from costmodel.checks import Violation
from costmodel.fleet import PricedLayout
from costmodel.instance import Instance
from costmodel.layout import Layout, Stage


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Missing layers, missing experts, wrong slot counts, repeated experts on a chip."""
    moe = instance.operations.moe
    if moe is None:
        return []
    violations = []
    seen: set[tuple[str | None, tuple[int, int], tuple[int, ...], int]] = set()
    for index, replica in enumerate(layout.replicas):
        for number, stage in enumerate(replica.stages):
            place = f"replicas[{index}].stages[{number}]"
            if len(stage.slots()) != len(stage.chips):
                message = f"slots_per_chip for {len(stage.slots())} of {len(stage.chips)} chips"
                violations.append(Violation("experts_placed", place, message))
                continue
            key = (stage.expert_map, stage.layers, stage.slots(), len(stage.chips))
            if key not in seen:  # replicas share maps; one look is enough
                seen.add(key)
                violations += _stage(instance, layout, stage, place, moe.num_experts)
    return violations


def _stage(
    instance: Instance, layout: Layout, stage: Stage, place: str, num_experts: int
) -> list[Violation]:
    first, last = stage.layers
    layers = [layer for layer in instance.operations.moe_layers if first <= layer <= last]
    if _sound(layout, stage, layers, num_experts):
        return []
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


def _sound(layout: Layout, stage: Stage, layers: list[int], num_experts: int) -> bool:
    """Whether every layer of the stage keeps the rule, all layers at once; no finding of its own."""
    table = layout.slot_tables.get(stage.expert_map or "")
    if table is None or any(layer not in table.row_of for layer in layers):
        return not layers
    slots = stage.slots()
    placed = table.experts[[table.row_of[layer] for layer in layers]]
    if placed.shape[1] != sum(slots) or not placed.size:
        return not layers
    if placed.min() < 0 or placed.max() >= num_experts:
        return False
    at = np.arange(len(layers))[:, None] * num_experts + placed
    if not np.bincount(at.ravel(), minlength=len(layers) * num_experts).all():
        return False
    if placed.shape[1] == num_experts:  # every expert once
        return True
    chip_of_slot = np.repeat(np.arange(len(slots)), slots)
    pairs = np.sort(chip_of_slot * num_experts + placed, axis=1)
    return not bool((pairs[:, 1:] == pairs[:, :-1]).any())

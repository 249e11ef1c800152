"""Each expert of each MoE layer has a slot; no chip holds an expert of a layer twice."""

from __future__ import annotations

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
    found = []
    maps, slots = layout.experts_of(stage), stage.slots()
    first, last = stage.layers
    for layer in instance.operations.moe_layers:
        if not first <= layer <= last:
            continue
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

"""Each expert of each MoE layer has a slot, or is cut over all chips; no chip holds an expert of a layer twice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from costmodel.layout.layout import Layout, Slots, Stage
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Missing layers, missing experts, wrong slot counts, repeated experts on a chip."""
    moe = instance.operations.moe
    if moe is None:
        return []
    violations = []
    seen: set[tuple[str | None, tuple[int, int], tuple[object, ...]]] = set()
    for index, replica in enumerate(layout.replicas):
        for number, stage in enumerate(replica.groups):
            place, slots = f"replicas[{index}].stages[{number}]", stage.slots()
            misfit = _misfit(stage, place)
            if misfit is not None:
                violations.append(misfit)
                continue
            if replica.apart is not None and stage is not replica.apart.experts:
                continue  # attention alone
            if replica.cuts_experts:
                violations += _cut(
                    layout, stage, place, _moe_layers(instance, stage), moe.num_experts
                )
                continue
            key = (stage.expert_map, stage.layers, stage.slot_key)
            if key not in seen:  # replicas share maps; one look is enough
                seen.add(key)
                layers = _moe_layers(instance, stage)
                sound = not stage.layer_slots and _sound(
                    layout, stage, layers, slots, moe.num_experts
                )
                if layers and not sound:
                    violations += _stage(layout, stage, place, layers, moe.num_experts)
    return violations


def _cut(
    layout: Layout, stage: Stage, place: str, layers: Sequence[int], num_experts: int
) -> list[Violation]:
    """A map of a stage whose chips share every expert that does not list each once, in each layer."""
    if stage.expert_map is None:
        return []
    rows = layout.expert_maps.get(stage.expert_map, {})
    wrong = [one for one in layers if sorted(rows.get(one, ())) != list(range(num_experts))]
    if not wrong:
        return []
    message = "experts are cut over all chips (0 slots each); a map lists every expert once"
    return [Violation("experts_placed", f"{place} layer {wrong[0]}", message)]


def _misfit(stage: Stage, place: str) -> Violation | None:
    """Slots that are not one number, or one per chip and 0 or more, for all layers or for one."""
    given: list[tuple[str, Slots | None]] = [("slots_per_chip", stage.slots_per_chip)]
    given += [
        (f"layer_slots[{layer}]", slots) for layer, slots in (stage.layer_slots or {}).items()
    ]
    for name, slots in given:
        if isinstance(slots, tuple) and len(slots) != len(stage.chips):
            message = f"{name} for {len(slots)} of {len(stage.chips)} chips"
            return Violation("experts_placed", place, message)
        least = min(slots, default=0) if isinstance(slots, tuple) else slots or 0
        if least < 0:
            return Violation(
                "experts_placed", place, f"{name} is {least}; expected 0 or more slots"
            )
    strange = sorted(
        layer
        for layer in stage.layer_slots or ()
        if not stage.layers[0] <= layer <= stage.layers[1]
    )
    if strange:
        message = (
            f"layer_slots names layer {strange[0]}; the stage has layers "
            f"{stage.layers[0]}-{stage.layers[1]}"
        )
        return Violation("experts_placed", place, message)
    return None


def _moe_layers(instance: Instance, stage: Stage) -> tuple[int, ...]:
    layers = instance.operations.moe_layers
    return layers[bisect_left(layers, stage.layers[0]) : bisect_right(layers, stage.layers[1])]


def _stage(
    layout: Layout, stage: Stage, place: str, layers: Sequence[int], num_experts: int
) -> list[Violation]:
    """What is wrong with the experts of one stage, layer by layer."""
    found = []
    maps = layout.experts_of(stage)
    for layer in layers:
        where, slots = f"{place} layer {layer}", stage.slots(layer)
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
    layout: Layout, stage: Stage, layers: tuple[int, ...], slots: Sequence[int], num_experts: int
) -> bool:
    """Whether every layer of the stage keeps the rule, all layers at once; no finding of its own."""
    whole = layout.slot_tables.get(stage.expert_map or "")
    table = None if whole is None else whole.of_layers(layers)
    if table is None or table.copies is None or not table.holds(num_experts):
        return False
    width = table.experts.shape[1]
    if width != sum(slots) or not table.complete:
        return False
    if width == num_experts:  # every expert once
        return True
    # only what has several slots can lie twice on a chip
    several = table.copied_slots
    chip = np.repeat(np.arange(len(slots)), slots)[several % width]
    pairs = np.sort(chip * table.copies.size + table.places.ravel()[several])
    return not bool((pairs[1:] == pairs[:-1]).any())

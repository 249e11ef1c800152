"""A replica's expert maps as one table, and the maps that engines start with by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from costmodel.layout.layout import ExpertMap, Layout, Replica, Stage, spread
from costmodel.question.engine import in_order
from costmodel.question.instance import Instance
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.placements.table import AnyTable, PlacementTable, UnlikeTable


def placement_table(instance: Instance, layout: Layout, replica: Replica) -> AnyTable | None:
    """Experts of each slot of every MoE layer of a replica; ``None`` for a model without experts.

    Stages of one replica have the same slots per chip here (:func:`slot_limits` says where not).
    """
    moe = instance.operations.moe
    layers = [
        (layer, row)
        for stage in replica.stages
        for layer, row in sorted(layout.experts_of(stage).items())
        if stage.layers[0] <= layer <= stage.layers[1]
    ]
    if moe is None or not layers:
        return None
    if any(stage.unlike for stage in replica.stages):
        slots = {
            layer: stage.slots(layer)
            for stage in replica.stages
            for layer in range(stage.layers[0], stage.layers[1] + 1)
        }
        return UnlikeTable(
            experts=tuple(row for _, row in layers),
            num_experts=moe.num_experts,
            layer_slots=tuple(slots[layer] for layer, _ in layers),
            layer_ids=tuple(layer for layer, _ in layers),
            num_layers=len(instance.model.layers),
        )
    return PlacementTable(
        physical_to_logical=np.array([row for _, row in layers], dtype=np.int64),
        num_experts=moe.num_experts,
        slots_per_chip=replica.stages[0].slots(),
        layer_ids=tuple(layer for layer, _ in layers),
        num_layers=len(instance.model.layers),
    )


def spare_slots(deployment: Deployment, server: Server) -> int:
    """Slots of a layer beyond one per expert; where layers differ, of the one with most."""
    moe = deployment.instance.operations.moe
    slots = max(sum(own) for own in _slots_by_layer(server.replica.stages[0]).values())
    return slots - moe.num_experts if moe and slots else 0


def map_name(table: AnyTable) -> str:
    """A short name of a placement by its content, so that equal maps share one file."""
    if isinstance(table, PlacementTable):
        content = table.physical_to_logical.tobytes()
    else:
        content = repr((table.experts, table.layer_slots)).encode()
    digest = hashlib.sha256(content + repr(table.layer_ids).encode())
    return f"experts-ep{table.num_chips}-{digest.hexdigest()[:8]}"


def _slots_by_layer(stage: Stage) -> dict[int, tuple[int, ...]]:
    """Slots on the chips of a stage in each of its layers."""
    return {layer: stage.slots(layer) for layer in range(stage.layers[0], stage.layers[1] + 1)}


def slot_limits(server: Server, target: str, *, unlike_layers: bool = False) -> list[Limit]:
    """Slots that differ between the chips, the layers or the stages of a replica.

    ``unlike_layers``: the target gives each layer a number of slots of its own.
    """
    found = []
    for number, stage in enumerate(server.replica.stages):
        place = f"{server.name} stage {number}"
        uneven = [(layer, slots) for layer, slots in _slots_by_layer(stage).items() if len(set(slots)) > 1]  # fmt: skip
        if uneven:
            layer, slots = uneven[0]
            message = (
                f"{min(slots)} to {max(slots)} expert slots per chip; {target} gives every rank "
                "the same number"
            )
            found.append(Limit(f"{place} layer {layer}" if stage.unlike else place, message, True))
        if stage.unlike and not unlike_layers:
            counts = [sum(slots) for slots in _slots_by_layer(stage).values()]
            layer = stage.unlike[0]
            message = (
                f"{min(counts)} to {max(counts)} expert slots by layer; {target} takes one number of "
                "redundant experts for all layers"
            )
            found.append(Limit(f"{place} layer {layer}", message, True))
    sizes = {max(stage.slots(), default=0) for stage in server.replica.stages}
    if len(sizes) > 1:
        message = (
            f"{min(sizes)} to {max(sizes)} slots per chip by stage; {target} takes one number "
            "of redundant experts for all layers"
        )
        found.append(Limit(server.name, message, True))
    return found


def chip_limits(deployment: Deployment, server: Server, target: str) -> list[Limit]:
    """Chips of several types in one replica."""
    cluster = deployment.instance.cluster
    kinds = sorted({cluster.chip(chip).chip.name for chip in server.replica.chips})
    if len(kinds) == 1:
        return []
    message = f"mixes {', '.join(kinds)}; one {target} server is planned for one chip type"
    return [Limit(server.name, message, False)]


def with_even_slots(layout: Layout, *, unlike_layers: bool = False) -> Layout:
    """The layout with every chip of a replica given as many slots as its fullest chip.

    New slots hold the experts with fewest copies that the chip does not have yet. ``unlike_layers``:
    layers keep slots of their own, and only the chips of each layer are made even.
    """
    maps = dict(layout.expert_maps)
    replicas = []
    for index, replica in enumerate(layout.replicas):
        by_layer = [_slots_by_layer(stage) for stage in replica.stages]
        most = max((max(slots) for own in by_layer for slots in own.values()), default=0)
        if all(set(slots) <= {most} for own in by_layer for slots in own.values()):
            replicas.append(replica)
            continue
        stages = []
        for number, (stage, slots) in enumerate(zip(replica.stages, by_layer, strict=True)):
            apart = unlike_layers and bool(stage.unlike)
            wide = {layer: max(own) if apart else most for layer, own in slots.items()}
            name = f"even-{index}-{number}"
            maps[name] = {
                layer: _padded(row, slots[layer], wide[layer])
                for layer, row in layout.experts_of(stage).items()
                if layer in slots
            }
            base = max(stage.slots()) if apart else most
            update = {
                "slots_per_chip": base,
                "expert_map": name,
                "layer_slots": {k: own for k, own in wide.items() if own != base} or None,
            }
            stages.append(stage.model_copy(update=update))
        replicas.append(replica.model_copy(update={"stages": tuple(stages)}))
    return _used(layout, replicas, maps)


def _padded(row: tuple[int, ...], slots: tuple[int, ...], most: int) -> tuple[int, ...]:
    copies = np.bincount(row)
    result: list[int] = []
    start = 0
    for count in slots:
        here = list(row[start : start + count])
        start += count
        for expert in np.argsort(copies, kind="stable").tolist():
            if len(here) == most:
                break
            if expert not in here:
                here.append(expert)
                copies[expert] += 1
        result += here
    return tuple(result)


def with_start_maps(
    instance: Instance, layout: Layout, chosen: Callable[[Replica], bool]
) -> Layout:
    """The layout with the maps of ``chosen`` replicas replaced by what an engine starts with."""
    moe = instance.operations.moe
    if moe is None:
        return layout
    maps = dict(layout.expert_maps)
    replicas = []
    for replica in layout.replicas:
        if not chosen(replica):
            replicas.append(replica)
            continue
        stages = []
        for stage in replica.stages:
            if stage.expert_map is None or stage.cut:
                stages.append(stage)
                continue
            slots = sum(stage.slots())
            row = in_order(moe.num_experts, slots)
            name = f"start-{slots}"
            maps[name] = dict.fromkeys(instance.operations.moe_layers, row)
            stages.append(stage.model_copy(update={"expert_map": name}))
        replicas.append(replica.model_copy(update={"stages": tuple(stages)}))
    return _used(layout, replicas, maps)


def plain_limits(deployment: Deployment, server: Server, target: str) -> list[Limit]:
    """Spare slots and experts out of order, for a model whose class has neither."""
    if server.replica.cuts_experts:
        return []
    plain = with_plain_slots(deployment.instance, deployment.layout).replicas[server.index]
    own = [stage.slots() for stage in server.replica.stages]
    in_order = same_as_start(deployment.instance, deployment.layout, server.replica)
    if own == [stage.slots() for stage in plain.stages] and in_order:
        return []
    message = (
        f"the class of {deployment.instance.model.name} has no redundant experts in {target} and loads no "
        "placement; experts lie in order, none twice"
    )
    return [Limit(server.name, message, True)]


def with_plain_slots(instance: Instance, layout: Layout) -> Layout:
    """The layout with every expert once, in order, as evenly over a replica's chips as they can be, or cut as it is."""
    moe = instance.operations.moe
    if moe is None:
        return layout
    maps = dict(layout.expert_maps)
    rows = dict.fromkeys(instance.operations.moe_layers, tuple(range(moe.num_experts)))
    replicas = []
    for replica in layout.replicas:
        if replica.cuts_experts:
            replicas.append(replica)
            continue
        chips = replica.shape.chips_per_stage
        slots = tuple(spread(moe.num_experts, chips))
        name = f"plain-{chips}"
        update = {
            "slots_per_chip": slots[0] if len(set(slots)) == 1 else slots,
            "expert_map": name,
            "layer_slots": None,
        }
        stages = tuple(stage.model_copy(update=update) for stage in replica.stages)
        maps[name] = rows
        replicas.append(replica.model_copy(update={"stages": stages}))
    return _used(layout, replicas, maps)


def same_as_start(instance: Instance, layout: Layout, replica: Replica) -> bool:
    """Whether each chip already holds the experts that the engine would give it."""
    moe = instance.operations.moe
    if moe is None:
        return True
    return all(_starts(layout, stage, moe.num_experts) for stage in replica.stages)


def _starts(layout: Layout, stage: Stage, num_experts: int) -> bool:
    if len(stage.chips) == 1:
        return True
    wanted = {
        slots: _by_chip(in_order(num_experts, sum(slots)), slots)
        for slots in set(_slots_by_layer(stage).values())
    }
    first, last = stage.layers
    return all(
        _by_chip(row, stage.slots(layer)) == wanted[stage.slots(layer)]
        for layer, row in layout.experts_of(stage).items()
        if first <= layer <= last
    )


def _by_chip(row: tuple[int, ...], slots: tuple[int, ...]) -> list[frozenset[int]]:
    ends = np.cumsum(slots).tolist()
    return [frozenset(row[end - count : end]) for end, count in zip(ends, slots, strict=True)]


def _used(layout: Layout, replicas: list[Replica], maps: dict[str, ExpertMap]) -> Layout:
    names = {stage.expert_map for replica in replicas for stage in replica.stages}
    kept = {name: rows for name, rows in maps.items() if name in names}
    return layout.model_copy(update={"replicas": tuple(replicas), "expert_maps": kept})

"""From a fleet of realised shapes to a layout on named chips."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.layout.layout import ExpertMap, Layout
from costmodel.question.instance import Instance
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.place.build import build_replica, stage_chips
from solver.place.realise import Realised
from solver.shapes.pools import pick_chips


def assemble(instance: Instance, fleet: Fleet, placed: Callable[[Item], Realised]) -> Layout:
    """Take chips from each pool in order and stand every replica on its own.

    Wider replicas come first and take chips that belong together where neighbours matter.
    Replicas of one shape share one expert map for each stage.
    """
    free = {
        (pool.domain, pool.chip.name): list(pool.chips)
        for _, pools in fleet.stands
        for pool in pools
    }
    maps: dict[str, ExpertMap] = {}
    known: dict[int, Realised] = {}
    replicas = []
    order = sorted(fleet.stands, key=lambda stand: (-stand[0].chips, stand[0].shape))
    for item, pools in order:
        shape = placed(item)
        slices = []
        for pool, (_, count) in zip(pools, item.parts, strict=True):
            left = free[pool.domain, pool.chip.name]
            chosen = pick_chips(instance.cluster, pool.domain, left, count, leaving=len(pools) > 1)
            slices.append(chosen)
            free[pool.domain, pool.chip.name] = [chip for chip in left if chip not in set(chosen)]
        # a shape may be placed in two ways: with KV that leaves the domain, and with KV that stays
        tag = "" if known.setdefault(item.shape, shape) is shape else ".stays"
        names = [f"shape{item.shape}{tag}.stage{number}" for number in range(len(shape.stages))]
        if shape.maps:
            for name, (first, last) in zip(names, shape.stages, strict=True):
                maps.setdefault(
                    name, {k: slots for k, slots in shape.maps.items() if first <= k <= last}
                )
        replicas.append(
            build_replica(
                instance,
                shape.shape,
                shape.per_rank,
                shape.stages,
                shape.slots,
                stage_chips(shape.shape, slices),
                names if shape.maps else None,
                shape.extra,
                shape.idle,
                shape.layer_slots,
            )
        )
    return Layout(replicas=tuple(replicas), expert_maps=maps)

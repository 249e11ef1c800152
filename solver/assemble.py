"""From a fleet of realised shapes to a layout on named chips."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.instance import Instance
from costmodel.layout import ExpertMap, Layout
from solver.fleets import Fleet
from solver.realise import Realised, build_replica, stage_chips


def assemble(instance: Instance, fleet: Fleet, realised: Mapping[int, Realised]) -> Layout:
    """Take chips from each pool in order and stand every replica on its own.

    Wider replicas come first, so that on fabrics where neighbours matter they get compact blocks.
    Replicas of one shape share one expert map for each stage.
    """
    taken: dict[tuple[int, str], int] = {}
    maps: dict[str, ExpertMap] = {}
    replicas = []
    order = sorted(fleet.stands, key=lambda stand: (-stand[0].chips, stand[0].shape))
    for item, pools in order:
        shape = realised[item.shape]
        slices = []
        for pool in pools:
            key = (pool.domain, pool.chip.name)
            start = taken.get(key, 0)
            taken[key] = start + item.slice_chips
            slices.append(pool.chips[start : start + item.slice_chips])
        names = [f"shape{item.shape}.stage{number}" for number in range(len(shape.stages))]
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
            )
        )
    return Layout(replicas=tuple(replicas), expert_maps=maps)

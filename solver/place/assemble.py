"""From a fleet of realised shapes to a layout on named chips."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.layout.layout import ExpertMap, Layout
from costmodel.question.instance import Instance
from solver.fleet.asked import Fleet
from solver.place.build import build_replica, stage_chips
from solver.place.realise import Realised, Realiser
from solver.place.tiles import Need, tiles
from solver.shapes.pools import Pool, pick_chips
from solver.shapes.stands import neighbours_matter


def assemble(
    instance: Instance, fleet: Fleet, realised: Mapping[int, Realised], realiser: Realiser
) -> Layout:
    """Take chips from each pool in order and stand every replica on its own.

    Wider replicas come first. Where neighbours matter, each replica is made anew for the chips it gets, with
    the batch that these allow; one that meets no target there is left out.
    """
    order = sorted(range(len(fleet.stands)), key=lambda at: _rank(fleet, at))
    chosen = _chips(instance, fleet, order, realiser)
    maps: dict[str, ExpertMap] = {}
    replicas = []
    for place in order:
        item, pools = fleet.stands[place]
        shape = realised[item.shape]
        chips = stage_chips(shape.shape, chosen[place])
        name = f"shape{item.shape}"
        if any(neighbours_matter(instance.cluster, pool.domain) for pool in pools):
            slices = [(p, own, len(own)) for p, own in zip(pools, chosen[place], strict=True)]
            shape = realiser.realise(item.shape, shape.most_per_rank, slices)
            if shape.requests_per_s <= 0:
                continue
            chips = shape.chips
            name += f".{'-'.join(sorted({c for stage in chips for c in stage})[:1])}"
        names = [f"{name}.stage{number}" for number in range(len(shape.stages))]
        if shape.maps:
            for own_name, (first, last) in zip(names, shape.stages, strict=True):
                maps.setdefault(
                    own_name, {k: slots for k, slots in shape.maps.items() if first <= k <= last}
                )
        replicas.append(
            build_replica(
                instance,
                shape.shape,
                shape.per_rank,
                shape.stages,
                shape.slots,
                chips,
                names if shape.maps else None,
                shape.extra,
                shape.idle,
                shape.layer_slots,
            )
        )
    return Layout(replicas=tuple(replicas), expert_maps=maps)


def _rank(fleet: Fleet, place: int) -> tuple[int, int]:
    item, _ = fleet.stands[place]
    return -item.chips, item.shape


def _chips(
    instance: Instance, fleet: Fleet, order: list[int], realiser: Realiser
) -> list[list[list[str]]]:
    """Chips of each replica's slice in each of its pools."""
    wanted: dict[Pool, list[tuple[int, int]]] = {}
    for place in order:
        _, pools = fleet.stands[place]
        for slot, pool in enumerate(pools):
            wanted.setdefault(pool, []).append((place, slot))
    chosen: list[list[list[str]]] = [[[] for _ in pools] for _, pools in fleet.stands]
    for pool, slices in wanted.items():
        counts = [fleet.stands[place][0].parts[slot][1] for place, slot in slices]
        if neighbours_matter(instance.cluster, pool.domain):
            needs = [_need(instance, fleet, realiser, place, slot) for place, slot in slices]
            positions = [instance.cluster.chip(chip).position for chip in pool.chips]
            sets = tiles(
                instance.cluster.domains[pool.domain].fabric, sorted(positions), needs,
                clock=realiser.clock, seed=realiser.seed,
            )  # fmt: skip
            named = [[f"r{pool.domain}g{position}" for position in one] for one in sets]
        else:
            named, free = [], list(pool.chips)
            for count in counts:
                named.append(pick_chips(instance.cluster, pool.domain, free, count))
                free = [chip for chip in free if chip not in set(named[-1])]
        for (place, slot), chips in zip(slices, named, strict=True):
            chosen[place][slot] = chips
    return chosen


def _need(instance: Instance, fleet: Fleet, realiser: Realiser, place: int, slot: int) -> Need:
    item, _ = fleet.stands[place]
    row = realiser.shapes.row(item.shape)
    count = item.parts[slot][1]
    wide = row["tp"] * row["attention_dp"] >= count  # the slice is one stage, or part of one
    return Need(
        count,
        exchanges=instance.operations.moe is not None and wide,
        gathers=row["tp"] > 1 or not wide,
    )

"""From a fleet of realised shapes to a layout on named chips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.layout.layout import ExpertMap, Layout
from costmodel.question.instance import Instance
from solver.fleet.asked import Fleet
from solver.place.build import build_replica, stage_chips
from solver.place.realise import Realised, Realiser
from solver.place.tiles import Need, tiles
from solver.shapes.pools import Pool, pick_chips
from solver.shapes.stands import apart, named, neighbours_matter

#: a replica: its row of the shape table, how it stands, and the chips of each stage
Stood = tuple[int, Realised, list[list[str]]]


def assemble(
    instance: Instance,
    fleet: Fleet,
    realised: Mapping[int, Realised],
    realiser: Realiser,
    given: Sequence[Sequence[str] | None] = (),
) -> Layout:
    """Take chips from each pool in order and stand every replica on its own.

    Wider replicas come first. Where neighbours matter, each replica is made anew for the chips it gets, with
    the batch that these allow; one that meets no target there is left out. ``given``: the chips of replicas in one
    pool each, where they are chosen already.
    """
    order = sorted(range(len(fleet.stands)), key=lambda at: _rank(fleet, at))
    known = {at: [list(chips)] for at, chips in enumerate(given) if chips is not None}
    chosen = known | _chips(instance, fleet, [at for at in order if at not in known], realiser)
    stood: list[Stood] = []
    for place in order:
        item, pools = fleet.stands[place]
        shape = realised[item.shape]
        if apart(instance.cluster, pools):
            slices = [(p, own, len(own)) for p, own in zip(pools, chosen[place], strict=True)]
            there = realiser.realise(item.shape, shape.most_per_rank, slices)
            if there.requests_per_s > 0:
                stood.append((item.shape, there, there.chips))
        else:
            stood.append((item.shape, shape, stage_chips(shape.shape, chosen[place])))
    return layout_of(instance, stood)


def layout_of(instance: Instance, stood: Sequence[Stood]) -> Layout:
    """Replicas on their chips. Those of one shape that place experts alike share a map for each stage."""
    maps: dict[str, ExpertMap] = {}
    kinds: dict[int, list[ExpertMap]] = {}
    replicas = []
    for row, shape, chips in stood:
        own = kinds.setdefault(row, [])
        if shape.maps not in own:
            own.append(shape.maps)
        kind = own.index(shape.maps)
        name = f"shape{row}" if kind == 0 else f"shape{row}.{kind}"
        cut = "" if len(shape.stages) < 2 else f"{'-'.join(str(last) for _, last in shape.stages)}."
        names = [f"{name}.{cut}stage{number}" for number in range(len(shape.stages))]
        if shape.maps:
            for stage, (first, last) in zip(names, shape.stages, strict=True):
                maps.setdefault(
                    stage, {k: slots for k, slots in shape.maps.items() if first <= k <= last}
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
    instance: Instance, fleet: Fleet, order: Sequence[int], realiser: Realiser
) -> dict[int, list[list[str]]]:
    """Chips of each replica's slice in each of its pools, of those in ``order``."""
    wanted: dict[Pool, list[tuple[int, int]]] = {}
    for place in order:
        for slot, pool in enumerate(fleet.stands[place][1]):
            wanted.setdefault(pool, []).append((place, slot))
    chosen: dict[int, list[list[str]]] = {at: [[] for _ in fleet.stands[at][1]] for at in order}
    for pool, slices in wanted.items():
        free, own = list(pool.chips), []
        if neighbours_matter(instance.cluster, pool.domain):
            needs = [_need(instance, fleet, realiser, place, slot) for place, slot in slices]
            positions = sorted(instance.cluster.chip(chip).position for chip in free)
            sets = tiles(
                instance.cluster.domains[pool.domain].fabric, positions, needs,
                clock=realiser.clock, seed=realiser.seed,
            )  # fmt: skip
            own = [named(pool.domain, block) for block in sets]
        else:
            for place, slot in slices:
                count = fleet.stands[place][0].parts[slot][1]
                own.append(pick_chips(instance.cluster, pool.domain, free, count))
                free = [chip for chip in free if chip not in set(own[-1])]
        for (place, slot), chips in zip(slices, own, strict=True):
            chosen[place][slot] = chips
    return chosen


def _need(instance: Instance, fleet: Fleet, realiser: Realiser, place: int, slot: int) -> Need:
    item, _ = fleet.stands[place]
    row, count = realiser.shapes.row(item.shape), item.parts[slot][1]
    wide = row["tp"] * row["attention_dp"] >= count  # the slice is one stage, or part of one
    return Need(
        count,
        exchanges=instance.operations.moe is not None and wide,
        gathers=row["tp"] > 1 or not wide,
    )

"""From a fleet of realised shapes to a layout on named chips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from costmodel.layout.layout import ExpertMap, Layout
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.place.build import build_replica, stage_chips
from solver.place.realise import Realised
from solver.place.stages import cut_over
from solver.place.standing import Slice
from solver.place.tiles import Need, tiles
from solver.shapes.pools import Pool, pick_chips
from solver.shapes.stands import apart, named, neighbours_matter, stages_apart


class ReplicaSource(Protocol):
    """Where replicas of a fleet come from."""

    clock: Clock
    seed: int

    def of(self, item: Item) -> Realised:
        """The replica of an item, on chips of its pools."""
        ...

    def on(self, item: Item, slices: Sequence[Slice]) -> Realised:
        """The replica of an item on given chips; 0 requests/s where these allow none."""
        ...


#: a replica: its row of the shape table, how it stands, and the chips of each stage
Stood = tuple[int, Realised, list[list[str]]]


def assemble(
    instance: Instance,
    fleet: Fleet,
    placed: ReplicaSource,
    given: Sequence[Sequence[str] | None] = (),
) -> Layout:
    """Take chips from each pool in order and stand every replica on its own.

    Wider replicas come first; where NICs of a domain differ, those that send most. Where neighbours matter, each
    replica is made anew for the chips it gets, with the batch that these allow; one that meets no target there is
    left out. ``given``: the chips of replicas in one pool each, where they are chosen already.
    """
    order = sorted(range(len(fleet.stands)), key=lambda at: _rank(instance, fleet, at))
    known = {at: [list(chips)] for at, chips in enumerate(given) if chips is not None}
    left = [at for at in order if at not in known]
    chosen = known | _chips(instance, fleet, left, placed)
    stood: list[Stood] = []
    for place in order:
        item, pools = fleet.stands[place]
        shape = placed.of(item)
        if apart(instance.cluster, pools):
            slices = [(p, own, len(own)) for p, own in zip(pools, chosen[place], strict=True)]
            there = placed.on(item, slices)
            if there.requests_per_s > 0:
                stood.append((item.shape, there, there.chips))
        else:
            stood.append((item.shape, shape, stage_chips(shape.shape, chosen[place])))
    return layout_of(instance, stood)


def layout_of(instance: Instance, stood: Sequence[Stood]) -> Layout:
    """Replicas on their chips. Those of one shape with the same stages and experts share a map for each stage.

    The map of a stage whose chips share every expert lists each once.
    """
    maps: dict[str, ExpertMap] = {}
    kinds: dict[int, list[tuple[ExpertMap, tuple[tuple[int, int], ...]]]] = {}
    replicas = []
    moe = instance.operations.moe
    every = tuple(range(moe.num_experts if moe else 0))
    for row, shape, chips in stood:
        own = kinds.setdefault(row, [])
        if (shape.maps, shape.stages) not in own:
            own.append((shape.maps, shape.stages))
        kind = own.index((shape.maps, shape.stages))
        name = f"shape{row}.{kind}" if kind else f"shape{row}"
        names = [f"{name}.stage{number}" for number in range(len(shape.stages))]
        if cut_over(shape.slots):
            names = [f"cut.{first}-{last}" for first, last in shape.stages]
            maps |= {
                stage: {k: every for k in instance.operations.moe_layers if first <= k <= last}
                for stage, (first, last) in zip(names, shape.stages, strict=True)
            }
        if shape.maps:
            for stage, (first, last) in zip(names, shape.stages, strict=True):
                maps.setdefault(
                    stage, {k: slots for k, slots in shape.maps.items() if first <= k <= last}
                )
        if "experts" in shape.shape:
            # entered where experts lie apart, and nowhere else
            from solver.apart.build import build_apart

            replicas.append(
                build_apart(instance, shape.shape, shape.sequences, shape.slots, chips, names[0])
            )
            continue
        replicas.append(
            build_replica(
                instance,
                shape.shape,
                shape.sequences,
                shape.stages,
                shape.slots,
                chips,
                names if shape.maps or cut_over(shape.slots) else None,
                idle=shape.idle,
                layer_slots=shape.layer_slots,
            )
        )
    return Layout(replicas=tuple(replicas), expert_maps=maps)


def _rank(instance: Instance, fleet: Fleet, place: int) -> tuple[float, int, int]:
    """Where only NICs differ, replicas whose passes send most through each get the fastest ones first."""
    item, pools = fleet.stands[place]
    homes = (instance.cluster.domains[pool.domain] for pool in pools)
    unlike = any(
        home.fabric.interchangeable_chips and not home.interchangeable_chips for home in homes
    )
    per_chip = [sent / chips for sent, (_, chips) in zip(item.sent, item.parts, strict=False)]
    return -max(per_chip, default=0.0) if unlike else 0.0, -item.chips, item.shape


def _chips(
    instance: Instance, fleet: Fleet, order: Sequence[int], placed: ReplicaSource
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
            needs = [
                _needs(instance, fleet.stands[place][0], slot, placed, pool.domain)
                for place, slot in slices
            ]
            positions = sorted(instance.cluster.chip(chip).position for chip in free)
            of = instance.cluster.domains[pool.domain].granularity
            every = [one for own_needs in needs for one in own_needs]
            sets = iter(tiles(of, positions, every, clock=placed.clock, seed=placed.seed))
            own = [
                [chip for _ in stages for chip in named(pool.domain, next(sets))]
                for stages in needs
            ]
        else:
            for place, slot in slices:
                item = fleet.stands[place][0]
                count = item.parts[slot][1]
                own.append(
                    pick_chips(instance.cluster, pool.domain, free, count, leaving=item.wide)
                )
                free = [chip for chip in free if chip not in set(own[-1])]
        for (place, slot), chips in zip(slices, own, strict=True):
            chosen[place][slot] = chips
    return chosen


def _needs(
    instance: Instance, item: Item, slot: int, placed: ReplicaSource, domain: int
) -> list[Need]:
    """What a replica's slice needs: one set, or where chips failed, which a large one has to go around, one for each stage."""
    shape, count = placed.of(item).shape, item.parts[slot][1]
    width = shape["tp"] * shape["attention_dp"]
    around = bool(instance.cluster.domains[domain].fabric.failed)
    split = around and width < count and count % width == 0
    split = split and stages_apart(instance.cluster, domain)
    chips = width if split else count
    wide = width >= chips  # a set is one stage, or part of one
    moe = instance.operations.moe is not None
    need = Need(
        chips,
        exchanges=moe and wide,
        gathers=shape["tp"] > 1 or not wide or (moe and not shape["slots"]),
    )
    return [need] * (count // chips)

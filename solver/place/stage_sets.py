"""The best fleet on many named chips where neighbours matter: how many of which replicas, each stage on a set of its own.

The fleet model counts chips; that the sets of all stages find room beside each other is for CP-SAT here. A
replica of many stages may stand in too many ways to name them, but each of its stages stands on one of few
hundred sets that are as quick as those it was placed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ortools.sat.python import cp_model

from costmodel.layout.layout import Layout
from solver.fleet.asked import Fleet, Question, fleet_of
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.place.pack import Stand, aim_at
from solver.place.placed_shapes import PlacedShapes
from solver.place.tiles import MOST_CHIPS
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES
from solver.shapes.stands import apart, named, neighbours_matter, stages_apart
from topology.routing.blocks import ChipBlock, disjoint

#: replicas of each role that are chosen from: those that serve most per chip
_OF_A_ROLE = 4
#: fleets that are tried row by row
_FLEETS = 24
#: seconds for a model
_LIMIT_S = 15.0

#: seconds per byte of an exchange and of a gather, and latency
_Speed = tuple[float, float, float]
#: a pool, chips of a stage, and how quick its set has to be
_Kind = tuple[Pool, int, frozenset[_Speed]]


@dataclass(frozen=True)
class _Choice:
    """A replica that may stand in a pool: chips of a stage, how many stages, and the sets that these may stand on."""

    item: Item
    pool: Pool
    width: int
    stages: int
    speeds: frozenset[_Speed]

    @property
    def chips(self) -> int:
        """Chips of all its stages."""
        return self.width * self.stages

    @property
    def kind(self) -> _Kind:
        """What tells its sets from those of others."""
        return self.pool, self.width, self.speeds

    @property
    def stand(self) -> Stand:
        """The replica as the fleet model has it."""
        return self.item, (self.pool,)


def by_stage(
    placed: PlacedShapes,
    classes: Sequence[PoolClass],
    question: Question,
    best: Fleet | None,
    best_cost: float,
    tried: frozenset[object],
) -> tuple[tuple[Layout, Fleet] | None, set[object]]:
    """The best fleet of realised shapes whose stages share no chip; ``None`` where none costs less by its own rates.

    Replicas of the ``best`` fleet that stand elsewhere stay. ``tried``: what was chosen from before, which is not done
    again; what was chosen from now comes second.
    """
    instance = placed.instance
    wide = [
        one
        for one in classes
        if one.size > MOST_CHIPS
        and neighbours_matter(instance.cluster, one.domain)
        and stages_apart(instance.cluster, one.domain)
    ]
    if not wide:
        return None, set()
    pools = {pool for one in wide for pool in one.pools}
    known = best.stands if best is not None else ()
    beside = [stand for stand in known if not pools & set(stand[1])]
    if any(apart(instance.cluster, own) for _, own in beside):
        return None, set()
    offered = _choices(placed, wide)
    key = tuple((one.pool, one.width, one.stages, one.item.requests_per_s) for one in offered)
    if key in tried:
        return None, set()
    sets = _sets(offered, placed)
    others = [item for item, _ in beside]

    def fleet_with(chosen: Sequence[_Choice]) -> Fleet:
        return fleet_of([*beside, *(one.stand for one in chosen)], classes, question.links)

    chosen = _row_by_row(
        offered, sets, lambda own: question.cost_of(fleet_with(own)), best_cost, placed
    )
    if not chosen:
        chosen = _solved(offered, sets, others, classes, question, best_cost, placed)
    fleet = fleet_with([one for one, _ in chosen])
    if question.cost_of(fleet) >= best_cost * (1 - 1e-9):
        return None, {key}
    chips = [None] * len(beside) + [own for _, own in chosen]
    return (assemble(instance, fleet, placed, chips), fleet), {key}


def _choices(placed: PlacedShapes, wide: Sequence[PoolClass]) -> list[_Choice]:
    """Realised shapes in one pool each, those that serve most per chip, on sets as quick as theirs."""
    cluster, found = placed.instance.cluster, list[_Choice]()
    classes = {one.index: one for one in wide}
    by_role: dict[int, list[tuple[float, int]]] = {}
    for row, own in placed.realised.items():
        parts = placed.items.shapes.parts(row)
        if len(parts) == 1 and parts[0][0] in classes and own.requests_per_s > 0 and own.chips:
            each = own.requests_per_s / parts[0][1]
            by_role.setdefault(own.shape["role"], []).append((-each, row))
    for role, rows in by_role.items():
        taken = set[tuple[int, int, int]]()
        for _, row in sorted(rows):
            own = placed.realised[row]
            ((index, count),) = placed.items.shapes.parts(row)
            item = Item(row, role, index, 1, count, own.requests_per_s)
            width = min(count, own.shape["tp"] * own.shape["attention_dp"])
            alike = index, width, count
            if count % width or alike in taken or len(taken) == _OF_A_ROLE:
                continue
            taken.add(alike)
            home = cluster.domains[classes[index].domain].fabric
            of_stages = [
                home.priced(tuple(sorted(cluster.chip(chip).position for chip in stage)))
                for stage in own.chips
            ]
            slowest = [one.speed for one in of_stages if one is not None]
            for pool in classes[index].pools:
                free = sorted(cluster.chip(chip).position for chip in pool.chips)
                known = {one.speed for one in home.everywhere(free, width)}
                as_quick = {
                    one
                    for one in known
                    if any(
                        all(a <= b * (1 + 1e-9) for a, b in zip(one, stage, strict=True))
                        for stage in slowest
                    )
                }
                found.append(_Choice(item, pool, width, count // width, frozenset(as_quick)))
    return found


def _sets(offered: Sequence[_Choice], placed: PlacedShapes) -> dict[_Kind, list[ChipBlock]]:
    """Sets that stages of each kind may stand on."""
    cluster, found = placed.instance.cluster, dict[_Kind, list[ChipBlock]]()
    for one in offered:
        if one.kind not in found:
            free = sorted(cluster.chip(chip).position for chip in one.pool.chips)
            every = cluster.domains[one.pool.domain].fabric.everywhere(free, one.width)
            found[one.kind] = [own for own in every if own.speed in one.speeds]
    return found


def _row_by_row(
    offered: Sequence[_Choice],
    sets: Mapping[_Kind, Sequence[ChipBlock]],
    cost_of: Callable[[Sequence[_Choice]], float],
    best_cost: float,
    placed: PlacedShapes,
) -> list[tuple[_Choice, list[str]]]:
    """The cheapest of some fleets whose sets find room one after another, of one pool; none where all cost as much as is known.

    A fleet has replicas of one kind that computes prompts and one that decodes, as many as serve alike, beside mixed ones of one
    kind, or these alone.
    """
    if len({one.pool for one in offered}) != 1:
        return []
    of_role = {role: [one for one in offered if one.item.role == n] for n, role in enumerate(ROLES)}
    chips, fleets = len(offered[0].pool.chips), list[list[_Choice]]()
    for first, other in product(of_role["prefill"], of_role["decode"]):
        for number in range(1, chips // first.chips + 1):
            like = number * first.item.requests_per_s / other.item.requests_per_s
            fleets += [
                [first] * number + [other] * count
                for count in (int(like), int(like) + 1)
                if count and number * first.chips + count * other.chips <= chips
            ]
    fleets += [
        [one] * number for one in of_role["mixed"] for number in range(1, chips // one.chips + 1)
    ]
    fleets += [
        [*fleet, *[one] * number]
        for fleet in fleets
        for one in of_role["mixed"]
        if (number := (chips - sum(other.chips for other in fleet)) // one.chips)
    ]
    cheap = sorted((cost_of(fleet), at) for at, fleet in enumerate(fleets))
    for cost, at in cheap[:_FLEETS]:
        if cost >= best_cost * (1 - 1e-9) or placed.clock.over:
            break
        needs = Counter[_Kind]()
        for one in fleets[at]:
            needs[one.kind] += one.stages
        for wide_first, by_place in product((True, False), repeat=2):
            taken, there = set[int](), dict[_Kind, list[tuple[int, ...]]]()
            for kind in sorted(needs, key=lambda kind: kind[1], reverse=wide_first):
                places = [one.chips for one in sets[kind]]
                there[kind] = disjoint(sorted(places) if by_place else places, needs[kind], taken)
                taken.update(chip for chips in there[kind] for chip in chips)
            if all(len(there[kind]) == number for kind, number in needs.items()):
                return _on_chips(Counter(fleets[at]), there, placed)
    return []


def _solved(
    offered: Sequence[_Choice],
    sets: Mapping[_Kind, Sequence[ChipBlock]],
    beside: Sequence[Item],
    classes: Sequence[PoolClass],
    question: Question,
    cost: float,
    placed: PlacedShapes,
) -> list[tuple[_Choice, list[str]]]:
    """Replicas with their chips, stage by stage."""
    model = cp_model.CpModel()
    numbers = [
        model.new_int_var(0, len(one.pool.chips) // one.chips, f"n[{at}]")
        for at, one in enumerate(offered)
    ]
    uses: dict[str, list[cp_model.IntVar]] = {}
    taken: dict[_Kind, list[cp_model.IntVar]] = {}
    for kind, places in sets.items():
        taken[kind] = [model.new_bool_var("") for _ in places]
        own = [at for at, one in enumerate(offered) if one.kind == kind]
        stages = cp_model.LinearExpr.weighted_sum(
            [numbers[at] for at in own], [offered[at].stages for at in own]
        )
        model.add(sum(taken[kind]) == stages)
        for one, x in zip(places, taken[kind], strict=True):
            for chip in named(kind[0].domain, one):
                uses.setdefault(chip, []).append(x)
    for variables in uses.values():
        model.add_at_most_one(variables)
    counted = [
        (one.item, classes[one.item.pool_class].usd_per_hour(one.chips), number)
        for one, number in zip(offered, numbers, strict=True)
    ]
    aim_at(model, counted, beside, question, cost)
    solver, status = placed.clock.run(model, seed=placed.seed, limit_s=_LIMIT_S)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return []
    there = {
        kind: [one.chips for one, x in zip(sets[kind], own, strict=True) if solver.value(x)]
        for kind, own in taken.items()
    }
    times = {one: solver.value(number) for one, number in zip(offered, numbers, strict=True)}
    return _on_chips(times, there, placed)


def _on_chips(
    times: Mapping[_Choice, int],
    there: Mapping[_Kind, Sequence[tuple[int, ...]]],
    placed: PlacedShapes,
) -> list[tuple[_Choice, list[str]]]:
    """So many of each choice with their chips: stages hand on to the next, which is best near."""
    cluster, found = placed.instance.cluster, list[tuple[_Choice, list[str]]]()
    order = {
        kind: iter(cluster.domains[kind[0].domain].fabric.in_a_row(own))
        for kind, own in there.items()
    }
    for one, number in times.items():
        for _ in range(number):
            stages = [next(order[one.kind]) for _ in range(one.stages)]
            places = [place for stage in stages for place in stage]
            found.append((one, [f"r{one.pool.domain}g{place}" for place in places]))
    return found

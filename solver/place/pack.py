"""The best fleet on named chips where neighbours matter: which replicas, and on which sets of chips.

The fleet model counts chips and takes each replica to stand on the best set there is. Where these sets do
not fit beside each other, other replicas may be better than worse sets for the same ones. Here every replica
worth trying has its own price on each kind of set, and CP-SAT chooses sets that share no chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from costmodel.layout.layout import Layout
from solver.fleet.asked import Fleet, Question, fleet_of
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.place.placed_shapes import PlacedShapes
from solver.place.tiles import MOST_CHIPS
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES
from solver.shapes.stands import apart, named, neighbours_matter

#: sets of one number of chips, and kinds of these that are priced
_SETS, _KINDS = 400, 8
#: seconds for a model; rates and money are integers up to this
_LIMIT_S, _WHOLE = 8.0, 10**6
#: rounds of Dinkelbach's iteration for the least money per request
_ROUNDS = 4

#: a replica of the fleet model: an item and its pools
Stand = tuple[Item, tuple[Pool, ...]]


@dataclass(frozen=True)
class PoolChoice:
    """A replica that may stand on named chips of one pool, and what these cost."""

    item: Item
    pool: Pool
    chips: tuple[str, ...]
    usd_per_hour: float

    @property
    def stand(self) -> Stand:
        """The replica as the fleet model has it."""
        return self.item, (self.pool,)


def packed(
    placed: PlacedShapes,
    classes: Sequence[PoolClass],
    question: Question,
    most_per_rank: NDArray[np.int64],
    best: Fleet | None,
    best_cost: float,
) -> tuple[Layout, Fleet] | None:
    """The best fleet on sets of chips that share none; ``None`` where none costs less by its own rates.

    Replicas of the ``best`` fleet in pools whose chips cannot be told apart stay. Shapes of dense models that
    were not placed yet are placed first, which takes little.
    """
    instance = placed.instance
    if all(c.size > MOST_CHIPS for c in classes if neighbours_matter(instance.cluster, c.domain)):
        return None
    if instance.operations.moe is None:
        for row in sorted({item.shape for item in placed.items.best()} - set(placed.realised)):
            if placed.clock.over:
                break
            found = placed.place(row, int(most_per_rank[row]))
            placed.items.tighten(row, found.upper_requests_per_s, found.requests_per_s)
    known = best.stands if best is not None else ()
    beside = [stand for stand in known if not apart(instance.cluster, stand[1])]
    offered = _choices(placed, classes)
    fleet: Fleet | None = None
    chosen: list[PoolChoice] = []
    cost = best_cost
    for _ in range(1 if question.whole or question.rate is not None else _ROUNDS):
        found_now = _solved(offered, [item for item, _ in beside], question, cost, placed)
        one = fleet_of([*beside, *(choice.stand for choice in found_now)], classes, question.links)
        now = question.cost_per_request(one.requests_per_s, one.usd_per_hour)
        if now >= cost * (1 - 1e-9):
            break
        fleet, chosen, cost = one, found_now, now
    if fleet is None:
        return None
    chips = [None] * len(beside) + [choice.chips for choice in chosen]
    return assemble(instance, fleet, placed, chips), fleet


def _choices(placed: PlacedShapes, classes: Sequence[PoolClass]) -> list[PoolChoice]:
    """Realised shapes in one pool each, on every set worth trying of the pools where neighbours matter.

    Of the sets of one number of chips those that are equally quick are priced once.
    """
    cluster = placed.instance.cluster
    found = []
    for row in sorted(placed.realised):
        shape, parts = placed.items.shapes.row(row), placed.items.shapes.parts(row)
        (index, count), pools = parts[0], classes[parts[0][0]].pools
        small = len(parts) == 1 and len(pools[0].chips) <= MOST_CHIPS
        if not small or not neighbours_matter(cluster, pools[0].domain):
            continue
        item = Item(row, shape["role"], index, 1, count, 0.0)
        of = cluster.domains[pools[0].domain].granularity
        places = sorted(cluster.chip(chip).position for chip in pools[0].chips)
        rates: dict[tuple[float, ...], float] = {}
        for block in of.blocks(places, count, _SETS):
            kind = block.speed
            if kind not in rates and len(rates) < _KINDS and not placed.clock.over:
                slices = [(pools[0], named(pools[0].domain, block), count)]
                rates[kind] = placed.on(item, slices).requests_per_s
            if rates.get(kind, 0.0) > 0:
                there = replace(item, requests_per_s=rates[kind])
                usd = classes[index].usd_per_hour(count)
                found += [PoolChoice(there, p, tuple(named(p.domain, block)), usd) for p in pools]
    return found


def _solved(
    offered: Sequence[PoolChoice],
    beside: Sequence[Item],
    question: Question,
    cost: float,
    placed: PlacedShapes,
) -> list[PoolChoice]:
    """Choices with the most requests served, or the least money, or most of one for the other."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x[{index}]") for index in range(len(offered))]
    on_chip: dict[str, list[cp_model.IntVar]] = {}
    for one, variable in zip(offered, taken, strict=True):
        for chip in one.chips:
            on_chip.setdefault(chip, []).append(variable)
    for variables in on_chip.values():
        model.add_at_most_one(variables)
    counted = [(one.item, one.usd_per_hour, x) for one, x in zip(offered, taken, strict=True)]
    aim_at(model, counted, beside, question, cost)
    solver, status = placed.clock.run(model, seed=placed.seed, limit_s=_LIMIT_S)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return []
    return [one for one, x in zip(offered, taken, strict=True) if solver.value(x)]


def aim_at(
    model: cp_model.CpModel,
    counted: Sequence[tuple[Item, float, cp_model.IntVar]],
    beside: Sequence[Item],
    question: Question,
    cost: float,
) -> None:
    """Aim at the most requests served, the least money for the rate asked for, or more than ``cost`` would buy.

    ``counted``: what may be taken, dollars per hour of one, and how many are; ``beside``: what serves as well.
    """
    items = [item for item, _, _ in counted]
    numbers = [number for _, _, number in counted]
    scale = _WHOLE / max((item.requests_per_s for item in items), default=1.0)
    most = sum(int(number.proto.domain[-1]) for number in numbers)

    def of_role(role: str) -> cp_model.LinearExpr:
        place = ROLES.index(role)
        own = [int(item.requests_per_s * scale) * (item.role == place) for item in items]
        there = sum(int(item.requests_per_s * scale) for item in beside if item.role == place)
        return cp_model.LinearExpr.weighted_sum(numbers, own) + there

    pooled = model.new_int_var(0, _WHOLE * (most + len(beside) + 1), "pooled")
    model.add(pooled <= of_role("prefill"))
    model.add(pooled <= of_role("decode"))
    served = pooled + of_role("mixed")
    dearest = max((usd for _, usd, _ in counted), default=1.0)
    prices = [round(_WHOLE * usd / dearest) for _, usd, _ in counted]
    money = cp_model.LinearExpr.weighted_sum(numbers, prices)
    if question.rate is not None:
        model.add(served >= int(question.rate * scale) + 1)
        model.minimize(money)
    elif question.whole or cost == float("inf"):
        model.maximize(served)
    else:  # the most served beyond what the money would buy at the cost known
        worth = round(1000 * scale * dearest / _WHOLE / cost)
        model.maximize(1000 * served - worth * money)

r"""A layout of several units that keeps a rate after the loss of any one of them, and does not go down with it.

Replicas stand so that no unit holds much of one role (CP-SAT)::

    maximise R      R <= sum_j r_j x_j - sum_j r_j sum_s y[j, s, u]      of prefill and of decode, for each unit u
    sum_u y[j, s, u] = slices_j(s) x_j        sum_j,s s y[j, s, u] <= chips of a unit

with ``x`` replicas of item ``j``, and ``y`` of their slices of ``s`` chips on unit ``u``. Prefill replicas count for what they
compute of the traffic's own prompts, and for less where prompts would queue. What is left after each different loss is evaluated
and, where a model has traffic, replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ortools.sat.python import cp_model

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.instance import Instance
from costmodel.replay.fleet import Tables
from solver.clock import Clock
from solver.fleet.asked import Fleet, fleet_of
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.plan.bounds.most import asked_of, at_any_rate
from solver.plan.for_traffic import highest_rate
from solver.plan.groups import Start, UnitLayout, less, on_units, start_s
from solver.rounds import Search
from solver.scaling import down
from solver.shapes.shapes import ROLES
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import Fleets
from solver.traffic.losses import remainders
from solver.traffic.ways import as_served
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: capacity of prefill over that of decode that is asked for, until prompts wait no longer than targets allow
_AHEAD = (1.0, 1.06, 1.12, 1.25, 1.45, 1.8)
#: part of what is left in a steady state, from which on more prefill helps no more
_ENOUGH = 0.97
#: items that serve so much less per chip than the best of their role are left out
_NEAR = 0.85
#: rounds of placing what is wanted, work for each in seconds, and parts that a rate is counted in
_LOOKS, _LIMIT_S, _PARTS = 6, 60.0, 1e-4


def surviving(
    model: PlanModel,
    units: PlanUnits,
    number: int,
    off: int,
    start: Start,
    like: Instance,
    *,
    clock: Clock,
    gap: float,
    seed: int,
) -> UnitLayout | None:
    """The layout found on so many units of a model with traffic that keeps most; ``None`` where none keeps any.

    ``like``: a layout's question, for the tokens of a pass and the order of prompts.
    """
    cluster, failed = on_units(units.cluster, number, off)
    asked = asked_of(model, seed)
    scenario = as_served(model.scenario(cluster, failed), like)
    instance = at_any_rate(questions(scenario, asked).spread, "whole")
    search, tables = Search(instance, clock, gap, seed, None), Tables(asked.requests.longest)
    if len(search.classes) > 1 or len(search.classes[0].pools) != number:
        return None
    fleets = Fleets(search, asked.steady, asked.targets, seed, tables=tables)
    kept = _Kept(instance, number, asked, start, seed, tables)
    # where one rank has all chips of a replica, a long prompt is computed sooner and holds up fewer
    for single in (True, False):
        if clock.over or kept.best is not None:
            break
        _more_and_more(fleets, kept, single=single)
    return kept.answer()


def _more_and_more(fleets: Fleets, kept: _Kept, *, single: bool) -> None:
    """Look at layouts each with more prefill than the one before, as long as that helps."""
    search = fleets.search
    for ahead in _AHEAD:
        try:
            fleet = _fleet(fleets, ahead, single=single)
        except (NoFeasibleLayout, NoLayoutInTime):
            return
        if fleet is None or search.clock.over:
            return
        if not kept.more_helps(assemble(search.instance, fleet, search.placed)):
            return


@dataclass
class _Kept:
    """The layout of some units that keeps most by its replays, of those that were looked at."""

    instance: Instance
    number: int
    asked: Asked
    start: Start
    seed: int
    tables: Tables
    rate: float = 0.0
    best: tuple[Layout, list[tuple[int, ...]]] | None = None
    seen: list[tuple[Layout, bool]] = field(default_factory=list)

    def more_helps(self, layout: Layout) -> bool:
        """Whether layouts with more prefill may keep more than this one, which becomes the best where it keeps most.

        They may not where it keeps what its steady state does: its prompts need not wait.
        """
        known = next((helps for own, helps in self.seen if own == layout), None)
        if known is None:
            known = self._more_helps(layout)
            self.seen.append((layout, known))
        return known

    def _more_helps(self, layout: Layout) -> bool:
        instance = self.instance
        evaluation = evaluate(instance, layout)
        if evaluation.violations or not evaluation.requests_per_s:
            return True
        kept = remainders(instance, layout, len(instance.cluster.domains[0].chips))
        if not all(kept):
            return True  # a loss leaves nothing that serves
        left = {own: evaluate(instance, less(layout, own)).requests_per_s or 0.0 for own in kept}
        # what is likely to miss first
        order = sorted(kept, key=lambda own: left[own])
        least = left[order[0]]
        if least <= self.rate:
            return False
        after = [less(layout, own) for own in order]
        rate = highest_rate(instance, after, self.asked, least, self.seed, self.tables, self.rate)
        if rate > self.rate:
            self.rate, self.best = rate, (layout, order)
        return rate < _ENOUGH * least

    def answer(self) -> UnitLayout | None:
        """The best, with what it carries before a loss; ``None`` where none keeps any."""
        if self.best is None:
            return None
        (layout, order), instance, asked = self.best, self.instance, self.asked
        evaluation = evaluate(instance, layout)
        steady = evaluation.requests_per_s or 0.0
        whole = highest_rate(instance, [layout], asked, steady, self.seed, self.tables, self.rate)
        longest = float(asked.requests.output_tokens.max()) * (evaluation.tpot_s or 0.0)
        return UnitLayout(
            instance, layout, self.number, steady, max(whole, self.rate),
            start_s(instance, evaluation, layout, self.start), longest, self.rate, tuple(order),
        )  # fmt: skip


def _fleet(fleets: Fleets, ahead: float, *, single: bool) -> Fleet | None:
    """Placed replicas on the units; ``ahead``: times the capacity of decode that prefill has; ``single``: each prefill replica has one rank."""
    search, fleet = fleets.search, None
    several = (search.shapes.role == ROLES.index("prefill")) & (search.shapes.attention_dp > 1)
    for _ in range(_LOOKS):
        scale = fleets.scale({"prefill": ahead, "decode": 1.0, "mixed": 1.0})
        if single:
            scale[several] = 0.0
        rates, leaving = search.hoped_rates()
        stands = _stands(search.items.best(rates * scale, leaving * scale), search)
        fresh = sorted({item.shape for item, _ in stands} - set(search.placed.realised))
        search.place(fresh)
        pools = search.classes[0].pools
        placed = [
            (search.placed.sending(item), tuple(pools[unit] for unit in own))
            for item, own in stands
            if item.shape in search.placed.realised
        ]
        fleet = fleet_of(placed, search.classes) if placed else None
        # prompts of unlike lengths take some replicas longer than the mean says
        measured = fleet is not None and fleets.measure(fleet)
        if not (fresh or measured):
            break
    return fleet


def _stands(items: Sequence[Item], search: Search) -> list[tuple[Item, list[int]]]:
    """Replicas with the units that they stand on; none where no way was found."""
    best: dict[int, float] = {}
    for item in items:
        best[item.role] = max(best.get(item.role, 0.0), item.requests_per_s / item.chips)
    items = [
        item
        for item in items
        if ROLES[item.role] != "mixed"
        and item.requests_per_s >= _NEAR * best[item.role] * item.chips
    ]
    if len({item.role for item in items}) < 2:
        return []
    size, units = search.classes[0].size, len(search.classes[0].pools)
    unit = _PARTS * max(item.requests_per_s for item in items)
    cp = cp_model.CpModel()
    rates = [down(item.requests_per_s, unit) for item in items]
    most = [units * size // item.chips for item in items]
    number = [cp.new_int_var(0, own, "replicas") for own in most]
    slices: dict[tuple[int, int], list[cp_model.IntVar]] = {}
    for place, item in enumerate(items):
        for chips, count in item.slices_in(0).items():
            own = [
                cp.new_int_var(0, min(size // chips, most[place]), "slices") for _ in range(units)
            ]
            slices[place, chips] = own
            cp.add(sum(own) == count * number[place])
            for one in own:
                cp.add(one <= number[place])  # a replica has one of its slices on a unit
    left = cp.new_int_var(0, sum(r * n for r, n in zip(rates, most, strict=True)), "left")
    for u in range(units):
        cp.add(sum(chips * own[u] for (_, chips), own in slices.items()) <= size)
    for role in best:
        places = [place for place, item in enumerate(items) if item.role == role]
        if not places:
            continue
        served = sum(rates[place] * number[place] for place in places)
        held = [
            sum(rates[place] * own[u] for (place, _), own in slices.items() if place in places)
            for u in range(units)
        ]
        for lost in held:
            cp.add(left <= served - lost)
        if ROLES[role] == "decode":  # units are alike
            for more, fewer in pairwise(held):
                cp.add(more >= fewer)
    cp.maximize(left)
    solver, status = search.clock.run(cp, seed=search.seed, limit_s=_LIMIT_S, linearize=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return []
    free = {
        key: Counter({u: solver.value(one) for u, one in enumerate(own)})
        for key, own in slices.items()
    }
    found: list[tuple[Item, list[int]]] = []
    for place, item in enumerate(items):
        for _ in range(solver.value(number[place])):
            own_units: list[int] = []
            for _, chips in item.parts:
                # the unit that has most slices left, so that no two of a replica need one unit
                left_over = free[place, chips]
                at = max((u for u in left_over if u not in own_units), key=lambda u: left_over[u])
                if not left_over[at]:
                    return []
                left_over[at] -= 1
                own_units.append(at)
            found.append((item, own_units))
    return found

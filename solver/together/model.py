r"""Fleets of several models on one cluster in one CP-SAT model.

Each model has the variables and rules of a fleet of its own (:mod:`solver.fleet`); a chip of a pool is in one of them::

    sum_m load_m[d] <= size_d                     for every pool d

Objective: least dollars per hour for given rates, or the largest factor ``x`` with ``rate_m >= x r_m`` for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from ortools.sat.python import cp_model

from solver.bounds.apart import rate_bound
from solver.fleet.asked import Fleet, Question, Stock, fleet_of
from solver.fleet.best import links_may_bind
from solver.fleet.items import Item
from solver.fleet.model import Effort
from solver.fleet.reading import Reader, serving
from solver.fleet.variables import FleetVariables
from solver.rules import rules
from solver.shapes.pools import PoolClass
from topology.errors import VerificationError

#: parts of the largest factor that CP-SAT counts in, and the most of them that a fleet's relaxation serves
_PARTS, _MOST_PARTS = 2**20, 2**30


@dataclass(frozen=True)
class Division:
    """Fleets of all models, each on chips of its own, and a bound on any such division (``None``: not proven).

    ``bound``: dollars per hour at least, or the largest factor of the rates at most. No fleets and a bound of ``inf`` or
    0: there is none.
    """

    fleets: tuple[Fleet, ...] | None
    bound: float | None


#: nothing found and nothing proven
UNKNOWN = Division(None, None)


def least_money(
    items: Sequence[Sequence[Item]],
    classes: Sequence[PoolClass],
    questions: Sequence[Question],
    run: Effort,
) -> Division:
    """Fleets of these items, one for each question's rate, that cost least together."""
    stocks = _stocks(items, classes, questions)
    if stocks is None:
        return Division(None, float("inf"))
    model = _Model(stocks, run)
    if not model.told_apart:
        return UNKNOWN
    model.cp.minimize(sum(fleet.cost for fleet in model.fleets))
    solver, status = model.solved()
    if status == cp_model.INFEASIBLE:
        return Division(None, float("inf"))
    if solver is None:
        return UNKNOWN
    return Division(model.read(solver), solver.best_objective_bound * model.fleets[0].usd_unit)


def most_headroom(
    items: Sequence[Sequence[Item]],
    classes: Sequence[PoolClass],
    questions: Sequence[Question],
    most: float,
    run: Effort,
) -> Division:
    """Fleets of these items that serve the largest factor of all questions' rates, ``most`` at most."""
    rates = [question.rate or 0.0 for question in questions]
    free = [replace(question, rate=None) for question in questions]
    stocks = _stocks(items, classes, free)
    if stocks is None:
        return Division(None, 0.0)
    served = max(one.relaxed / rate for one, rate in zip(stocks, rates, strict=True))
    part = max(most / _PARTS, served / _MOST_PARTS)
    # in such units every rate may be compared with the factor as it is: large coefficients between them were seen to
    # make CP-SAT's presolve lose the optimum
    model = _Model(stocks, run, [rate * part for rate in rates])
    if not model.told_apart:
        return UNKNOWN
    factor = model.cp.new_int_var(0, ceil(most / part), "factor")
    for fleet in model.fleets:
        model.cp.add(fleet.rate >= factor)
    model.cp.maximize(factor)
    solver, status = model.solved()
    if status == cp_model.INFEASIBLE:
        return Division(None, 0.0)
    if solver is None:
        return UNKNOWN
    return Division(model.read(solver), min(most, solver.best_objective_bound * part))


def _stocks(
    items: Sequence[Sequence[Item]], classes: Sequence[PoolClass], questions: Sequence[Question]
) -> list[Stock] | None:
    """What each fleet is chosen from (``None``: some question is not met even by the relaxation of its own fleet)."""
    stocks = []
    for own, question in zip(items, questions, strict=True):
        if not own:
            return None
        linked = links_may_bind(own, classes, question.links)
        relaxed, met = rate_bound(own, classes, question.links if linked else None)
        if relaxed <= 0 or (question.rate is not None and relaxed < question.rate * (1 - 1e-9)):
            return None
        stocks.append(Stock(own, classes, question, relaxed, met, linked))
    return stocks


class _Model:
    """The variables of every fleet and what they share."""

    def __init__(self, stocks: Sequence[Stock], run: Effort, units: Sequence[float] | None = None):
        """``units``: requests/s that each fleet's rates are counted in."""
        self.cp, self.run = cp_model.CpModel(), run
        own: Sequence[float | None] = [None] * len(stocks) if units is None else units
        self.fleets = [
            FleetVariables(stock, self.cp, unit) for stock, unit in zip(stocks, own, strict=True)
        ]
        #: whether each pool has variables of its own, so that chips can be shared out
        self.told_apart = all(fleet.complete for fleet in self.fleets)
        if not self.told_apart:
            return
        for fleet in self.fleets:
            for rule in rules().values():
                if hasattr(rule, "constrain"):
                    rule.constrain(fleet)
            self.cp.add(fleet.rate <= fleet.ceiling)
        self._share_chips(stocks[0].classes)

    def _share_chips(self, classes: Sequence[PoolClass]) -> None:
        """Every pool's chips once; pools that no link tells apart in the order of the chips in use."""
        for pool_class in classes:
            loads = [
                sum(fleet.loads[pool_class.index][pool] for fleet in self.fleets)
                for pool in range(len(pool_class.pools))
            ]
            for load in loads:
                self.cp.add(load <= pool_class.size)
            if not any(fleet.linked for fleet in self.fleets):
                for earlier, later in pairwise(loads):
                    self.cp.add(earlier >= later)

    def solved(self) -> tuple[cp_model.CpSolver | None, int]:
        """The solver with its answer (``None``: without one), and its status."""
        run = self.run
        solver, status = run.clock.run(
            self.cp, seed=run.seed, limit_s=run.limit_s, linearize=True, accept_gap=run.accept_gap
        )
        if status == cp_model.MODEL_INVALID:
            raise VerificationError("the fleet model of several models is not valid")
        return (solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None), status

    def read(self, solver: cp_model.CpSolver) -> tuple[Fleet, ...]:
        """The fleets of an answer."""
        run = self.run
        return tuple(
            fleet_of(
                serving(Reader(fleet, run.clock, run.limit_s / 4, run.seed).stands(solver)),
                fleet.classes,
                fleet.links,
            )
            for fleet in self.fleets
        )

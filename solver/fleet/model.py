r"""The fleet model (CP-SAT): how many replicas of which shape stand in which pool.

What is decided is in :class:`solver.fleet.variables.FleetVariables`, one constraint per rule in
:mod:`solver.rules`; order and known bounds are added here. Classes of several pools are first *aggregated*: the
answer is then packed onto pools, and only if that fails is the class modelled pool by pool. Objective: most
requests per second (whole cluster paid), least cost for a rate, or least cost per request (chips used are paid)
by Dinkelbach's method on ``price * R - cost``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.fleet.asked import Fleet, Stock
from solver.fleet.reading import Reader
from solver.fleet.variables import FleetVariables
from solver.rules import rules
from solver.scaling import up
from topology.errors import VerificationError

#: part of a model's time for a bound alone
_FOR_A_BOUND = 0.25


class _Infeasible(Exception):
    """CP-SAT proved that no fleet of the items satisfies the question."""


@dataclass(frozen=True)
class Effort:
    """How long and with which seed a model is solved."""

    clock: Clock
    limit_s: float
    seed: int
    accept_gap: float


class FleetModel:
    """One CP-SAT model over items and pools; objectives are set per call."""

    def __init__(self, stock: Stock, run: Effort):
        self.fleet = FleetVariables(stock)
        self.model, self.run = self.fleet.model, run
        self.complete = self.fleet.complete
        self.reader = Reader(self.fleet, run.clock, run.limit_s / 4, run.seed)
        for rule in rules().values():
            if hasattr(rule, "constrain"):
                rule.constrain(self.fleet)
        self.model.add(self.fleet.rate <= self.fleet.ceiling)
        for loads in self._alike():
            for earlier, later in pairwise(loads):
                self.model.add(earlier >= later)  # pools that are alike: order them by chips used

    def _alike(self) -> list[list[cp_model.LinearExprT]]:
        """Chips used in pools that cannot be told apart: of a class, and of one unit where links count."""
        found: dict[tuple[int, int], list[cp_model.LinearExprT]] = {}
        for index, loads in self.fleet.loads.items():
            for pool, load in zip(self.fleet.classes[index].pools, loads, strict=True):
                unit = 0
                if self.fleet.linked and self.fleet.links is not None:
                    unit = int(self.fleet.links.uplinks.unit_of[pool.domain])
                    if self.fleet.links.alone(unit):
                        unit = -1
                found.setdefault((index, unit), []).append(load)
        return list(found.values())

    def cap_rate(self, most: float) -> None:
        """State a bound proven before, so that the search can stop when it is met."""
        # each replica's rate was rounded up by less than a unit
        chips = sum(len(c.pools) * c.size for c in self.fleet.classes)
        self.model.add(self.fleet.rate <= up(most, self.fleet.unit) + chips)

    def forbid(self, counts: dict[int, int]) -> None:
        """State that these replicas cannot be packed together, hence no more of them either."""
        short = []
        for place, count in sorted(counts.items()):
            if count:
                fewer = self.model.new_bool_var(f"fewer[{place},{count}]")
                self.model.add(self.fleet.count[place] < count).only_enforce_if(fewer)
                short.append(fewer)
        self.model.add_bool_or(short)

    def _solve(self, share: float = 1.0) -> tuple[cp_model.CpSolver | None, float | None]:
        """The solver if it has a fleet, and its bound on the objective (``None``: nothing proven).

        A solve that was stopped before it found anything reports no bound worth trusting. Raises
        :class:`_Infeasible` where no fleet exists.
        """
        run = self.run
        solver, status = run.clock.run(
            self.model,
            seed=run.seed,
            limit_s=run.limit_s * share,
            linearize=True,
            accept_gap=run.accept_gap,
        )
        if status == cp_model.INFEASIBLE:
            raise _Infeasible
        if status == cp_model.MODEL_INVALID:
            raise VerificationError("the fleet model is not valid")
        if status == cp_model.UNKNOWN:
            return None, None
        return solver, float(solver.best_objective_bound)

    def most_rate(self) -> tuple[Fleet | None, float | None]:
        """Most requests per second, and a bound: no fleet of the items serves more."""
        self.model.maximize(self.fleet.rate)
        try:
            solver, bound = self._solve()
        except _Infeasible:
            return None, 0.0
        return self.reader.fleet(solver), None if bound is None else bound * self.fleet.unit

    def least_cost(self, rate: float) -> tuple[Fleet | None, float | None]:
        """Least cost that serves the rate asked for, and a bound; both per request per second asked for."""
        self.model.minimize(self.fleet.cost)
        try:
            solver, bound = self._solve()
        except _Infeasible:
            return None, float("inf")
        found = None if bound is None else bound * self.fleet.usd_unit / rate
        return self.reader.fleet(solver), found

    def least_bound(self, rate: float) -> float:
        """Least cost per request per second asked for, by the bound alone; 0: nothing proven, ``inf``: no fleet serves it."""
        self.model.minimize(self.fleet.cost)
        try:
            _, bound = self._solve(_FOR_A_BOUND)
        except _Infeasible:
            return float("inf")
        return 0.0 if bound is None else bound * self.fleet.usd_unit / rate

    def least_ratio(self, floor: float) -> tuple[Fleet | None, float]:
        """Least dollars per hour and request per second, and a bound on it."""
        best: Fleet | None = None
        price, bound = float("inf"), floor
        usd_unit, unit = self.fleet.usd_unit, self.fleet.unit
        least = min(item.requests_per_s for item in self.fleet.items)
        for _ in range(12):
            if best is None:
                self.model.maximize(self.fleet.rate)
            else:
                # price * R - cost in one integer unit, rounded in favour of R
                weight = up(price * unit, usd_unit * 2.0**-20)
                self.model.maximize(weight * self.fleet.rate - 2**20 * self.fleet.cost)
            try:
                solver, proven = self._solve(0.25)
            except _Infeasible:
                return None, float("inf")
            fleet = self.reader.fleet(solver)
            if fleet is None or proven is None:
                return best, bound
            if fleet.requests_per_s <= 0:
                return best, bound
            ratio = fleet.usd_per_hour / fleet.requests_per_s
            if best is not None:
                # every fleet: price * R - cost <= slack; R is at least the smallest rate, or so small
                # (where links hold it back) that the cheapest replica alone costs the price
                slack = proven * usd_unit * 2.0**-20
                reach = min(least, self._cheapest() / price)
                bound = max(bound, price - max(slack, 0.0) / reach)
                if ratio >= price * (1 - 1e-12):
                    return best, bound
            best, price = fleet, ratio
        return best, bound

    def _cheapest(self) -> float:
        """Dollars per hour of the cheapest replica."""
        classes = self.fleet.classes
        return min(
            sum(classes[index].usd_per_hour(chips) for index, chips in item.parts)
            for item in self.fleet.items
        )

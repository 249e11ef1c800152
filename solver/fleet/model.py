r"""The fleet model (CP-SAT): how many replicas of which shape stand in which pool.

Within a pool, replicas of one role that stand in that pool alone compete for chips only, so the best
that ``a`` chips can do for a role is a table ``T_role(a)`` (a knapsack, solved before). For one pool
or two, what is left to decide is small: per pool ``d`` and role the chips ``a[d, role]`` (one-hot).
For more, each item has its replicas ``q[i]`` and slices ``z[i, d]``. Rules::

    sum_role a[d, role] + sum_i slice_chips_i z[i, d] <= size_d       chips of a pool
    sum_d z[i, d] = slices_i q[i],   z[i, d] <= q[i]        slices of a replica in distinct pools
    x <= all prefill rates,   x <= all decode rates          the pools meet at the smaller rate

A span has slices of several sizes, or in several classes; each size has its own ``z``.

Classes of several pools are first *aggregated*: only the number of replicas is decided, under the
chips of all pools together and bin-packing cuts; the answer is then packed onto pools, and only if
that fails is the class modelled pool by pool. Classes of many pools are filled by patterns (see
:mod:`solver.fleet.patterns`). Objective: most requests per second (whole cluster paid), least cost for a rate, or least cost per request (chips
used are paid) by Dinkelbach's method on ``price * R - cost``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.bounds.apart import Packing, best_packing
from solver.clock import Clock
from solver.fleet.asked import Fleet
from solver.fleet.items import Item
from solver.fleet.packing import packing_cuts
from solver.fleet.patterns import pool_patterns
from solver.fleet.reading import read_fleet
from solver.scaling import rate_unit, up
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES
from topology.errors import VerificationError

#: pools of one class up to which replicas are chosen by tables of chips rather than one by one
TABLED = 2

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


class _Infeasible(Exception):
    """CP-SAT proved that no fleet of the items satisfies the question."""


@dataclass(frozen=True)
class Run:
    """How long and with which seed a model is solved."""

    clock: Clock
    limit_s: float
    seed: int
    accept_gap: float


class FleetModel:
    """One CP-SAT model over items and pools; objectives are set per call."""

    def __init__(
        self,
        items: Sequence[Item],
        classes: Sequence[PoolClass],
        met: list[dict[int, list[int]]],
        relaxed: float,
        aggregated: bool,
        run: Run,
    ):
        self.items = items
        self.classes = classes
        self.model = cp_model.CpModel()
        self.run = run
        self.aggregated: set[int] = set()
        #: whether every fleet is a solution of the model (then its bound is global)
        self.complete = all(c.few for c in classes)
        self.unit = rate_unit(relaxed)
        self.rates: dict[int, list[Any]] = {role: [] for role in range(3)}
        self.usd_unit = max(c.chip.usd_per_hour for c in classes) * 1e-6 or 1.0
        self.costs: list[Any] = []
        self.local: dict[tuple[int, int, int, int], list[tuple[int, cp_model.IntVar]]] = {}
        self.tables: dict[tuple[int, int, int], tuple[Packing, list[int]]] = {}
        #: slices of an item, by its place, their chips and the class and pool they lie in
        self.slices: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.count: dict[int, cp_model.IntVar] = {}
        self.patterns: dict[int, list[tuple[Counter[int], cp_model.IntVar]]] = {}
        for pool_class in classes:
            own = [p for p, item in enumerate(items) if item.slices_in(pool_class.index)]
            if aggregated and len(pool_class.pools) > TABLED and pool_class.few:
                self._aggregate(pool_class, own)
            elif pool_class.few:
                self._pool_by_pool(pool_class, own)
            else:
                self._by_pattern(pool_class, own, met)
        ceiling = (
            up(relaxed * (1 + 1e-9), self.unit)
            + len(items)
            + sum(len(c.pools) * c.size for c in classes)
        )
        pooled = self.model.new_int_var(0, ceiling, "pooled_rate")
        self.model.add(pooled <= sum(self.rates[_PREFILL]))
        self.model.add(pooled <= sum(self.rates[_DECODE]))
        self.rate: Any = pooled + sum(self.rates[_MIXED])
        self.model.add(self.rate <= ceiling)
        self.cost: Any = sum(self.costs)

    def cap_rate(self, most: float) -> None:
        """State a bound proven before, so that the search can stop when it is met."""
        # each replica's rate was rounded up by less than a unit
        chips = sum(len(c.pools) * c.size for c in self.classes)
        self.model.add(self.rate <= up(most, self.unit) + chips)

    def _usd(self, pool_class: PoolClass, chips: int) -> int:
        """Cost in units, rounded down: the model is never dearer than the truth."""
        return int(pool_class.chip.usd_per_hour * chips / self.usd_unit)

    def _count(self, place: int) -> cp_model.IntVar:
        """Replicas of an item; with the first call its rate is added up."""
        if place not in self.count:
            item = self.items[place]
            most = min(
                len(pool_class.pools) * (pool_class.size // min(sizes)) // sizes.total()
                for pool_class in self.classes
                if (sizes := item.slices_in(pool_class.index))
            )
            self.count[place] = self.model.new_int_var(0, most, f"q[{place}]")
            self.rates[item.role].append(up(item.requests_per_s, self.unit) * self.count[place])
        return self.count[place]

    def _aggregate(self, pool_class: PoolClass, own: list[int]) -> None:
        self.aggregated.add(pool_class.index)
        pools = len(pool_class.pools)
        sizes = {p: self.items[p].slices_in(pool_class.index) for p in own}
        cuts = [{size: size for size in range(1, pool_class.size + 1)} | {0: pool_class.size}]
        for weights in cuts + packing_cuts(pool_class):
            load = sum(
                sum(weights[chips] * number for chips, number in sizes[p].items()) * self._count(p)
                for p in own
            )
            self.model.add(load <= pools * weights[0])
        for place in own:
            self._room_for_span(place, own, pool_class)
        chips = sum(
            sum(chips * number for chips, number in sizes[p].items()) * self._count(p) for p in own
        )
        self.costs.append(self._usd(pool_class, 1) * chips)

    def _room_for_span(self, place: int, own: list[int], pool_class: PoolClass) -> None:
        """A replica over several pools needs as many with room: slices that leave none take others."""
        sizes = self.items[place].slices_in(pool_class.index)
        if sizes.total() == 1:
            return
        used = self.model.new_bool_var(f"used[{place},{pool_class.index}]")
        self.model.add(self._count(place) == 0).only_enforce_if(~used)
        # slices of more than half a pool lie in pools of their own
        room = max(pool_class.size - min(sizes), pool_class.size // 2)
        taken: Any = 0
        for p in own:
            if p != place:
                blocking = self.items[p].slices_in(pool_class.index)
                wide = sum(number for chips, number in blocking.items() if chips > room)
                taken += wide * self._count(p) if wide else 0
        self.model.add(sizes.total() + taken <= len(pool_class.pools)).only_enforce_if(used)

    def forbid(self, counts: dict[int, int]) -> None:
        """State that these replicas cannot be packed together, hence no more of them either."""
        short = []
        for place, count in sorted(counts.items()):
            if count:
                fewer = self.model.new_bool_var(f"fewer[{place},{count}]")
                self.model.add(self.count[place] < count).only_enforce_if(fewer)
                short.append(fewer)
        self.model.add_bool_or(short)

    def _pool_by_pool(self, pool_class: PoolClass, own: list[int]) -> None:
        model = self.model
        pools = range(len(pool_class.pools))
        chips: list[list[Any]] = [[] for _ in pools]
        tabled = {1, len(pools)} if len(pools) <= TABLED else set()
        for role, slices in product(range(3), sorted(tabled)):
            places = [
                p
                for p in own
                if self.items[p].role == role
                and self.items[p].slices == slices
                and not self.items[p].span
            ]
            if not places:
                continue
            packing = best_packing(
                np.array([self.items[p].requests_per_s for p in places]),
                np.array([self.items[p].slice_chips for p in places], dtype=np.int64),
                pool_class.size,
            )
            self.tables[pool_class.index, role, slices] = (packing, places)
            steps = [0] + [int(c) for c in np.flatnonzero(np.diff(packing.best) > 0) + 1]
            # items in one pool are chosen pool by pool, items over all pools once for all
            for group in [[pool] for pool in pools] if slices == 1 else [list(pools)]:
                choice = [
                    (step, model.new_bool_var(f"a[{group},{ROLES[role]}={step}]")) for step in steps
                ]
                model.add_exactly_one(variable for _, variable in choice)
                taken = sum(step * variable for step, variable in choice)
                for pool in group:
                    self.local[pool_class.index, pool, role, slices] = choice
                    chips[pool].append(taken)
                self.rates[role].append(
                    sum(up(packing.best[step], self.unit) * variable for step, variable in choice)
                )
        for place in own:
            item = self.items[place]
            if item.slices in tabled and not item.span:
                continue
            count = self._count(place)
            sizes = item.slices_in(pool_class.index)
            for size, number in sorted(sizes.items()):
                here = []
                for pool in pools:
                    name = f"z[{place},{size},{pool_class.index},{pool}]"
                    variable = model.new_int_var(0, pool_class.size // size, name)
                    self.slices[place, size, pool_class.index, pool] = variable
                    here.append(variable)
                    chips[pool].append(size * variable)
                model.add(sum(here) == number * count)
            if sizes.total() > 1:
                for pool in pools:
                    held = [self.slices[place, k, pool_class.index, pool] for k in sizes]
                    model.add(sum(held) <= count)
        loads = [sum(used) for used in chips]
        for load in loads:
            model.add(load <= pool_class.size)
        for earlier, later in pairwise(loads):
            model.add(earlier >= later)  # pools of a class are alike: order them by chips used
        self.costs.append(self._usd(pool_class, 1) * sum(loads))

    def _by_pattern(
        self, pool_class: PoolClass, own: list[int], met: list[dict[int, list[int]]]
    ) -> None:
        model = self.model
        seeds = [found.get(pool_class.index, []) for found in met]
        patterns = [
            (uses, model.new_int_var(0, len(pool_class.pools), f"y[{number}]"))
            for number, uses in enumerate(pool_patterns(self.items, own, pool_class, seeds))
        ]
        self.patterns[pool_class.index] = patterns
        model.add(sum(variable for _, variable in patterns) <= len(pool_class.pools))
        for place in own:
            item = self.items[place]
            using = [(uses[place], variable) for uses, variable in patterns if uses[place]]
            if not using:
                continue
            count = self._count(place)
            # a pool may use less than its pattern holds, never more
            model.add(item.slices * count <= sum(times * variable for times, variable in using))
            if item.slices > 1:
                for times, variable in using:
                    used = model.new_bool_var(f"used[{place},{variable.name}]")
                    model.add(variable == 0).only_enforce_if(~used)
                    # distinct pools: none holds more slices of an item than it has replicas
                    model.add(count >= times).only_enforce_if(used)
            self.costs.append(self._usd(pool_class, item.chips) * count)

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
        self.model.maximize(self.rate)
        try:
            solver, bound = self._solve()
        except _Infeasible:
            return None, 0.0
        return read_fleet(self, solver), None if bound is None else bound * self.unit

    def least_cost(self, rate: float) -> tuple[Fleet | None, float | None]:
        """Least cost that serves ``rate``, and a bound; both per request per second asked for."""
        # a fleet that serves at all counts for one unit
        self.model.add(self.rate >= max(1, int(rate / self.unit)))
        self.model.minimize(self.cost)
        try:
            solver, bound = self._solve()
        except _Infeasible:
            return None, float("inf")
        return read_fleet(self, solver), None if bound is None else bound * self.usd_unit / rate

    def least_ratio(self, floor: float) -> tuple[Fleet | None, float]:
        """Least dollars per hour and request per second, and a bound on it."""
        best: Fleet | None = None
        price, bound = float("inf"), floor
        least = min(item.requests_per_s for item in self.items)
        for _ in range(12):
            if best is None:
                self.model.maximize(self.rate)
            else:
                # price * R - cost in one integer unit, rounded in favour of R
                weight = up(price * self.unit, self.usd_unit * 2.0**-20)
                self.model.maximize(weight * self.rate - 2**20 * self.cost)
            try:
                solver, proven = self._solve(0.25)
            except _Infeasible:
                return None, float("inf")
            fleet = read_fleet(self, solver)
            if fleet is None or proven is None:
                return best, bound
            if fleet.requests_per_s <= 0:
                return best, bound
            ratio = fleet.usd_per_hour / fleet.requests_per_s
            if best is not None:
                # every fleet: price * R - cost <= slack, and R is at least the smallest rate
                slack = proven * self.usd_unit * 2.0**-20
                bound = max(bound, price - max(slack, 0.0) / least)
                if ratio >= price * (1 - 1e-12):
                    return best, bound
            best, price = fleet, ratio
        return best, bound

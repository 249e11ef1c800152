"""What a fleet model decides: replicas of items, slices in pools, fillings; no constraint in here.

Within a pool, replicas of one role that stand in that pool alone compete for chips only, so the best
that ``a`` chips can do for a role is a table ``T_role(a)`` (a knapsack, solved before). For one pool
or two, what is left to decide is small: per pool ``d`` and role the chips ``a[d, role]`` (one-hot).
For more, each item has its replicas ``q[i]`` and slices ``z[i, d]``; a span has slices of several sizes, or in
several classes, and each size has its own ``z``. Classes of several pools may be *aggregated*: only the number
of replicas is decided. Classes of many pools are filled by patterns (:mod:`solver.fleet.patterns`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.bounds.packing import Packing, best_packing
from solver.fleet.asked import Links, Stock
from solver.fleet.items import Item
from solver.fleet.patterns import pool_patterns
from solver.scaling import rate_unit, up
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES

#: pools of one class up to which replicas are chosen by tables of chips rather than one by one
TABLED = 2
#: pools of one class up to which links between domains are modelled pool by pool
NAMED = 8

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))

#: an expression of CP-SAT, or a number
Linear = Any


@dataclass
class Cut:
    """What stands in one domain, or in all pools that one pattern fills (``times`` of them): rates in units.

    ``supply`` prefill inside the domain (``leaving``: of which KV may leave), ``demand`` decode; ``wide_*`` the
    shares of replicas over several domains. ``sent`` and ``sent_far``: bytes/s of passes and how often.
    ``slices``: those of replicas over several domains.
    """

    name: str
    domain: int
    named: bool
    times: Linear = 1
    supply: list[Linear] = field(default_factory=list)
    leaving: list[Linear] = field(default_factory=list)
    demand: list[Linear] = field(default_factory=list)
    wide_supply: list[Linear] = field(default_factory=list)
    wide_demand: list[Linear] = field(default_factory=list)
    sent: list[tuple[float, Linear]] = field(default_factory=list)
    sent_far: list[tuple[float, Linear]] = field(default_factory=list)
    slices: list[Linear] = field(default_factory=list)


class FleetVariables:
    """Variables of one CP-SAT model over items and pools, and what they add up to.

    ``rates`` by role and ``costs``; ``loads[class]``: chips used in each pool; ``cuts``: what links see.
    """

    def __init__(
        self, stock: Stock, model: cp_model.CpModel | None = None, unit: float | None = None
    ):
        """``model``: another fleet's on the same chips, to which this one is added; a new one unless it is given.

        ``unit``: requests/s of one integer unit; by default so many that rates are exact to one part in 16 million.
        """
        items, classes, linked, relaxed = stock.items, stock.classes, stock.linked, stock.relaxed
        self.items, self.classes = items, classes
        self.model = cp_model.CpModel() if model is None else model
        self.question, self.asked = stock.question, stock.question.rate
        self.links: Links | None = stock.question.links
        #: whether links may bind, so that flows are modelled
        self.linked = linked
        self.aggregated: set[int] = set()
        #: whether every fleet is a solution of the model (then its bound is global)
        self.complete = True
        self.unit = rate_unit(relaxed) if unit is None else unit
        self.rates: dict[int, list[Linear]] = {role: [] for role in range(3)}
        self.usd_unit = max(max(c.prices) for c in classes) * 1e-6 or 1.0
        self.costs: list[Linear] = []
        self.loads: dict[int, list[Linear]] = {}
        self.local: dict[tuple[int, int, int, int], list[tuple[int, cp_model.IntVar]]] = {}
        self.tables: dict[tuple[int, int, int], tuple[Packing, list[int]]] = {}
        #: slices of an item, by its place, their chips and the class and pool they lie in
        self.slices: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.count: dict[int, cp_model.IntVar] = {}
        self.patterns: dict[int, list[tuple[Counter[int], cp_model.IntVar]]] = {}
        self._named: dict[int, Cut] = {}
        self._patterned: list[Cut] = []
        for pool_class in classes:
            few = pool_class.few and (not linked or len(pool_class.pools) <= NAMED)
            few = few and not stock.patterned
            if stock.counted or (stock.aggregated and len(pool_class.pools) > TABLED and few):
                self._aggregate(pool_class)
            elif few:
                self._pool_by_pool(pool_class)
            else:
                self.complete = False
                self._by_pattern(pool_class, stock.met)
        self.ceiling = (
            up(relaxed * (1 + 1e-9), self.unit)
            + len(items)
            + sum(len(c.pools) * c.size for c in classes)
        )
        self.pooled = self.model.new_int_var(0, self.ceiling, "pooled_rate")
        self.rate: Linear = self.pooled + sum(self.rates[_MIXED])
        self.cost: Linear = sum(self.costs)

    @property
    def cuts(self) -> list[Cut]:
        """Every cut that links are modelled at."""
        return [*self._named.values(), *self._patterned]

    def own(self, pool_class: int) -> list[int]:
        """Places of the items that have slices in pools of a class."""
        return [p for p, item in enumerate(self.items) if item.slices_in(pool_class)]

    def _replicas(self, place: int) -> cp_model.IntVar:
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

    def _pay(self, pool_class: PoolClass, chips: Linear, pools: int) -> None:
        """Cost of chips in ``pools`` of a class, cheapest first, rounded down: never dearer than the truth."""
        prices = Counter(pool_class.prices)
        units = {price: int(price / self.usd_unit) for price in prices}
        if len(prices) == 1:
            self.costs.append(next(iter(units.values())) * chips)
            return
        parts = {
            price: self.model.new_int_var(0, pools * number, f"paid[{pool_class.index},{price}]")
            for price, number in prices.items()
        }
        self.model.add(sum(parts.values()) == chips)
        self.costs.append(sum(units[price] * part for price, part in parts.items()))

    def _aggregate(self, pool_class: PoolClass) -> None:
        index = pool_class.index
        self.aggregated.add(index)
        chips = [
            sum(n * times for n, times in self.items[p].slices_in(index).items())
            * self._replicas(p)
            for p in self.own(index)
        ]
        self._pay(pool_class, sum(chips), len(pool_class.pools))

    def _pool_by_pool(self, pool_class: PoolClass) -> None:
        index, pools = pool_class.index, range(len(pool_class.pools))
        chips: list[list[Linear]] = [[] for _ in pools]
        tabled = self._tabled(pool_class)
        for role, slices in product(range(3), sorted(tabled)):
            self._table(pool_class, role, slices, chips)
        for place in self.own(index):
            item = self.items[place]
            if item.slices in tabled and not item.span:
                continue
            self._replicas(place)
            for size in sorted(item.slices_in(index)):
                for pool in pools:
                    name = f"z[{place},{size},{index},{pool}]"
                    variable = self.model.new_int_var(0, pool_class.size // size, name)
                    self.slices[place, size, index, pool] = variable
                    chips[pool].append(size * variable)
                    self._stand(item, (index, size), pool_class.pools[pool].domain, variable)
        self.loads[index] = [sum(used) for used in chips]
        for load in self.loads[index] if len(set(pool_class.prices)) > 1 else ():
            self._pay(pool_class, load, 1)
        if len(set(pool_class.prices)) == 1:
            self._pay(pool_class, sum(self.loads[index]), len(pool_class.pools))

    def _tabled(self, pool_class: PoolClass) -> set[int]:
        """Numbers of slices whose items are chosen by tables of chips."""
        if len(pool_class.pools) > TABLED:
            return set()
        if not self.linked:
            return {1, len(pool_class.pools)}
        # a table knows rates, not which of its prefill items may hand over to other domains
        own = [self.items[place] for place in self.own(pool_class.index)]
        leaves = {item.leaves for item in own if item.role == _PREFILL}
        return {1} if len(leaves) < 2 else set()

    def _table(
        self, pool_class: PoolClass, role: int, slices: int, chips: list[list[Linear]]
    ) -> None:
        """Items of a role in one pool are chosen pool by pool, items over all pools once for all."""
        index = pool_class.index
        places = [
            p
            for p in self.own(index)
            if self.items[p].role == role
            and self.items[p].slices == slices
            and not self.items[p].span
        ]
        if not places:
            return
        packing = best_packing(
            np.array([self.items[p].requests_per_s for p in places]),
            np.array([self.items[p].slice_chips for p in places], dtype=np.int64),
            pool_class.size,
        )
        self.tables[index, role, slices] = (packing, places)
        steps = [0] + [int(c) for c in np.flatnonzero(np.diff(packing.best) > 0) + 1]
        pools = range(len(pool_class.pools))
        for group in [[pool] for pool in pools] if slices == 1 else [list(pools)]:
            choice = [
                (step, self.model.new_bool_var(f"a[{group},{ROLES[role]}={step}]"))
                for step in steps
            ]
            self.model.add_exactly_one(variable for _, variable in choice)
            taken = sum(step * variable for step, variable in choice)
            rate = sum(up(packing.best[step], self.unit) * variable for step, variable in choice)
            self.rates[role].append(rate)
            for pool in group:
                self.local[index, pool, role, slices] = choice
                chips[pool].append(taken)
                if self.linked and role != _MIXED:
                    cut = self._cut(pool_class.pools[pool].domain)
                    (cut.supply if role == _PREFILL else cut.demand).append(rate)
                    if role == _PREFILL and self.items[places[0]].leaves:
                        cut.leaving.append(rate)

    def _cut(self, domain: int) -> Cut:
        if domain not in self._named:
            self._named[domain] = Cut(f"r{domain}", domain, named=True)
        return self._named[domain]

    def _stand(
        self, item: Item, part: tuple[int, int], domain: int, times: Linear, cut: Cut | None = None
    ) -> None:
        """Add slices of an item, ``(pool class, chips)`` each, to the cut they stand behind."""
        size = part[1]
        if not self.linked:
            return
        cut = cut if cut is not None else self._cut(domain)
        if item.wide:
            cut.slices.append(times)
        if item.wide and item.sent:
            at = item.place_of(part)
            cut.sent.append((item.sent[at], times))
            cut.sent_far.append((item.sent_far[at], times))
        if item.role == _MIXED:
            return
        if item.kv_parts:
            cut.demand.append(up(item.requests_per_s * item.kv_share(part), self.unit) * times)
            return
        rate = up(item.requests_per_s * size / item.chips, self.unit) * times
        supplies = item.role == _PREFILL
        if item.wide:
            (cut.wide_supply if supplies else cut.wide_demand).append(rate)
            return
        (cut.supply if supplies else cut.demand).append(rate)
        if supplies and item.leaves:
            cut.leaving.append(rate)

    def _by_pattern(self, pool_class: PoolClass, met: list[dict[int, list[int]]]) -> None:
        index, own = pool_class.index, self.own(pool_class.index)
        seeds = [found.get(index, []) for found in met]
        self.patterns[index] = [
            (uses, self.model.new_int_var(0, len(pool_class.pools), f"y[{index},{number}]"))
            for number, uses in enumerate(
                pool_patterns(self.items, own, pool_class, seeds, wide=True)
            )
        ]
        used = {place for uses, _ in self.patterns[index] for place in uses}
        for place in own:
            if place in used:
                self._pay_replicas(place, pool_class)
        if not self.linked:
            return
        for uses, variable in self.patterns[index]:
            cut = Cut(variable.name, pool_class.domain, named=False, times=variable)
            self._patterned.append(cut)
            for place, times in uses.items():
                item = self.items[place]
                self._stand(item, (index, item.slice_chips), cut.domain, times * variable, cut)

    def _pay_replicas(self, place: int, pool_class: PoolClass) -> None:
        """Cost of an item's replicas, each on the cheapest chips that it could have."""
        count, item = self._replicas(place), self.items[place]
        usd = sum(
            pool_class.usd_per_hour(n) for index, n in item.parts if index == pool_class.index
        )
        self.costs.append(int(usd / self.usd_unit) * count)

"""Fleets for traffic: the cheapest one whose pools have so much more capacity than the rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo
from costmodel.replay.capacity import alone_s, prompts_per_s
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course
from costmodel.replay.targets import BEYOND_P99, Targets
from solver.fleet.asked import Fleet, fleet_of
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.rounds import Search
from solver.shapes.pools import Pool
from solver.shapes.shapes import ROLES
from solver.traffic.spared import all_chips, least_chips, ways
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, NoLayoutInTime

Array = NDArray[np.float64]

_PREFILL = ROLES.index("prefill")
#: rounds of placing what a fleet wants, and seconds for one fleet
_LOOKS, _FLEET_S = 12, 4.0
#: prompts that tell what a prefill replica computes at most
_PROMPTS = 800
#: what fleets of whole replicas may serve, over what all chips would serve in parts of replicas: tried in this order
_PARTS = (0.95, 0.85, 0.7, 0.5)
#: sizes of the largest replica that are tried for a fleet which may lose any one
_WAYS = 2

#: by role: capacity that is asked for, over the rate
Needs = Mapping[str, float]


class Fleets:
    """The least fleets of one search.

    Prefill replicas count for what they compute of these very prompts with a full queue, where that is less
    than at the mean; those on which a long prompt is late even alone do not.
    """

    def __init__(
        self,
        search: Search,
        requests: Requests,
        targets: Targets,
        seed: int,
        *,
        units: int = 0,
        tables: Tables | None = None,
    ) -> None:
        """``units``: any one of so many may be lost, with the replicas on it; 0: none. ``tables``: of passes, of this question."""
        self.targets = targets
        self.search, self.requests, self.units = search, requests, units
        self.prompts = requests.rows(_spread_alike(requests.input_tokens, _PROMPTS, seed))
        self.course = Course.of(search.instance)
        self.tables = tables or Tables(requests.longest)
        order = np.argsort(requests.input_tokens - requests.cached_tokens, kind="stable")
        at = int((1.0 - BEYOND_P99 / 2) * len(order))
        #: half as many prompts are longer as may be late
        self.long_one = requests.rows(order[at : at + 1])
        #: tensor and pipeline widths with which that one is late even alone
        self.slow: set[tuple[int, int]] = set()
        #: of a prefill shape: what it computes of the prompts over what it computes at the mean
        self.share: dict[int, float] = {}

    def under(self, slo: Slo) -> Fleets | None:
        """Those of the same question under other targets; ``None`` where no replica meets them or the time is over."""
        own = self.search
        scenario = own.instance.scenario.model_copy(update={"slo": slo})
        instance = replace(own.instance, scenario=scenario)
        search = Search(instance, own.clock, own.target, own.seed, None, workers=own.workers)
        try:
            search.run(brief=True)
        except (NoFeasibleLayout, NoLayoutInTime):
            return None
        return Fleets(
            search, self.requests, self.targets, own.seed, units=self.units, tables=self.tables
        )

    def least(self, needs: Needs) -> Fleet | None:
        """The cheapest fleet found; rates of its items are what is left of them for the rate."""
        search = self.search
        for _ in range(_LOOKS):
            fleet = self._solve(search.hoped_rates(), needs)
            if fleet is None:
                return None
            fresh = sorted(fleet.shapes - set(search.placed.realised))
            # without a rate, fleets that cost as much serve unlike rates
            stands = self._of_placed(needs) if fresh and search.question.rate else None
            if stands is not None and stands.usd_per_hour <= fleet.usd_per_hour * (1 + ROUNDING):
                return stands  # no hope is cheaper
            search.place(fresh)
            # at once: what wide ones lose keeps others from being placed
            measured = self.measure(fleet)
            if search.clock.over or not (fresh or measured):
                break
        return self._of_placed(needs)

    def _of_placed(self, needs: Needs) -> Fleet | None:
        """The cheapest fleet of shapes that are placed and measured."""
        for _ in range(_LOOKS):
            fleet = self._solve(self.search.placed.rates(), needs, placed=True)
            if fleet is None or not self.measure(fleet):
                break
        return fleet

    def most(self, needs: Needs) -> dict[str, float]:
        """Needs times the largest factor for which a fleet is found; as they are where none above 1 has a fleet."""
        most = all_chips(self.search.classes) / max(self.parts_of_chips(needs), 1e-9)
        for factor in (most * part for part in _PARTS):
            raised = {role: need * factor for role, need in needs.items()}
            if factor > 1.0 and self.least(raised) is not None:
                return raised
        return dict(needs)

    def at_least(self, needs: Needs) -> float:
        """Dollars per hour that :meth:`least` finds no fleet for less, as far as rates are known; ``inf``: none."""
        search, scale = self.search, self.scale(needs)
        rates, leaving = search.hoped_rates()
        items = search.items.best(rates * scale, leaving * scale)
        rate = search.question.rate
        assert rate is not None
        fewest = least_chips(items, rate, all_chips(search.classes), spare=bool(self.units))
        return fewest * min(min(one.prices) for one in search.classes)

    def parts_of_chips(self, needs: Needs) -> float:
        """Chips that prefill and decode, or mixed replicas, take where a part of a replica serves a part of its rate."""
        search = self.search
        rates = search.hoped_rates()[0] * self.scale(needs)
        a_chip = [
            float(
                np.max(rates / search.shapes.chips, where=search.shapes.role == role, initial=0.0)
            )
            for role in range(len(ROLES))
        ]
        prefill, decode, mixed = (1.0 / one if one else inf for one in a_chip)
        return (search.question.rate or 0.0) * min(prefill + decode, mixed)

    def _solve(
        self, rates: tuple[Array, Array], needs: Needs, *, placed: bool = False
    ) -> Fleet | None:
        search = self.search
        scale = self.scale(needs)
        items = search.items.best(rates[0] * scale, rates[1] * scale)
        if placed:
            items = [search.placed.sending(item) for item in items]
        if not self.units:
            return self._cheapest(items)
        # a domain that is lost takes parts of several replicas that stand in many: those only where others do not do
        narrow = [item for item in items if not (item.role == _PREFILL and item.wide)]
        for some in (narrow, items) if len(narrow) < len(items) else (items,):
            found = [self._cheapest(own) for own in self._without_any(some)]
            if fleets := [fleet for fleet in found if fleet is not None]:
                return min(fleets, key=lambda fleet: fleet.usd_per_hour)
        return None

    def _cheapest(self, items: list[Item]) -> Fleet | None:
        search = self.search
        return solve_fleet(
            items, search.classes, search.question, clock=search.clock,
            time_limit_s=_FLEET_S, seed=search.seed, accept_gap=search.target / 10,
        ).fleet  # fmt: skip

    def _without_any(self, items: list[Item]) -> Iterator[list[Item]]:
        """Items no larger than some, at what is left of their rates where any unit may be lost: one of them, or an even part of all."""
        rate = self.search.question.rate
        assert rate is not None
        part = rate / max(1, self.units - 1)
        for most in ways(items, rate, all_chips(self.search.classes), _WAYS, part):
            left = {role: rate / (rate + max(one, part)) for role, one in most.items()}
            yield [
                replace(
                    item,
                    # of replicas over so many units any unit takes as many as it has parts of
                    requests_per_s=item.requests_per_s
                    * min(left[item.role], 1.0 - len(item.parts) / self.units),
                )
                for item in items
                if item.requests_per_s <= most.get(item.role, 0.0) and len(item.parts) < self.units
            ]

    def scale(self, needs: Needs) -> Array:
        """What of a shape's rate counts, by row of the shape table."""
        shapes = self.search.shapes
        scale = np.array([1.0 / needs[role] for role in ROLES])[shapes.role]
        known: dict[int, float] = {}
        for row, share in self.share.items():
            ranks = int(shapes.row(row)["attention_dp"])
            known[ranks] = max(share, known.get(ranks, 0.0))
        prefill = shapes.role == _PREFILL
        for ranks in np.unique(shapes.attention_dp[prefill]).tolist():
            # more ranks wait no less for the longest context
            fewer = max((own for own in known if own <= ranks), default=None)
            if fewer is not None:
                scale[prefill & (shapes.attention_dp == ranks)] *= known[fewer]
        for row, share in self.share.items():
            scale[row] *= share / known[int(shapes.row(row)["attention_dp"])]
        for tp, pp in self.slow:
            scale[prefill & (shapes.tp == tp) & (shapes.pp == pp)] = 0.0
        return np.asarray(scale)

    def measure(self, fleet: Fleet) -> bool:
        """Measure the prefill shapes of a fleet; whether any was new. Those that serve nothing where they stand have no replica."""
        new: dict[int, tuple[Item, tuple[Pool, ...]]] = {}
        placed = self.search.placed
        for item, pools in fleet.stands:
            if item.role == _PREFILL and item.shape in placed.realised and placed.of(item).stages:
                new.setdefault(item.shape, (item, pools))
        for row in list(new):
            if row in self.share:
                del new[row]
        for row, stand in new.items():
            self.share[row] = self._share(stand)
        return bool(new)

    def _share(self, stand: tuple[Item, tuple[Pool, ...]]) -> float:
        search = self.search
        item = search.placed.sending(stand[0])
        layout = assemble(
            search.instance, fleet_of([(item, stand[1])], search.classes), search.placed
        )
        if not layout.replicas:
            return 1.0
        given = search.instance, layout, layout.replicas[0]
        row, most_s = search.shapes.row(item.shape), self.targets.ttft_p99_s
        if most_s is not None and alone_s(*given, self.long_one, self.course, self.tables) > most_s:
            self.slow.add((int(row["tp"]), int(row["pp"])))
        most = prompts_per_s(*given, self.prompts, self.course, self.tables)
        return min(1.0, most / search.placed.of(item).requests_per_s)


def _spread_alike(tokens: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """Places of up to so many lengths that are spread as all are, in an order drawn by the seed.

    A few of the longest prompts hold much of the work: a plain draw misses them or takes too many.
    """
    order = np.argsort(tokens, kind="stable")
    count = min(most, len(tokens))
    middles = ((np.arange(count) + 0.5) * len(tokens) / count).astype(np.int64)
    return np.asarray(np.random.default_rng(seed).permutation(order[middles]), dtype=np.int64)

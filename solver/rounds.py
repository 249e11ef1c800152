"""Rounds of one search: best-first over fleets of bounded shapes until the gap asked for is proven.

1. Bound every shape (:mod:`solver.bounds.pricing`). 2. Find the best fleet under the bounds: its cost is a
proven bound. 3. Realise the shapes in it, which lowers their bounds to what placement really
allows. 4. The best fleet of realised shapes, assembled on named chips and judged by the evaluator,
is the incumbent. Repeat from 2 until incumbent and bound are close enough. Mixed replicas in pipeline stages wait
until the rest is searched: rounds that place shape by shape what does not reach its bound find less. Last, of fleets as dear as the
answer that which serves most (:meth:`Search.roomier`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from costmodel.question.what_if import cluster_of
from solver.answer import SearchResult
from solver.bounds.apart import cost_per_rate_bound
from solver.certificate import Certificate, covers
from solver.fleet.asked import Fleet, FleetAnswer, of_even_load
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.named_chips import NamedChips
from solver.shapes.shapes import ROLES
from solver.verify import ROUNDING
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, VerificationError

_MIXED = ROLES.index("mixed")
#: seconds for a bound on all fleets, and how many times that where it is all that keeps the answer from its proof
_FLEET_S, _PATIENCE = 12.0, 8.0
#: rounds of placing shapes that are not in the bound's fleet, and where a proof does not matter
_HOPES, _FEW_HOPES = 32, 4
#: gap that is small enough there where neighbours matter, and the part of the time after which any is
_BRIEF_GAP, _BRIEF_PART = 0.03, 0.15
#: siblings of a shape tried in one round: placing one is quick beside a search for the fleet
_SIBLINGS = 4
#: rounds of placing shapes for a fleet as dear as the answer that serves more
_ROOMIER = 3
#: capacities so close are equal
_AS_MUCH = 1.01


class Search(NamedChips):
    """The rounds of a search, from the first bound to the answer."""

    _looked_at_slices = False
    #: of an answer that another search found
    _skew_cost = 0.0

    def run(self, enough_usd: float = float("inf"), *, brief: bool = False) -> SearchResult | None:
        """Rounds of bounding, realising and judging until the gap is proven or time is up.

        ``None`` as soon as the bound reaches ``enough_usd``: another search has found that already. ``brief``: few rounds
        for shapes that might be better than the bound's, and no more time for what is only a proof or only serves more.
        """
        self._hold()
        self.report(f"{len(self.shapes)} shapes bounded")
        if self._rounds(enough_usd, brief=brief) or (
            self._let_in() and self._rounds(enough_usd, brief=brief)
        ):
            return None
        # of a brief search the gap that was enough may be no proof
        proof_s = self.clock.elapsed_s if self.gap <= max(self.target, ROUNDING) else None
        if not brief:
            self.roomier()
        return self._finish(proof_s)

    def _hold(self) -> None:
        """Let mixed replicas in pipeline stages wait; what they bound counts in what is proven."""
        least = self.first_bound_usd() / self.to_usd
        self.items.hold(np.flatnonzero((self.shapes.role == _MIXED) & (self.shapes.pp > 1)))
        if self.items.waits:
            self.waiting_bound = least

    def _let_in(self) -> bool:
        """Whether what has waited has to be searched, beside the rest and from the best layout so far."""
        if not self.items.waits:
            return False
        self.items.release()
        with self.changing:
            self.bound, self.waiting_bound = self.proven, float("inf")
        return self.gap > max(self.target, ROUNDING) or self.layout is None

    def _rounds(self, enough_usd: float, *, brief: bool) -> bool:
        """Rounds on the shapes that do not wait; whether the bound reached ``enough_usd``."""
        hopes, limit_s = _FEW_HOPES if brief else _HOPES, _FLEET_S
        enough = max(self.target, ROUNDING, 0.0 if self.regular or not brief else _BRIEF_GAP)
        late_s = self.clock.elapsed_s + _BRIEF_PART * (self.clock.limit_s or float("inf"))
        while True:
            answer = self.fleet(self.items.best(), limit_s)
            self.bound = max(self.bound, min(answer.bound, self.best_cost))
            if float("inf") > enough_usd <= self.bound_usd:
                return True
            if answer.fleet is None and self.layout is None:
                if self.items.waits:
                    return False
                self._fail(proven=answer.bound == float("inf"))
            if self.layout is None and 0 < self.bound < float("inf"):
                self.report("every fleet bounded")
            if self.gap <= enough:
                break
            wanted = answer.fleet.shapes if answer.fleet is not None else set()
            fresh = sorted(wanted - set(self.placed.realised)) or self.promising(wanted)
            if not fresh and hopes:
                fresh, hopes = self._hopeful(), hopes - 1
            self.place(fresh)
            self._improve()
            self.report(f"{len(self.placed.realised)} shapes placed")
            if self.gap <= enough:
                break
            if not (fresh or brief) and limit_s == _FLEET_S and self._cut_short(answer):
                limit_s *= _PATIENCE  # nothing is left to place: what is missing is a proof
                continue
            if brief and self.layout is not None and self.clock.elapsed_s > late_s:
                fresh, enough = [], float("inf")
            if self.clock.over or not fresh or (self.items.waits and self.half_gone()):
                break
            if not self.regular and self.half_gone():
                self._as_sold(brief=brief)
        if self.gap > enough and not (self.regular or brief or self.clock.over):
            self.pack()
            self.report("sets of chips packed")
        if not self.regular and self.gap > enough and not self.items.waits:
            self._as_sold(brief=brief)
        return False

    def roomier(self) -> None:
        """Of fleets that serve the rate asked for and cost as much as the answer, take one that serves most.

        Shapes that might be in one are placed first. Without a rate, what costs as much serves as much where
        all chips are paid; where only chips in use are, the fleet model starts from the fullest.
        """
        if self.question.rate is None:
            return
        for _ in range(_ROOMIER):
            fleet = self._as_dear(self.hoped())
            fresh = fleet.shapes - set(self.placed.realised) if fleet is not None else set()
            if not fresh:
                break
            self.place(sorted(fresh))
        for _ in range(_ROOMIER):
            fleet = self._as_dear(self.placed.achieved())
            if fleet is None or not self.take(fleet):
                return

    def _as_dear(self, items: list[Item]) -> Fleet | None:
        """The fleet of items that serves more for the answer's money: the most, within steps of halving."""
        best = self.best_fleet
        if best is None or not items:
            return None
        money, found = best.usd_per_hour, None
        price = cost_per_rate_bound(items, self.classes, self.question.links)
        least, most = best.requests_per_s, money / price if price > 0 else 0.0
        wanted = most * (1 - ROUNDING)
        while most > least * _AS_MUCH and not self.clock.over:
            fleet = solve_fleet(
                items, self.classes, replace(self.question, rate=wanted), clock=self.clock,
                time_limit_s=2.0, seed=self.seed, accept_gap=ROUNDING,
            ).fleet  # fmt: skip
            if fleet is None or fleet.usd_per_hour > money * (1 + ROUNDING):
                most = wanted
            else:
                found, least = fleet, max(fleet.requests_per_s, wanted)
            wanted = (least * most) ** 0.5
        return found

    def promising(self, wanted: set[int]) -> list[int]:
        """For each shape wanted, the next few siblings whose bound beats all that were realised."""
        found = set()
        for shape in wanted:
            family = self.items.siblings(shape).tolist()
            best = max(
                self.placed.realised[row].requests_per_s
                for row in family
                if row in self.placed.realised
            )
            fresh = [row for row in family if row not in self.placed.realised]
            better = [row for row in fresh if self.items.upper[row] > best * (1 + 1e-9)]
            found |= set(better[:_SIBLINGS])
        return sorted(found)

    def _hopeful(self) -> list[int]:
        """Shapes not placed yet that would beat the incumbent if they reached their bounds.

        Where a placed shape falls short of its bound and nothing else can be tightened, the fleet that
        the bound names is known; others may still be better than what is known of it.
        """
        fleet = self.fleet(self.hoped(), 6.0).fleet
        if fleet is None:
            return []
        cost = self.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
        if cost > self.best_cost * (1 - self.target / 10):
            return []
        return sorted(fleet.shapes - set(self.placed.realised))

    def _improve(self) -> None:
        """Make the best fleet of realised shapes the incumbent, if the evaluator agrees it is better."""
        answer = self.fleet(self.placed.achieved(), 6.0)
        if answer.fleet is None:
            return
        fleet = answer.fleet
        cost = self.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
        if cost >= self.best_cost * (1 - 1e-12):
            return
        if self.regular:
            self.take(fleet)
        elif not self.pack(in_stages=True) and fleet != self._stood:
            self._stood = fleet
            self.take(fleet)
        if not self.regular and self.best_cost > cost * (1 + self.target):
            self.with_room()

    def _cut_short(self, answer: FleetAnswer) -> bool:
        """Whether the best fleet under the bounds was not proven to be the best, and there is time to do so."""
        cost = float("inf") if answer.fleet is None else self.question.cost_of(answer.fleet)
        return cost > answer.bound * (1 + self.target / 2) and self.clock.remaining_s > _FLEET_S

    def _as_sold(self, *, brief: bool = False) -> None:
        """Take the best layout of chips as they are sold, if it is better; once.

        On a torus of many chips a search does not see every set of them, and slices are few: what they serve is soon
        known, and they are some of all sets.
        """
        free = self.instance.scenario.granularity in (None, "chip") and not self._looked_at_slices
        ways = self.instance.cluster.granularities if free else ()
        self._looked_at_slices = True
        for left, way in zip(range(len(ways), 0, -1), ways, strict=True):
            if self.clock.over:  # what a search works out first is not cut short
                return
            clock = self.clock.follower()
            if clock.limit_s is not None:
                clock.limit_s /= left
            scenario = self.instance.scenario.model_copy(update={"granularity": way})
            try:
                asked = replace(self.instance, scenario=scenario, cluster=cluster_of(scenario))
                slices = Search(asked, clock, self.target, self.seed, None, workers=self.workers)
                slices.outer = None if self.layout is None else self.clock
                found = slices.run(self.best_cost * self.to_usd, brief=brief)
            except (InstanceError, NoFeasibleLayout, NoLayoutInTime):
                continue
            if found is not None and self.judge(found.layout, None, float("inf")):
                self._skew_cost = found.skew_cost
                self.report(f"chips taken by the {way}")

    def _fail(self, *, proven: bool) -> NoReturn:
        """Raise why there is no layout. ``proven``: a bound shows that none exists."""
        if self.clock.over or (self.clock.cut_short and not proven):
            raise self.clock.late("the first verified layout")
        if proven:
            raise NoFeasibleLayout(self.why())
        why = (
            "no layout was found: every shape that its bound allows misses a target or HBM "
            "once its experts and layers are placed"
        )
        if self.clock.unsettled:
            why += ", or is left undecided by the work that a search gives it"
        raise NoFeasibleLayout(why, proven=False)

    def snapshot(self) -> SearchResult | None:
        """The best verified layout so far with its proven gap, from any thread while the search runs."""
        with self.changing:
            return self._finish(None) if self.layout is not None and self.proven > 0 else None

    def _finish(self, proof_s: float | None) -> SearchResult:
        if self.layout is None or self.evaluation is None:
            self._fail(proven=False)
        cost = self.best_cost
        if self.bound > cost * (1 + ROUNDING):
            raise VerificationError("the bound is above the cost of a feasible layout")
        bound = min(self.proven, cost)
        return SearchResult(
            status="optimal" if cost <= bound * (1 + max(self.target, ROUNDING)) else "feasible",
            layout=self.layout,
            evaluation=self.evaluation,
            certificate=Certificate(bound * self.to_usd, cost / bound - 1.0, self.covered()),
            wall_s=self.clock.elapsed_s,
            first_layout_s=self.first_s,
            proof_s=proof_s,
            shapes=len(self.shapes),
            trajectory=tuple(self.trajectory),
            skew_cost=self.imbalance(),
        )

    def covered(self) -> tuple[str, ...]:
        """What the proof covers, then what it does not."""
        return covers(self.instance, self.classes, self.shapes)

    def imbalance(self) -> float:
        """What the imbalance of expert load costs on the answer's fleet: its price over that of even load."""
        if self.best_fleet is None or self.instance.operations.moe is None:
            return self._skew_cost
        rates = {
            row: self.pricer.balanced(self.shapes, row, int(self.bounds.per_rank[row]))
            for row in self.best_fleet.shapes
        }
        even = of_even_load(self.best_fleet, rates, self.classes, self.question.links)
        cost = self.question.cost_of(even)
        return max(0.0, self.best_cost / cost - 1.0) if cost > 0 else 0.0

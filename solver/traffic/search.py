r"""The search for a layout that meets percentiles under traffic.

1. Steady questions: at the mean lengths, at their spread, and of what every order of requests has to carry, whose bound is
the certificate's. 2. Queues of the requests and their draws say what load each pool may carry. 3. The cheapest fleet with so much
capacity is replayed. 4. A pool that was too slow needs more than that fleet had; then less is tried between
what failed and what met the targets, as long as that is cheaper. 5. The same among replicas that compute prompts more
quickly, which leaves more time to wait, and with fewer prompt tokens in a pass, while the gap is wide; what queues promise to
be cheapest comes first. Small fleets of mixed replicas that a steady state rules out are replayed, too. 6. The answer is confirmed on fresh draws; where none meets all of them, one is taken that meets 19 of 20 others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.question.scenario import Scenario
from solver.answer import Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock, check_seed
from solver.fleet.asked import Fleet
from solver.shapes.shapes import ROLES
from solver.traffic.asked import Asked
from solver.traffic.few import Few
from solver.traffic.fleets import Fleets
from solver.traffic.found import (
    Found,
    Steady,
    answered,
    as_they_come,
    capacities,
    nearly_met,
    nothing_found,
    standing,
)
from solver.traffic.judge import Verdict
from solver.traffic.less import AS_MUCH, Less
from solver.traffic.turns import Turns
from solver.traffic.ways import Looking, Way, chunk_line
from solver.verify import ROUNDING

#: layouts judged at most; how much more is asked of a pool that was too slow, the first time and at most
_TRIES, _STEP, _MOST_STEP = 60, 0.005, 0.16
#: layouts judged until one meets the targets, where nothing may be lost; the part of the time after which an answer that
#: stands is no longer improved
_EACH, _LOOK = 8, 0.8
#: the same where the best is counted on other draws, which takes the rest
_LEAVE = 0.65
#: the part of the time without an answer after which what carries most comes first
_HALF = 0.5
#: part of the prefill that queues of draws ask for, below which an answer would hardly be confirmed
_LIKELY = 0.98
#: replicas of a fleet up to which less is tried all the same, since one of them is much
_FEW = 12


def search_traffic(
    scenario: Scenario,
    asked: Asked,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    workers: int = 1,
    fullest: bool = False,
) -> SearchResult:
    """The cheapest layout found whose replays meet the targets, with a bound for every order of requests.

    ``fullest``: look first for what carries most; for callers whose ``gap`` any answer meets.

    Raises what :func:`solver.search.search` raises; ``NoFeasibleLayout`` that is not proven where layouts carry
    the rate and none that was found meets the targets.
    """
    check_seed(seed)
    return _TrafficSearch(
        scenario, asked, Looking(clock, gap, seed, workers, fullest), on_progress
    ).run()


class _TrafficSearch:
    """State of one search for traffic."""

    def __init__(
        self,
        scenario: Scenario,
        asked: Asked,
        how: Looking,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.asked, self.how, self.clock = asked, how, how.clock
        self.target, self.on_progress = how.gap, on_progress
        self.turns = Turns(scenario, asked, how)
        self.steady = Steady.of(self.turns.ways[0], how)
        self._use(self.turns.ways[0], self.turns.ways[0].plain)
        #: the cheapest that met the targets, and the cheapest that did on fresh draws too
        self.best: Found | None = None
        self.sure: Found | None = None
        #: what met the targets, each cheaper than the one before, and what then missed them on a fresh draw
        self.passed: list[Found] = []
        self.nearly: list[Found] = []
        self.last: Verdict | None = None
        #: by role, the least capacity that was not too slow
        self.fine: dict[str, float] = dict.fromkeys(ROLES, float("inf"))
        self.tries = 0

    def run(self) -> SearchResult:
        """The answer."""
        self.clock.kept = self._kept
        for way, hurry in self.turns.one_by_one(
            self._over, lambda: self.best.way if self.best else None, self._too_dear
        ):
            if self._over():
                break
            if isinstance(hurry, Few):
                self._look_among(hurry)
            elif (fleets := way.hurried(hurry)) is not None:
                self._use(way, fleets)
                self._look(way.loads(hurry))
                self._confirm()
        self.best = self.best or nearly_met(self.nearly, self.clock)
        self.sure = as_they_come(self.sure, self.turns.every, self.clock)
        found = self._kept()
        if found is None:
            raise nothing_found(self.asked, self.last, self.steady.failed, clock=self.clock)
        return found

    def _kept(self) -> SearchResult | None:
        self.best = self.sure or self.best
        return None if self.best is None else self._answer()

    def _enough(self) -> bool:
        """Whether an answer that stands is near its bound, or the time to look for a better one is over."""
        if self.sure is None:
            return bool(self.nearly) and not self._time()
        return not self._time() or self._gap() <= self.target

    def _over(self) -> bool:
        return self._enough() or self.clock.over

    def _use(self, way: Way, fleets: Fleets) -> None:
        self.way, self.search, self.fleets = way, fleets.search, fleets

    def _look(self, loads: dict[str, float]) -> None:
        """Look for the cheapest layout that meets the targets, from such loads on."""
        failed: dict[str, float] = dict.fromkeys(ROLES, 1.0)
        least = {role: 1.0 / load for role, load in loads.items()}
        needs = self._first(failed, self.fleets.most(least) if self._fullest() else least)
        if needs is not None:
            likely = max(failed["prefill"], _LIKELY / loads["prefill"])
            self._less({**failed, "prefill": likely}, needs)
            if self.best is not None and len(self.best.fleet.stands) <= _FEW:
                self._less(failed, needs)

    def _look_among(self, few: Few) -> None:
        """Look among small fleets that a steady state rules out."""

        def replayed(fleet: Fleet) -> Found | None:
            self.way, self.search, self.fleets = few.way, few.search, few.way.plain
            return self._replayed(fleet, dict.fromkeys(ROLES, 1.0))

        few.look(replayed, self._confirm, self._too_dear, lambda: self._time() and not self._over())

    def _fullest(self) -> bool:
        """Whether to look first for what carries most: where that is asked for, or half of the time has found nothing."""
        late = self.clock.elapsed_s > _HALF * (self.clock.limit_s or float("inf"))
        return self.how.fullest or (late and not self.passed and not self.nearly)

    def _confirm(self) -> None:
        """Keep the cheapest layout that meets the targets on fresh draws too; where none does, ask for more."""
        step = _STEP
        while self.best is not None and self.best is not self.sure and not self.clock.over:
            found = self.best
            self.last = found.way.judge.confirm(found.layout, lambda: self.clock.over)
            if self.last.meets:
                self.best = replace(found, verdict=self.last)
                self.passed = [self.best if one is found else one for one in self.passed]
                self.sure = self.best if self.last.confirmed else self.sure
                break
            self.passed.remove(found)
            self.nearly.append(found)
            self.best = min(self.passed, key=lambda one: one.fleet.usd_per_hour, default=None)
            failed: dict[str, float] = dict.fromkeys(ROLES, 1.0)
            if self.best is not None:
                if self.best.fleets is found.fleets:
                    failed |= {role: found.has[role] or 1.0 for role in self.last.missed}
                self._use(self.best.way, self.best.fleets)
                self._less(failed, {role: has or 1.0 for role, has in self.best.has.items()})
            else:
                self._use(found.way, found.fleets)
                needs = {role: min(has or 1.0, self.fine[role]) for role, has in found.has.items()}
                loads = found.way.loads()  # by the draw that it failed, too
                needs |= {
                    role: max((found.has[role] or 1.0) * (1.0 + step), 1.0 / loads[role])
                    for role in self.last.missed
                }
                self._first(failed, needs)
                step *= 2

    def _first(self, failed: dict[str, float], needs: dict[str, float]) -> dict[str, float] | None:
        """Ask for more of what was too slow until a layout meets the targets; what it was asked for."""
        steps: dict[str, float] = dict.fromkeys(ROLES, _STEP)
        most = self.tries + (_TRIES if self.asked.spare else _EACH)
        while self._time() and self.tries < most:
            if self._too_dear(self.fleets.at_least(needs)):
                return needs
            fleet = self.fleets.least(needs)
            if fleet is not None and self._too_dear(fleet.usd_per_hour):
                return needs  # what meets the targets with these replicas costs no less
            found = None if fleet is None else self._replayed(fleet, needs)
            if found is None:  # the chips do not allow so much: between that and what failed
                closer: dict[str, float] = {r: (needs[r] * failed[r]) ** 0.5 for r in ROLES}
                if all(needs[role] / closer[role] < AS_MUCH**0.5 for role in ROLES):
                    return None
                needs = closer
                continue
            if found.verdict.meets:
                return needs
            for role in found.verdict.missed:
                if found.has[role]:
                    failed[role] = max(failed[role], needs[role], found.has[role])
                    needs[role] = failed[role] * (1.0 + steps[role])
                    steps[role] = min(2 * steps[role], _MOST_STEP)
        return None

    def _less(self, failed: dict[str, float], needs: dict[str, float]) -> None:
        """Ask for less, pool by pool, between what failed and what met the targets."""
        less = Less(failed, needs)
        for role in ROLES:
            while self._time() and self._gap() > self.target and (trial := less.trial(role)):
                dear = self._too_dear(self.fleets.at_least(trial))
                fleet = None if dear else self.fleets.least(trial)
                if fleet is None or self._too_dear(fleet.usd_per_hour):
                    less.as_dear(trial)
                    continue
                found = self._replayed(fleet, trial)
                less.judged(role, trial, None if found is None else found.verdict)
        needs |= less.met

    def _too_dear(self, usd_per_hour: float) -> bool:
        """Whether that is no less than the best layout costs."""
        best = self.best
        return best is not None and usd_per_hour >= best.fleet.usd_per_hour * (1 - ROUNDING)

    def _time(self) -> bool:
        part = _LOOK if self.sure else _LEAVE if self.nearly else 1.0
        late = self.clock.elapsed_s > part * (self.clock.limit_s or float("inf"))
        return not (self.clock.over or late) and self.tries < _TRIES * len(self.turns.every)

    def _replayed(self, fleet: Fleet, needs: dict[str, float]) -> Found | None:
        """Stand a fleet on its chips and replay it; ``None`` where it cannot stand."""
        stands = standing(self.search.instance, fleet, self.search, self.asked.spare, self.how.seed)
        if stands is None:
            return None
        layout, evaluation = stands
        self.tries += 1
        verdict = self.last = self.way.verdict(layout, evaluation)
        found = Found(
            fleet, layout, evaluation, verdict,
            capacities(fleet, needs, self.asked.peak_rate), self.fleets, self.way,
        )  # fmt: skip
        for role, has in found.has.items():
            if has and role not in verdict.missed:
                self.fine[role] = min(has, self.fine[role])
        best = self.best
        if verdict.meets and (best is None or fleet.usd_per_hour < best.fleet.usd_per_hour):
            self.best = found
            self.passed.append(found)
        self._report()
        return found

    def _gap(self) -> float:
        if self.best is None:
            return float("inf")
        cost = self.best.evaluation.usd_per_m_output_tokens
        assert cost is not None
        return max(0.0, cost / self._bound() - 1.0)

    def _bound(self) -> float:
        """Dollars per million output tokens that no layout costs less than, whichever way of those looked at."""
        return min(way.least.usd_per_m_output_tokens for way in self.turns.every)

    def _report(self) -> None:
        if self.on_progress is not None:
            cost = None if self.best is None else self.best.evaluation.usd_per_m_output_tokens
            gap = None if self.best is None else self._gap()
            doing = f"{self.tries} layouts replayed"
            self.on_progress(Progress(self.clock.elapsed_s, cost, self._bound(), gap, doing))

    def _answer(self) -> SearchResult:
        assert self.best is not None
        chunks = [way.chunk for way in self.turns.every]
        covers = [chunk_line(chunks)] * self.turns.several + [*self.turns.ways[0].least.covers]
        certificate = Certificate(self._bound(), self._gap(), tuple(covers))
        return answered(
            self.asked, self.steady, tuple(chunks), self.best, certificate, self.target,
            self.clock.elapsed_s,
        )  # fmt: skip

r"""The search for a layout that meets percentiles under traffic.

1. Steady questions: at the mean lengths, at their spread, and of what every order of requests has to carry, whose bound is
the certificate's. 2. Queueing formulas say what load each pool may carry. 3. The cheapest fleet with so much
capacity is replayed. 4. A pool that was too slow needs more than that fleet had; then less is tried between
what failed and what met the targets, as long as that is cheaper. 5. The same among replicas that compute prompts more
quickly, which leaves more time to wait, while the gap is wide. 6. The answer is confirmed on fresh draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from solver.answer import Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock, check_seed
from solver.fleet.asked import Fleet
from solver.place.assemble import assemble
from solver.place.mend import mended
from solver.rounds import Search
from solver.search import search
from solver.shapes.shapes import ROLES
from solver.traffic.apart import dealt, hosts_apart
from solver.traffic.asked import Asked, Questions, questions
from solver.traffic.bound import least_cost
from solver.traffic.fleets import Fleets
from solver.traffic.found import Found, Steady, answered, capacities, nothing_found
from solver.traffic.judge import Judge, Verdict
from solver.traffic.loads import carried, hurries
from solver.verify import ROUNDING, verify

#: layouts judged at most; how much more is asked of a pool that was too slow, the first time and at most
_TRIES, _STEP, _MOST_STEP = 60, 0.005, 0.16
#: layouts judged until one meets the targets, where nothing may be lost; the part of the time after which an answer that
#: stands is no longer improved
_EACH, _LOOK = 8, 0.6
#: capacities so close are equal: less is no longer tried
_AS_MUCH = 1.004


def search_traffic(
    scenario: Scenario,
    asked: Asked,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    workers: int = 1,
) -> SearchResult:
    """The cheapest layout found whose replays meet the targets, with a bound for every order of requests.

    Raises what :func:`solver.search.search` raises; ``NoFeasibleLayout`` that is not proven where layouts carry
    the rate and none that was found meets the targets.
    """
    check_seed(seed)
    own = questions(scenario, asked)
    return _TrafficSearch(own, asked, clock, gap, seed, on_progress, workers).run()


class _TrafficSearch:
    """State of one search for traffic."""

    def __init__(
        self,
        own: Questions,
        asked: Asked,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None,
        workers: int,
    ) -> None:
        self.own, self.asked, self.clock, self.target, self.seed = own, asked, clock, gap, seed
        self.on_progress, self.workers = on_progress, workers
        every = self._steady(own.every)
        self.least = least_cost(own, asked, every, clock, seed, workers)
        self.mean = self._steady(own.mean)
        plain = Search(own.spread, clock, gap, seed, None, workers=workers)
        spread = plain.run()
        assert spread is not None
        self.spread = spread
        self.plain = Fleets(plain, asked.steady, asked.targets, seed, spare=bool(asked.spare))
        self._use(self.plain)
        self.judge = Judge(own.spread, asked, seed)
        #: the cheapest that met the targets, and the cheapest that did on fresh draws too
        self.best: Found | None = None
        self.sure: Found | None = None
        #: what met the targets, each cheaper than the one before
        self.passed: list[Found] = []
        self.last: Verdict | None = None
        self.tries = 0

    def _steady(self, instance: Instance) -> SearchResult:
        return search(
            instance, clock=self.clock, gap=self.target, seed=self.seed, workers=self.workers
        )

    def run(self) -> SearchResult:
        """The answer."""
        self.clock.kept = self._kept
        ttft_s = self.spread.evaluation.ttft_s or 0.0
        own = self.asked.steady.at_rate(self.asked.peak_rate)
        for hurry in hurries(self.asked.targets, ttft_s):
            if self._enough() or self.clock.over:
                break
            if self._hurried(hurry):
                self._look(carried(own, self.asked.targets, hurry * ttft_s))
                self._confirm()
        found = self._kept()
        if found is None:
            raise nothing_found(self.asked, self.last, over=self.clock.over)
        return found

    def _kept(self) -> SearchResult | None:
        self.best = self.sure or self.best
        return None if self.best is None else self._answer()

    def _enough(self) -> bool:
        """Whether an answer that stands is near its bound, or the time to look for a better one is over."""
        return self.sure is not None and (not self._time() or self._gap() <= self.target)

    def _hurried(self, hurry: float) -> bool:
        """Look among replicas that compute prompts in such a part of the time; whether there are any."""
        fleets: Fleets | None = self.plain
        if hurry < 1.0:
            slo = self.own.spread.slo
            ttft_s = hurry * (self.spread.evaluation.ttft_s or 0.0)
            fleets = self.plain.under(slo.model_copy(update={"ttft": ttft_s}), self.workers)
        if fleets is not None:
            self._use(fleets)
        return fleets is not None

    def _use(self, fleets: Fleets) -> None:
        self.search, self.fleets = fleets.search, fleets

    def _look(self, loads: dict[str, float]) -> None:
        """Look for the cheapest layout that meets the targets, from such loads on."""
        failed: dict[str, float] = dict.fromkeys(ROLES, 1.0)
        needs = self._first(failed, {role: 1.0 / load for role, load in loads.items()})
        if needs is not None:
            self._less(failed, needs)

    def _confirm(self) -> None:
        """Keep the cheapest layout that meets the targets on fresh draws too; where none does, ask for more."""
        step = _STEP
        while self.best is not None and self.best is not self.sure and not self.clock.over:
            found = self.best
            self.last = self.judge.confirm(found.layout, lambda: self.clock.over)
            if self.last.meets:
                self.best = replace(found, verdict=self.last)
                self.passed = [self.best if one is found else one for one in self.passed]
                self.sure = self.best if self.last.confirmed else self.sure
                break
            self.passed.remove(found)
            self.best = min(self.passed, key=lambda one: one.fleet.usd_per_hour, default=None)
            none: dict[str, float] = dict.fromkeys(ROLES, 1.0)
            if self.best is not None:
                failed = dict(none)
                if self.best.fleets is found.fleets:
                    failed |= {role: found.has[role] or 1.0 for role in self.last.missed}
                self._use(self.best.fleets)
                self._less(failed, {role: has or 1.0 for role, has in self.best.has.items()})
            else:
                self._use(found.fleets)
                more = dict.fromkeys(self.last.missed, 1.0 + step)
                needs = {
                    role: more.get(role, 1.0) * (has or 1.0) for role, has in found.has.items()
                }
                self._first(none, needs)
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
                closer: dict[str, float] = {
                    role: (needs[role] * failed[role]) ** 0.5 for role in ROLES
                }
                if all(needs[role] / closer[role] < _AS_MUCH**0.5 for role in ROLES):
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
        for role in ROLES:
            while self._time() and self._gap() > self.target:
                trial = {**needs, role: (needs[role] * failed[role]) ** 0.5}
                if needs[role] / trial[role] < _AS_MUCH**0.5:
                    break
                dear = self._too_dear(self.fleets.at_least(trial))
                fleet = None if dear else self.fleets.least(trial)
                if fleet is None or self._too_dear(fleet.usd_per_hour):
                    needs[role] = trial[role]  # as dear: what is cheaper lies below
                    continue
                found = self._replayed(fleet, trial)
                passed = found is not None and found.verdict.meets
                (needs if passed else failed)[role] = trial[role]

    def _too_dear(self, usd_per_hour: float) -> bool:
        """Whether that is no less than the best layout costs."""
        best = self.best
        return best is not None and usd_per_hour >= best.fleet.usd_per_hour * (1 - ROUNDING)

    def _time(self) -> bool:
        part = 1.0 if self.sure is None else _LOOK
        late = self.clock.elapsed_s > part * (self.clock.limit_s or float("inf"))
        return not (self.clock.over or late) and self.tries < _TRIES

    def _replayed(self, fleet: Fleet, needs: dict[str, float]) -> Found | None:
        """Stand a fleet on its chips and replay it; ``None`` where it cannot stand."""
        instance = self.own.spread
        layout = assemble(instance, fleet, self.search.placed)
        evaluation = evaluate(instance, layout)
        if self.asked.spare:
            apart_fleet = dealt(fleet, self.search.classes, self.clock, self.seed)
            given = hosts_apart(instance, apart_fleet, self.asked.spare)
            wide = assemble(instance, apart_fleet, self.search.placed, given)
            if (apart := evaluate(instance, wide)).feasible:
                layout, evaluation = wide, apart
        if evaluation.violations:
            left = mended(instance, layout, evaluation)
            if left is None and not self.search.regular:
                return None
            layout, evaluation = left or (layout, evaluation)
        verify(instance, float("inf"), evaluation)
        self.tries += 1
        verdict = self.last = self.judge.judge(layout)
        found = Found(
            fleet, layout, evaluation, verdict,
            capacities(fleet, needs, self.asked.peak_rate), self.fleets,
        )  # fmt: skip
        if verdict.meets and (
            self.best is None or fleet.usd_per_hour < self.best.fleet.usd_per_hour
        ):
            self.best = found
            self.passed.append(found)
        self._report()
        return found

    def _gap(self) -> float:
        if self.best is None:
            return float("inf")
        cost = self.best.evaluation.usd_per_m_output_tokens
        assert cost is not None
        return max(0.0, cost / self.least.usd_per_m_output_tokens - 1.0)

    def _report(self) -> None:
        if self.on_progress is not None:
            cost = None if self.best is None else self.best.evaluation.usd_per_m_output_tokens
            gap = None if self.best is None else self._gap()
            doing = f"{self.tries} layouts replayed"
            self.on_progress(
                Progress(self.clock.elapsed_s, cost, self.least.usd_per_m_output_tokens, gap, doing)
            )

    def _answer(self) -> SearchResult:
        assert self.best is not None
        certificate = Certificate(
            self.least.usd_per_m_output_tokens, self._gap(), self.least.covers
        )
        steady = Steady(self.mean, self.spread)
        return answered(
            self.asked, self.own.spread, steady, self.best, certificate,
            self.target, self.clock.elapsed_s,
        )  # fmt: skip

"""Whether numbers of whole units carry requests of unlike lengths: searches for a layout whose replays meet the percentiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.findings import assumptions, provenance
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.plan.bounds.most import most_of_arrivals, most_of_traffic
from solver.plan.sizing.carried import MOST_CHIPS, Capability, Units
from solver.plan.sizing.peak import DRAWS, PeakReplay, p99
from solver.traffic.asked import Asked, questions
from solver.traffic.judge import meets_targets
from solver.traffic.search import search_traffic
from solver.traffic.ways import first_of
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: part of what units carry in a steady state that replays are likely to leave
_LIKELY = 0.7
#: a gap with which any layout will do
_ANY = 1e6
#: fresh draws have numbers beyond those that searches learn from
BEYOND = 1000
#: halvings between the peak and what a layout serves in a steady state, for what it carries
_HALVINGS = 5


def highest(meets: Callable[[float], bool], low: float, high: float, clock: Clock) -> float:
    """The highest rate found that meets the targets, from ``low`` on, which does."""
    for _ in range(_HALVINGS):
        if clock.over:
            break
        rate = (low + high) / 2
        low, high = (rate, high) if meets(rate) else (low, rate)
    return low


def any_layout(scenario: Scenario, asked: Asked, clock: Clock, seed: int) -> SearchResult:
    """Some layout whose replays meet the targets. Raises what searches raise."""
    return search_traffic(scenario, asked, clock=clock, gap=_ANY, seed=seed, fullest=True)


class TrafficUnits(Units):
    """Searches on so many units of a kind, each made once; ``asked``: the requests at their peak, and their targets.

    Units carry the peak where a layout was found whose replays meet the targets. Where none was, they carry nothing, and what
    they may carry at most is open.
    """

    def __init__(
        self, scenario: Scenario, kind: str, clock: Clock, gap: float, seed: int, asked: Asked
    ) -> None:
        super().__init__(scenario, kind, clock, gap, seed)
        self.asked = asked
        self.output_tokens = float(asked.requests.output_tokens.mean())
        self._failed = self._steady = 0
        #: layouts that were looked for; the questions that those which were found answer; numbers on which none was found
        self.searches = 0
        self.answered: dict[int, Instance] = {}
        self.missed: set[int] = set()
        self._most_of: dict[int, float] = {}

    def carried(self, units: int, gap: float | None = None) -> Capability:
        """What so many units carry; ``gap`` is that of all searches."""
        if units not in self.known:
            scenario = self.instance(units).scenario
            most = most_of_arrivals(scenario, self.asked, self.clock, self.seed)
            if most == inf:  # as they come, prompts may be in time
                most = self.most(units)
            # where no layout was found on more units, none is looked for on fewer
            tried = most >= self.asked.requests.rate and units > self._failed
            layout = self._search(scenario, units) if tried else None
            self.known[units] = (
                Capability(units, 0.0, most, Layout(replicas=()))
                if layout is None
                else Capability(
                    units,
                    min(self._carries(units, layout), most),
                    most,
                    layout,
                    provenance(self.answered[units], layout),
                    assumptions(self.answered[units], layout),
                )
            )
        return self.known[units]

    def _search(self, scenario: Scenario, units: int) -> Layout | None:
        """A layout whose replays meet the targets; ``None``: none was found."""
        self.searches += 1
        try:
            found = any_layout(scenario, self.asked, self.clock, self.seed)
        except NoFeasibleLayout:
            self._failed = max(self._failed, units)
            self.missed.add(units)
            return None
        assert found.instance is not None
        self.answered[units] = found.instance
        return found.layout

    def _carries(self, units: int, layout: Layout) -> float:
        """The highest rate found, from the peak on, at which a draw by which no layout was chosen meets the targets."""
        instance = self.answered[units]
        tables = Tables(self.asked.requests.longest)
        low = self.asked.requests.rate
        high = max(low, evaluate(instance, layout).priced.requests_per_s)

        def meets(rate: float) -> bool:
            asked = replace(self.asked, requests=self.asked.requests.at_rate(rate))
            requests = asked.another(self.seed, BEYOND)
            course = Course.of(instance)
            return meets_targets(instance, layout, requests, asked.targets, course, tables)

        return highest(meets, low, high, self.clock)

    def most(self, units: int) -> float:
        """Requests/s that no layout on so many units exceeds; 0 where proven that nothing fits."""
        if units not in self._most_of:
            self._most_of[units] = self._most(self.instance(units).scenario, "whole")
        return self._most_of[units]

    def _most(self, scenario: Scenario, pay: str) -> float:
        try:
            return most_of_traffic(scenario, self.asked, pay, self.clock, self.gap, self.seed)
        except NoFeasibleLayout as error:
            if not error.proven:
                raise
            return 0.0

    def bounds(self) -> dict[int, float]:
        """Requests/s that no layout exceeds, by numbers of units of which it is known."""
        return dict(self._most_of)

    def most_of_each(self, count: int) -> float:
        """Requests/s of a unit that no layout exceeds on up to ``count`` of them; infinite where the time is over."""
        try:
            return self._most(self.instance(count).scenario, "used") / count
        except (NoFeasibleLayout, NoLayoutInTime):
            return inf

    def first(self, peak: float) -> Capability:
        """What so many units carry as would carry the peak in a steady state, with some to spare for chance."""
        plain = Units(self.scenario, self.kind, self.clock, self.gap, self.seed)
        spread = questions(first_of(self.instance(1).scenario, self.asked), self.asked).spread
        plain.scenario = spread.scenario
        steady = plain.first(peak)
        each = steady.requests_per_s / steady.units
        self._steady = ceil(peak / each)
        return self.carried(min(ceil(peak / each / _LIKELY), MOST_CHIPS // self.chips))

    def about(self, number: int, carried: Capability | None, peak: float) -> int:
        """Halfway between what carries the peak and what was too few, or would be in a steady state; else that, or twice as many."""
        if not self.answered:
            return max(2 * number, self._steady)
        enough, few = min(self.answered), max(self._failed, self._steady - 1)
        return (few + enough + 1) // 2

    def replayed(self, units: int, rate: float) -> PeakReplay:
        """Draws by which no layout was chosen, run through the layout of so many units."""
        layout, instance, found = self.carried(units).layout, self.answered[units], list[Met]()
        meets = True
        for draw in range(DRAWS):
            requests = self.asked.another(self.seed, BEYOND + draw)
            course = self.asked.course(instance, self.seed)
            found.append(replay(instance, layout, requests, course))
            meets = judged(found[-1], self.asked.targets).meets
            if not meets:
                break
        return PeakReplay(
            units,
            sum(len(met.ttft) for met in found),
            max(p99(met.ttft) for met in found),
            max(p99(met.tpot[np.isfinite(met.tpot)]) for met in found),
            meets,
        )

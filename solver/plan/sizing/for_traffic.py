"""Whether numbers of whole units carry requests of unlike lengths: searches for a layout whose replays meet the percentiles."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.clock import Clock
from solver.plan.most import most_of_traffic
from solver.plan.sizing.carried import MOST_CHIPS, Capability, Units
from solver.plan.sizing.peak import PeakReplay, p99
from solver.traffic.asked import Asked, questions
from solver.traffic.judge import meets_targets
from solver.traffic.search import search_traffic
from solver.traffic.ways import first_of
from topology.errors import NoFeasibleLayout

#: part of what units carry in a steady state that replays are likely to leave
_LIKELY = 0.7
#: a gap with which any layout will do
_ANY = 1e6
#: fresh draws that have to meet the targets, numbered beyond those that searches learn from
_DRAWS, _BEYOND = 2, 1000
#: halvings between the peak and what a layout serves in a steady state, for what it carries
_HALVINGS = 5


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
        self._answered: dict[int, Instance] = {}

    def carried(self, units: int, gap: float | None = None) -> Capability:
        """What so many units carry; ``gap`` is that of all searches."""
        if units not in self.known:
            scenario = self.instance(units).scenario
            most = self._most(scenario)
            # where no layout was found on more units, none is looked for on fewer
            tried = most >= self.asked.requests.rate and units > self._failed
            layout = self._search(scenario, units) if tried else None
            self.known[units] = (
                Capability(units, 0.0, most, Layout(replicas=()))
                if layout is None
                else Capability(units, min(self._carries(units, layout), most), most, layout)
            )
        return self.known[units]

    def _search(self, scenario: Scenario, units: int) -> Layout | None:
        """A layout whose replays meet the targets; ``None``: none was found."""
        try:
            found = search_traffic(scenario, self.asked, clock=self.clock, gap=_ANY, seed=self.seed)
        except NoFeasibleLayout:
            self._failed = max(self._failed, units)
            return None
        assert found.instance is not None
        self._answered[units] = found.instance
        return found.layout

    def _carries(self, units: int, layout: Layout) -> float:
        """The highest rate found, from the peak on, at which a draw by which no layout was chosen meets the targets."""
        instance = self._answered[units]
        tables = Tables(self.asked.requests.longest)
        low = self.asked.requests.rate
        high = max(low, evaluate(instance, layout).priced.requests_per_s)
        for _ in range(_HALVINGS):
            if self.clock.over:
                break
            rate = (low + high) / 2
            asked = replace(self.asked, requests=self.asked.requests.at_rate(rate))
            requests = asked.another(self.seed, _BEYOND)
            met = meets_targets(
                instance, layout, requests, asked.targets, Course.of(instance), tables
            )
            low, high = (rate, high) if met else (low, rate)
        return low

    def _most(self, scenario: Scenario) -> float:
        """Requests/s that no layout on a question's chips exceeds; 0 where proven that nothing fits."""
        try:
            return most_of_traffic(scenario, self.asked, "whole", self.clock, self.gap, self.seed)
        except NoFeasibleLayout as error:
            if not error.proven:
                raise
            return 0.0

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
        """Halfway between what carries the peak and what was too few, or would be in a steady state."""
        if not self._answered:
            return 2 * number
        enough, few = min(self._answered), max(self._failed, self._steady - 1)
        return (few + enough + 1) // 2

    def replayed(self, units: int, rate: float) -> PeakReplay:
        """Draws by which no layout was chosen, run through the layout of so many units."""
        layout, instance, found = self.carried(units).layout, self._answered[units], list[Met]()
        meets = True
        for draw in range(_DRAWS):
            requests = self.asked.another(self.seed, _BEYOND + draw)
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

"""What numbers of whole units (racks, nodes, slices) of one kind carry: searches, each made once."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search
from topology.errors import NoFeasibleLayout

#: chips of the largest cluster that is searched
MOST_CHIPS = 4608
#: chips of the cluster that says first how much a unit carries: enough that replicas may be wide
_FIRST_CHIPS = 256
#: gap of that search: it says where to look, and proves little
_FIRST_GAP = 0.05
#: a rough answer says enough where it is so many times from the peak
_NEAR = 2.0


@dataclass(frozen=True)
class Capability:
    """What ``units`` carry: a verified layout's requests per second, and what none can exceed."""

    units: int
    requests_per_s: float
    most_requests_per_s: float
    layout: Layout


class Units:
    """Searches on so many units of a kind, each made once."""

    def __init__(self, scenario: Scenario, kind: str, clock: Clock, gap: float, seed: int) -> None:
        self.scenario, self.kind, self.clock = scenario, kind, clock
        self.gap, self.seed = gap, seed
        self.known: dict[int, Capability] = {}
        one = self.instance(1)
        self.chips = len(one.cluster.chips)
        self.output_tokens = one.workload.output_tokens
        factor = one.scenario.prices.chip_price_factor
        self.usd_per_hour = sum(p.chip.usd_per_hour for p in one.cluster.chips) * factor

    def instance(self, units: int) -> Instance:
        """The question on so many units, all of them paid, as many requests as they serve."""
        cluster = self.kind if units == 1 else f"{self.kind}@{units}"
        return resolve_instance(
            self.scenario.model_copy(update={"cluster": cluster, "rate": None, "pay": "whole"})
        )

    def carried(self, units: int, gap: float | None = None) -> Capability:
        """What so many units carry. Raises ``NoFeasibleLayout`` where nothing fits on them."""
        if units not in self.known:
            found = search(
                self.instance(units), clock=self.clock, gap=gap or self.gap, seed=self.seed
            )
            served = found.evaluation.requests_per_s
            hourly = found.evaluation.usd_per_hour
            assert served is not None
            assert hourly is not None
            bound = found.certificate.bound_usd_per_m_output_tokens
            most = hourly / SECONDS_PER_HOUR / bound * 1e6 / self.output_tokens
            self.known[units] = Capability(units, served, most, found.layout)
        return self.known[units]

    def proven(self, rough: Capability, peak: float) -> Capability:
        """The same units searched to the gap asked for, where a rough answer is near the peak."""
        if rough.most_requests_per_s < peak / _NEAR or rough.requests_per_s > peak * _NEAR:
            return rough
        del self.known[rough.units]
        return self.carried(rough.units)

    def fitting(self, units: int) -> Capability | None:
        """What so many units carry; ``None`` where nothing fits on them."""
        try:
            return self.carried(units)
        except NoFeasibleLayout:
            return None

    def first(self) -> Capability:
        """What about :data:`_FIRST_CHIPS` chips carry, or the first of 2, 4, ... times as many that fit."""
        units = max(1, _FIRST_CHIPS // self.chips)
        while True:
            try:
                return self.carried(units, max(self.gap, _FIRST_GAP))
            except NoFeasibleLayout:
                units *= 2
                if units * self.chips > MOST_CHIPS:
                    raise

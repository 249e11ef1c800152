"""What numbers of whole units (racks, nodes, slices) of one kind carry: searches, each made once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.layout.layout import Layout
from costmodel.question.engine import ANY
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.bounds.relaxed import relaxed_bound
from solver.clock import Clock
from solver.known import Known
from solver.plan.sizing.peak import PeakReplay, peak_replay
from solver.search import kept_groundwork, search
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: chips of the largest cluster that is searched
MOST_CHIPS = 4608
#: chips of the cluster that says first how much a unit carries: enough that replicas may be wide
_FIRST_CHIPS = 256
#: gap of that search: it says where to look, and proves little
_FIRST_GAP = 0.05
#: the bound of a unit is so many times tighter than the gap of searches
_TIGHTER = 4.0
#: a rough answer says enough where it is so many times from the peak
_NEAR = 2.0


@dataclass(frozen=True)
class Capability:
    """What ``units`` carry: a verified layout's requests per second, what none can exceed, and what these rest on."""

    units: int
    requests_per_s: float
    most_requests_per_s: float
    layout: Layout
    provenance: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


class Units:
    """Searches on so many units of a kind, each made once."""

    def __init__(self, scenario: Scenario, kind: str, clock: Clock, gap: float, seed: int) -> None:
        self.scenario, self.kind, self.clock = scenario, kind, clock
        self.gap, self.seed = gap, seed
        self.known: dict[int, Capability] = {}
        one = self.instance(1)
        self.chips = len(one.cluster.chips)
        self.output_tokens: float = one.workload.output_tokens
        factor = one.scenario.prices.chip_price_factor
        self.usd_per_hour = sum(p.chip.usd_per_hour for p in one.cluster.chips) * factor

    def instance(self, units: int) -> Instance:
        """The question on so many units, all of them paid, as many requests as they serve."""
        cluster = self.kind if units == 1 else f"{self.kind}@{units}"
        return resolve_instance(
            self.scenario.model_copy(update={"cluster": cluster, "rate": None, "pay": "whole"})
        )

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Searches in here have a share of the time that is left."""
        whole = self.clock
        self.clock = whole.follower(share)
        try:
            yield
        finally:
            self.clock = whole

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
            most = self._requests_per_s(hourly, bound)
            self.known[units] = Capability(
                units, served, most, found.layout, found.evaluation.provenance or {}, found.evaluation.assumed
            )  # fmt: skip
        return self.known[units]

    def bounds(self) -> dict[int, float]:
        """Requests/s that no layout exceeds, by numbers of units of which it is known."""
        return {n: one.most_requests_per_s for n, one in self.known.items()}

    def about(self, number: int, carried: Capability | None, peak: float) -> int:
        """How many units carry the peak, by what ``number`` of them do."""
        served = carried.requests_per_s if carried is not None else 0.0
        return ceil(number * peak / served) if served else 2 * number

    def most_of_each(self, count: int) -> float:
        """Requests/s of a unit that no layout exceeds on up to ``count`` of them; infinite where the time is over."""
        asked = resolve_instance(self.instance(count).scenario.model_copy(update={"pay": "used"}))
        try:
            relaxed = relaxed_bound(
                asked, clock=self.clock, gap=self.gap / _TIGHTER, seed=self.seed
            )
        except (NoFeasibleLayout, NoLayoutInTime):  # no time for a bound: something fits on so many
            return inf
        return self._requests_per_s(self.usd_per_hour, relaxed.bound_usd_per_m_output_tokens)

    def replayed(self, units: int, rate: float) -> PeakReplay:
        """Random arrivals at such a rate, run through the layout of so many units."""
        return peak_replay(self.instance(units), self.carried(units).layout, units, rate, self.seed)

    def fitting(self, units: int) -> Capability | None:
        """What so many units carry; ``None`` where proven that nothing fits on them."""
        try:
            return self.carried(units)
        except NoFeasibleLayout as error:
            if not error.proven:
                raise
            return None

    def _may_do(self, peak: float) -> float:
        """How many units may carry the peak, by what no shapes on one of them exceed; infinite where nothing fits there.

        That takes a small part of a search of one, and is kept for it.
        """
        one = self.instance(1)
        if one.scenario.engine == ANY or one.scenario.kv_tiers or one.workload.hold_s is not None:
            return inf  # several questions in one
        known = Known(one, self.clock, self.gap, self.seed, None, ground=kept_groundwork(one))
        usd = known.first_bound_usd()
        return inf if usd == inf else ceil(peak / self._requests_per_s(self.usd_per_hour, usd))

    def _requests_per_s(self, usd_per_hour: float, usd: float) -> float:
        """Requests/s for so much money per hour where a million output tokens cost ``usd``."""
        return usd_per_hour / SECONDS_PER_HOUR / usd * 1e6 / self.output_tokens

    def first(self, peak: float) -> Capability:
        """What as few units carry as may be enough by the bounds of shapes, where these are less than :data:`_FIRST_CHIPS` chips.

        Else what about so many chips carry, or the first of 2, 4, ... times as many that fit; roughly, where that is far from the peak.
        """
        units = max(1, _FIRST_CHIPS // self.chips)
        few = self._may_do(peak)
        if few < units:
            with suppress(NoFeasibleLayout):
                return self.carried(int(few))
        while True:
            try:
                rough = self.carried(units, max(self.gap, _FIRST_GAP))
                if (
                    rough.most_requests_per_s >= peak / _NEAR
                    and rough.requests_per_s <= peak * _NEAR
                ):
                    del self.known[units]
                return self.carried(units)
            except NoFeasibleLayout:
                units *= 2
                if units * self.chips > MOST_CHIPS:
                    raise

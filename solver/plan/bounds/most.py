"""What whole units carry at most for a model, whatever layout they run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.engine import ANY
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic, over_time
from costmodel.question.traffic.requests import Requests
from costmodel.replay.targets import Targets
from solver.bounds.relaxed import relaxed_bound
from solver.clock import Clock
from solver.known import Known
from solver.plan.groups import on_units
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.arrivals import most_in_time
from solver.traffic.bounds.late import least_usd, rates_with_late
from solver.traffic.ways import chunk_line, chunks_of, of_chunk
from topology.errors import NoFeasibleLayout

#: chips on which the bound of a unit is a search's; with more, fractions of replicas say as much and are quick
_WHOLE_CHIPS = 256
#: that bound is so many times tighter than the gap of searches: it is quick, and whole plans rest on it
_TIGHTER = 4.0


@dataclass(frozen=True)
class Every:
    """What every order of a model's requests has to carry on some units; ``requests``: of traffic, of which a share is exempt.

    ``share``: see :class:`Questions`. ``targets``: where requests come at a known rate, for which mixed replicas take short turns.
    """

    instance: Instance
    requests: Requests | None = None
    exempt: float = 0.0
    share: float = 1.0
    targets: Targets | None = None

    @classmethod
    def on(
        cls, model: PlanModel, units: PlanUnits, number: int, off: int, pay: str, seed: int
    ) -> tuple[Every, ...]:
        """Those of so many units."""
        scenario = model.scenario(*on_units(units.cluster, number, off))
        return cls.of(scenario, None if model.traffic is None else asked_of(model, seed), pay)

    @classmethod
    def of(cls, scenario: Scenario, asked: Asked | None, pay: str) -> tuple[Every, ...]:
        """That of a question; with traffic one for each of the tokens that a pass may take."""
        if asked is None:
            return (cls(resolve_instance(scenario.model_copy(update={"pay": pay}))),)
        found = []
        for chunk in chunks_of(scenario, asked):
            own = questions(of_chunk(scenario, chunk), asked)
            every = at_any_rate(own.every, pay)
            found.append(cls(every, asked.requests, own.exempt, own.share))
        return tuple(found)

    def requests_per_s(self, usd: float) -> float:
        """Requests/s of all chips, if a million output tokens costs so much."""
        if usd <= 0.0:
            return inf
        prices = sum(chip.chip.usd_per_hour for chip in self.instance.cluster.usable)
        hourly = prices * self.instance.scenario.prices.chip_price_factor
        tokens = self.instance.workload.output_tokens
        return hourly / SECONDS_PER_HOUR / usd * 1e6 / tokens

    def bounded_usd(self, clock: Clock, seed: int) -> float:
        """Dollars per million output tokens by the bounds of shapes alone, late requests counted."""
        return least_usd(*self.bounded(clock, seed))

    def bounded(self, clock: Clock, seed: int) -> tuple[Known, NDArray[np.float64]]:
        """Shapes, and requests/s that none exceeds, late requests counted."""
        known = Known(self.instance, clock, 0.0, seed, None)
        rates = known.items.upper
        if self.requests is not None:
            rates = rates_with_late(known, self.requests, self.exempt, self.targets)
        return known, rates

    @property
    def joined(self) -> Every:
        """The same where all chips are joined as those of a unit are."""
        cluster = self.instance.cluster.in_one_unit
        return replace(self, instance=replace(self.instance, cluster=cluster))

    @property
    def chunk(self) -> int:
        """Prompt tokens that a pass takes at most."""
        return self.instance.scenario.limits.prefill_chunk_tokens

    @property
    def several(self) -> bool:
        """Whether engines or places of KV are several questions in one."""
        scenario, workload = self.instance.scenario, self.instance.workload
        return scenario.engine == ANY or workload.hold_s is not None


def most_of_a_unit(
    model: PlanModel, units: PlanUnits, off: int, clock: Clock, gap: float, seed: int
) -> tuple[float, tuple[str, ...]]:
    """Requests/s of a unit that no layout on any number of units exceeds, and what that covers."""
    every = Every.on(model, units, units.count, off, "used", seed)
    rate, covers = _most(every, clock, gap, seed)
    return rate / units.count, covers


def most_of_traffic(
    scenario: Scenario, asked: Asked, pay: str, clock: Clock, gap: float, seed: int
) -> float:
    """Requests/s of such traffic that no layout on a question's cluster exceeds, all of its chips paid or those in use.

    With any of the tokens that a pass may take.
    """
    requests = asked.arriving
    ways = tuple(
        replace(one, requests=requests, targets=asked.targets)
        for one in Every.of(scenario, asked, pay)
    )
    return _most(ways, clock, gap, seed)[0]


def most_of_arrivals(scenario: Scenario, asked: Asked, clock: Clock, seed: int) -> float:
    """Requests/s up to those asked for beyond which such prompts cannot be in time on a question's cluster; ``inf``: they may be.

    Of the requests in their order, all gaps between them stretched alike: a part of them comes otherwise.
    """
    requests = asked.arriving
    return max(
        most_in_time(Known(every.instance, clock, 0.0, seed, None), requests, asked.targets)
        for every in Every.of(scenario, asked, "used")
    )


def _most(
    ways: tuple[Every, ...], clock: Clock, gap: float, seed: int
) -> tuple[float, tuple[str, ...]]:
    """Requests/s that no layout on the chips exceeds, and what that covers. Raises what searches raise, ``NoLayoutInTime``."""
    most, covers = 0.0, tuple[str, ...]()
    errors: list[NoFeasibleLayout] = []
    for every in ways:
        # bounds of shapes are quick, and most ways are worse than the best by far
        alone = every.bounded_usd(clock, seed) if every.requests is not None else 0.0
        if alone and every.requests_per_s(alone * every.share) <= most:
            continue
        try:
            bound, said = _least_usd(every, clock, gap, seed)
        except NoFeasibleLayout as error:
            if not error.proven:
                raise
            errors.append(error)
            continue
        bound = max(bound, alone)
        if bound <= 0.0:
            raise clock.late("a bound")
        rate = every.requests_per_s(bound * every.share)
        if rate > most:
            most, covers = rate, said
    if len(errors) == len(ways):
        raise errors[0]
    if len(ways) > 1:
        covers = (*covers, chunk_line([one.chunk for one in ways]))
    return most, covers


def _least_usd(every: Every, clock: Clock, gap: float, seed: int) -> tuple[float, tuple[str, ...]]:
    """Dollars per million output tokens that no layout costs less than, and what that covers."""
    instance = every.instance
    if not every.several and len(instance.cluster.usable) > _WHOLE_CHIPS:
        relaxed = relaxed_bound(instance, clock=clock, gap=gap / _TIGHTER, seed=seed)
        return relaxed.bound_usd_per_m_output_tokens, relaxed.covers
    # of few chips whole fleets say more than fractions
    found = search(instance, clock=clock, gap=gap, seed=seed)
    return found.certificate.bound_usd_per_m_output_tokens, found.certificate.covers


def asked_of(model: PlanModel, seed: int) -> Asked:
    """The traffic of a model at its own rate."""
    assert model.traffic is not None
    requests = over_time(load_traffic(model.traffic, seed=seed).whole_prompts(), model.traffic)
    return Asked(requests, Targets(model.slo.ttft, model.slo.tpot))


def at_any_rate(instance: Instance, pay: str) -> Instance:
    """The same question without a rate."""
    return resolve_instance(
        instance.scenario.model_copy(update={"rate": None, "pay": pay, "slo": instance.slo})
    )

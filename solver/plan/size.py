"""How many whole units (racks, nodes, slices) of one kind carry a peak rate after a loss, and what that costs.

``n`` units carry what the best layout on ``n`` units serves, and never more than the bound of that search
allows: ``n`` is enough where a verified layout serves the peak, and too few where the bound says that no
layout does. Units that may be lost come on top, idle while none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario, without_apart
from solver.clock import Clock
from solver.search import search
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: chips of the largest cluster that is searched
MOST_CHIPS = 4608
#: chips of the cluster that says first how much a unit carries: enough that replicas may be wide
_FIRST_CHIPS = 256
#: gap of that search: it says where to look, and proves little
_FIRST_GAP = 0.05
#: a rough answer says enough where it is so many times from the peak
_NEAR = 2.0
#: units fewer than a bound alone says are too few, looked at first: bounds are not quite in proportion
_RATHER = 0.5
#: a kind that seems to need so many times the largest cluster is not searched there
_FAR = 1.05


@dataclass(frozen=True)
class Capability:
    """What ``units`` carry: a verified layout's requests per second, and what none can exceed."""

    units: int
    requests_per_s: float
    most_requests_per_s: float
    layout: Layout | None


@dataclass(frozen=True)
class Sized:
    """One kind of hardware. ``count`` is ``None`` where the peak needs more than :data:`MOST_CHIPS` chips.

    ``least``: no smaller number carries the peak after the loss, proven. ``spare``: units of ``count`` that
    may be lost. ``headroom``: what the rest carries over the peak, less 1. ``gap``: ``count`` over ``least``,
    less 1. Money is for all units, at the mean rate.
    """

    kind: str
    chips_per_unit: int
    count: int | None
    least: int
    spare: int
    carried_requests_per_s: float
    headroom: float
    usd_per_hour: float
    usd_per_m_output_tokens: float
    gap: float
    reason: str
    tried: tuple[Capability, ...]


@dataclass(frozen=True)
class Wanted:
    """What is to be carried: a mean rate (requests/s), its peak as a multiple, units that may be lost."""

    rate: float
    peak: float = 1.0
    spare: int = 0

    @property
    def peak_rate(self) -> float:
        """Requests per second at the peak."""
        return self.rate * self.peak


def size(
    scenario: Scenario,
    kinds: Sequence[str],
    wanted: Wanted,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
) -> list[Sized]:
    """The fewest units of each kind that carry the wanted rate, cheapest kind first.

    Parameters
    ----------
    scenario
        Model, workload and targets; its cluster and rate are not read.
    kinds
        Cluster names of one unit each, without a count.
    wanted
        Rate, peak and loss.
    gap
        Gap of each search.

    Raises
    ------
    InstanceError
        A kind is unknown or names a count.
    NoFeasibleLayout
        The targets cannot be met on any kind.
    """
    without_apart(scenario, "sizing")
    counted = [kind for kind in kinds if "@" in kind]
    if counted:
        raise InstanceError(
            [Problem("--buy", f"{kind}: name one unit, without a count") for kind in counted]
        )
    found, refused = [], []
    for kind in kinds:
        search_units = _Units(scenario, kind, clock, gap, seed)
        try:
            found.append(_sized(search_units, kind, wanted))
        except NoFeasibleLayout as error:
            refused.append(f"{kind}: {error}")
            continue
    if not found:
        raise NoFeasibleLayout("\n".join(refused))
    return sorted(found, key=lambda one: (one.count is None, one.usd_per_hour))


class _Units:
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


@dataclass
class _Known:
    """What is known of numbers of units: ``few`` and less are proven too few, ``enough`` carry the peak.

    ``open``: neither; between what was found there and its bound lies the peak.
    """

    few: int = 0
    enough: int | None = None
    open: tuple[int, ...] = ()

    def add(self, number: int, carried: Capability | None, peak: float) -> None:
        """Note what a search said; ``None``: nothing fits."""
        if carried is None or carried.most_requests_per_s < peak:
            self.few = max(self.few, number)
        elif carried.requests_per_s >= peak:
            self.enough = number if self.enough is None else min(number, self.enough)
        else:
            self.open = (*self.open, number)

    def next(self, about: int, beneath: int) -> int | None:
        """The number to search next; ``None`` once no search says more.

        First, near ``about``, what is enough; then, near ``beneath``, what is proven too few.
        """
        fails = max(self.few, *self.open, 0)
        if self.enough is None:
            return max(about, fails + 1)
        if self.enough - fails > 1:
            return min(max(about, fails + 1), self.enough - 1)
        below = min(self.enough, *self.open, self.enough) - 1
        return min(max(beneath, self.few + 1), below) if below > self.few else None


def _sized(units: _Units, kind: str, wanted: Wanted) -> Sized:
    """Units of one kind: what a few carry says about how many it takes; searches near there say exactly."""
    peak, known = wanted.peak_rate, _Known()
    largest = MOST_CHIPS // units.chips - wanted.spare
    first = units.proven(units.first(), peak)
    number = first.units
    carried: Capability | None = first
    while True:
        known.add(number, carried, peak)
        served = carried.requests_per_s if carried is not None else 0.0
        about = ceil(number * peak / served) if served else 2 * number
        most = carried.most_requests_per_s if carried is not None else peak
        beneath = number + floor(number * (peak / most - 1.0) - _RATHER)
        if known.enough is None and (number >= largest or about > largest * _FAR):
            return _too_many(units, kind, wanted, max(about, number + 1))
        after = known.next(min(about, largest), beneath)
        if after is None:
            break
        try:
            number, carried = after, units.fitting(after)
        except NoLayoutInTime:
            if known.enough is None:
                raise
            break
    assert known.enough is not None
    total, least = known.enough + wanted.spare, known.few + 1 + wanted.spare
    return _priced(units, kind, wanted, total, least, units.carried(known.enough), "")


def _too_many(units: _Units, kind: str, wanted: Wanted, about: int) -> Sized:
    reason = (
        f"needs about {(about + wanted.spare) * units.chips:,} chips; clusters of more than "
        f"{MOST_CHIPS:,} are not solved"
    )
    largest = units.known[max(units.known)]
    return _priced(units, kind, wanted, None, about + wanted.spare, largest, reason)


def _priced(
    units: _Units,
    kind: str,
    wanted: Wanted,
    count: int | None,
    least: int,
    carried: Capability,
    reason: str,
) -> Sized:
    total = count or least
    hourly = total * units.usd_per_hour
    return Sized(
        kind=kind,
        chips_per_unit=units.chips,
        count=count,
        least=least,
        spare=wanted.spare,
        carried_requests_per_s=carried.requests_per_s,
        headroom=carried.requests_per_s / wanted.peak_rate - 1.0 if count else 0.0,
        usd_per_hour=hourly,
        usd_per_m_output_tokens=hourly
        / SECONDS_PER_HOUR
        / (wanted.rate * units.output_tokens)
        * 1e6,
        gap=total / least - 1.0,
        reason=reason,
        tried=tuple(units.known[n] for n in sorted(units.known)),
    )

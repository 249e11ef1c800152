"""How many whole units (racks, nodes, slices) of one kind carry a peak rate after a loss, and what that costs.

``n`` units carry what the best layout on ``n`` units serves, and never more than the bound of that search
allows: ``n`` is enough where a verified layout serves the peak, and too few where the bound says that no
layout does. Units that may be lost come on top, idle while none is lost: after a loss, one takes the lost one's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.question.scenario import Scenario, without_apart
from solver.clock import Clock
from solver.plan.sizing.carried import MOST_CHIPS, Capability, Units
from solver.plan.sizing.for_traffic import TrafficUnits
from solver.plan.sizing.known import Known
from solver.plan.sizing.peak import PeakReplay, check_targets, fewest_that_meet
from solver.traffic.asked import Asked
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem, noted, option

#: units fewer than a bound alone says are too few, looked at first: bounds are not quite in proportion
_RATHER = 0.5
#: a kind that seems to need so many times the largest cluster is not searched there
_FAR = 1.05
#: why a kind is left out that no time was left for
NO_TIME = "the time limit came before it was sized"


@dataclass(frozen=True)
class Sized:
    """One kind of hardware. ``count`` is ``None`` where the peak needs more than :data:`MOST_CHIPS` chips.

    ``least``: no smaller number carries the peak after the loss, proven. ``about``: ``count``, or without one what
    smaller numbers let expect. ``spare``: units of it that may be lost. ``headroom``: what the rest carries over the peak,
    less 1. ``gap``: ``count`` over ``least``, less 1. Money is for ``about`` units, at the mean rate. ``replays``: random arrivals at the peak on what a loss
    leaves, where they were asked for; the last is of ``count`` less ``spare``. ``met``: what it says, ``None`` where
    there is none. ``provenance``: what the figures rest on, ``assumed``: which inputs are assumed.
    """

    kind: str
    chips_per_unit: int
    count: int | None
    least: int
    about: int
    spare: int
    carried_requests_per_s: float
    headroom: float
    usd_per_hour: float
    usd_per_m_output_tokens: float
    gap: float | None
    reason: str
    tried: tuple[Capability, ...]
    replays: tuple[PeakReplay, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    @property
    def met(self) -> bool | None:
        """Whether random arrivals at the peak meet the targets; ``None``: not replayed."""
        return self.replays[-1].meets if self.replays else None


@dataclass(frozen=True)
class Wanted:
    """What is to be carried: a mean rate (requests/s), its peak as a multiple, units that may be lost.

    ``spare_chips``: instead of ``spare``, chips that may be lost; of each kind as many units as hold them.
    """

    rate: float
    peak: float = 1.0
    spare: int = 0
    spare_chips: int = 0

    @property
    def peak_rate(self) -> float:
        """Requests per second at the peak."""
        return self.rate * self.peak

    def lost(self, chips_per_unit: int) -> int:
        """Units of so many chips that may be lost."""
        return self.spare or ceil(self.spare_chips / chips_per_unit)


def size(
    scenario: Scenario,
    kinds: Sequence[str],
    wanted: Wanted,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    replays: bool = False,
    on_sized: Callable[[list[Sized]], None] = lambda sized: None,
    searched: dict[str, Units] | None = None,
    asked: Asked | None = None,
    left_out: dict[str, str] | None = None,
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
    replays
        Whether numbers grow until replays of random arrivals at the peak meet the targets.
    on_sized
        Is told the kinds that are sized for even arrivals so far, after each of them, before the first replay.
    searched
        Takes what was searched of each kind, for :func:`solver.plan.sizing.mix.mix`.
    asked
        Requests of unlike lengths and their percentiles; units then carry the peak where a layout's replays meet them.
    left_out
        Takes the kinds that cannot be asked about or on which nothing fits, or for which no time was left, with the reason.

    Raises
    ------
    InstanceError
        A kind is unknown or names a count; none can be asked about; replays are wanted and there is no target.
    NoFeasibleLayout
        The targets cannot be met on any kind.
    NoLayoutInTime
        The time was over before any kind was sized.
    """
    without_apart(scenario, "sizing")
    check_kinds(kinds)
    searched = {} if searched is None else searched
    left_out = {} if left_out is None else left_out
    refused: dict[str, InstanceError] = {}
    found: list[Sized] = []
    late: NoLayoutInTime | None = None
    for kind in kinds:
        try:
            searched[kind] = (
                Units(scenario, kind, clock, gap, seed)
                if asked is None
                else TrafficUnits(
                    scenario,
                    kind,
                    clock,
                    gap,
                    seed,
                    replace(asked, requests=asked.requests.at_rate(wanted.peak_rate)),
                )
            )
        except InstanceError as error:
            refused[kind] = error
    if replays and asked is None and searched:
        check_targets(next(iter(searched.values())).instance(1))
    for at, kind in enumerate(kinds):
        try:
            if kind in searched:
                # a kind that takes long leaves time for the others
                with searched[kind].within(1.0 / (len(kinds) - at)):
                    found = _cheapest_first([*found, _sized(searched[kind], kind, wanted)])
        except InstanceError as error:
            refused[kind] = error
        except NoFeasibleLayout as error:
            left_out[kind] = str(error)
        except NoLayoutInTime as error:
            late = error
            left_out[kind] = NO_TIME
        if kind in refused:
            left_out[kind] = "; ".join(map(str, refused[kind].problems))
        if found:
            on_sized(found)
    if len(refused) == len(kinds):
        raise InstanceError(dict.fromkeys(p for kind in kinds for p in refused[kind].problems))
    if not found:
        raise late or NoFeasibleLayout(
            "\n".join(f"{kind}: {why}" for kind, why in left_out.items())
        )
    if not replays:
        return found
    return _cheapest_first([_replayed(searched[one.kind], one, wanted) for one in found])


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise ``InstanceError`` with every kind that is unknown or names a count."""
    problems: list[Problem] = []
    for kind in kinds:
        with noted(problems):
            if "@" in kind:
                raise InstanceError(
                    Problem(option("buy"), f"{kind}: name one unit, without a count")
                )
            load_cluster(kind)
    if problems:
        raise InstanceError(problems)


def _cheapest_first(found: list[Sized]) -> list[Sized]:
    return sorted(found, key=lambda one: (one.count is None, one.usd_per_hour))


def _sized(units: Units, kind: str, wanted: Wanted) -> Sized:
    """Units of one kind: what a few carry says about how many it takes; searches near there say exactly."""
    peak, known, spare = wanted.peak_rate, Known(), wanted.lost(units.chips)
    largest = MOST_CHIPS // units.chips - spare
    first = units.first(peak)
    number = first.units
    carried: Capability | None = first
    while True:
        known.add(number, carried, peak)
        about = units.about(number, carried, peak)
        most = peak if carried is None else carried.most_requests_per_s or peak
        beneath = number + floor(number * (peak / most - 1.0) - _RATHER)
        if known.enough is None and (number >= largest or about > largest * _FAR):
            few = known.few + 1 + spare
            return _too_many(units, kind, wanted, few, max(about, number + 1) + spare)
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
    total, least = known.enough + spare, known.few + 1 + spare
    return _priced(units, kind, wanted, total, least, units.carried(known.enough), "")


def _replayed(units: Units, one: Sized, wanted: Wanted) -> Sized:
    """The fewest units whose replays meet the targets, from what even arrivals take; as it is once time is over."""
    if one.count is None:
        return one

    def met_on(number: int) -> PeakReplay | None:
        """A replay of the best layout on so many units; ``None``: no time is left."""
        if units.clock.over:
            return None
        try:
            return units.replayed(number, wanted.peak_rate)
        except NoLayoutInTime:
            return None

    first, largest = one.count - one.spare, MOST_CHIPS // units.chips - one.spare
    seen = fewest_that_meet(met_on, first, max(first, largest))
    if not seen:
        return one
    number, reason = seen[-1].units, ""
    if not seen[-1].meets and number >= largest and not units.clock.over:
        reason = (
            f"random arrivals miss a target on all {number * units.chips:,} chips that are solved"
        )
    again = _priced(
        units, one.kind, wanted, number + one.spare, one.least, units.carried(number), reason
    )
    return replace(again, replays=seen)


def _too_many(units: Units, kind: str, wanted: Wanted, least: int, about: int) -> Sized:
    reason = f"needs about {about * units.chips:,} chips; clusters of more than {MOST_CHIPS:,} are not solved"
    largest = units.known[max(units.known)]
    priced = _priced(units, kind, wanted, about, least, largest, reason)
    return replace(priced, count=None, headroom=0.0, gap=None)


def _priced(
    units: Units,
    kind: str,
    wanted: Wanted,
    count: int,
    least: int,
    carried: Capability,
    reason: str,
) -> Sized:
    hourly = count * units.usd_per_hour
    return Sized(
        kind=kind,
        chips_per_unit=units.chips,
        count=count,
        least=least,
        about=count,
        spare=wanted.lost(units.chips),
        carried_requests_per_s=carried.requests_per_s,
        headroom=carried.requests_per_s / wanted.peak_rate - 1.0,
        usd_per_hour=hourly,
        usd_per_m_output_tokens=hourly
        / SECONDS_PER_HOUR
        / (wanted.rate * units.output_tokens)
        * 1e6,
        gap=count / least - 1.0,
        reason=reason,
        tried=tuple(units.known[n] for n in sorted(units.known)),
        provenance=carried.provenance,
        assumed=carried.assumed,
    )

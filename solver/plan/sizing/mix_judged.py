"""The cheapest mix of kinds whose replays meet percentiles: traffic of unlike lengths, or random arrivals at the peak.

CP-SAT chooses numbers by what they are likely to carry, as far as that is known of other numbers; what it chooses is searched and replayed
after every loss, and it chooses again, until nothing cheaper is likely. The bound is CP-SAT's choice by what numbers carry at most.
Each kind meets the targets with its own share: nobody is worse off by where chance sends him, and a kind's bound for every order of
requests holds for its share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from solver.clock import Clock
from solver.plan.sizing.carried import Units
from solver.plan.sizing.carriers import Carrier, RandomCarrier, TrafficCarrier
from solver.plan.sizing.choose import left_of
from solver.plan.sizing.for_traffic import TrafficUnits
from solver.plan.sizing.mix import COVERS, Alone, Kind, Mix, choice_of, mix_of
from solver.plan.sizing.mix_replay import (
    Draws,
    Missed,
    MixReplay,
    RandomDraws,
    TrafficDraws,
    replay_mix,
)
from solver.plan.sizing.size import Sized, Wanted
from solver.traffic.asked import COVERS as EVERY_ORDER
from solver.traffic.asked import WHOLE
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: layouts searched for a mix at least: as many as the kinds alone took, if that is more; mixes replayed
_SEARCHES, _REPLAYED = 4, 6
#: losses after which a mix is replayed, at most: one that more may happen to is not looked at
_LOSSES = 40
_MEETS = "each kind meets the targets with its own share of the requests, which chance deals out"
_EVEN = "even arrivals: what random ones ask for beyond that is in the gap"


def mix_for_traffic(
    searched: Mapping[str, Units],
    found: Sequence[Sized],
    wanted: Wanted,
    *,
    clock: Clock,
    seed: int = 0,
    on_better: Callable[[Mix], None] = lambda better: None,
) -> Mix | None:
    """The cheapest mix found for traffic; ``None`` where no kind alone is known to carry the peak.

    Parameters
    ----------
    searched
        A :class:`TrafficUnits` of each kind, as :func:`solver.plan.sizing.size.size` leaves it; searches are added.
    found
        What it found of each kind.
    wanted
        Rate, peak and loss.
    on_better
        Is told each better mix.
    """
    found = [replace(one, count=None) if one.met is False else one for one in found]
    alone = Alone.of(found)
    if alone is None:
        return None
    own = searched[found[0].kind]
    assert isinstance(own, TrafficUnits)
    draws = TrafficDraws(own.asked, seed)
    kinds = Kind.all(searched, found, alone)
    carriers = [
        TrafficCarrier(kind, one, wanted, draws) for kind, one in zip(kinds, found, strict=True)
    ]
    most = max(_SEARCHES, sum(one.units.searches for one in carriers))
    work = Work(search=lambda: sum(one.searches for one in carriers) < most)
    covers = (*COVERS, _MEETS, *EVERY_ORDER, *WHOLE)
    mixing = _Judged(carriers, alone, wanted, draws, covers, clock, seed)
    low = mixing.low()
    on_better(mixing.answer(low))
    mixing.run(low, work, on_better)
    # what was searched is bounded more closely
    return mixing.answer(max(low, mixing.low()))


def mix_at_random(
    searched: Mapping[str, Units],
    found: Sequence[Sized],
    wanted: Wanted,
    even: Mix,
    *,
    clock: Clock,
    seed: int = 0,
    on_better: Callable[[Mix], None] = lambda better: None,
) -> Mix:
    """The cheapest mix found whose replays of random arrivals at the peak meet the targets.

    ``found``: kinds with their replays. ``even``: the mix for even arrivals, the answer where the time allowed no replay of any kind.
    Its bound holds here, too.
    """
    met = [one if one.met else replace(one, count=None) for one in found]
    alone = Alone.of(met)
    if alone is None:
        return even
    kinds = Kind.all(searched, met, alone)
    carriers = [RandomCarrier(kind, one, wanted) for kind, one in zip(kinds, met, strict=True)]
    draws = RandomDraws(wanted.peak_rate, kinds[0].units.instance(1).slo, seed)
    mixing = _Judged(carriers, alone, wanted, draws, (*COVERS, _EVEN), clock, seed)
    # a mix is replayed again while that takes no more than the kinds alone did
    most = sum(seen.requests for one in found for seen in one.replays)
    low = even.bound_usd_per_hour
    mixing.run(low, Work(replay=lambda: mixing.requests < most), on_better)
    return mixing.answer(low)


@dataclass(frozen=True)
class Work:
    """Whether one more number may be searched, and one more mix replayed, so that a mix takes about as long as its kinds alone."""

    search: Callable[[], bool] = lambda: True
    replay: Callable[[], bool] = lambda: True


class _Judged:
    """State of one search: the best mix that replays confirmed, or the cheapest kind alone."""

    def __init__(
        self,
        carriers: Sequence[Carrier],
        alone: Alone,
        wanted: Wanted,
        draws: Draws,
        covers: tuple[str, ...],
        clock: Clock,
        seed: int,
    ) -> None:
        self.covers = covers
        self.carriers, self.alone, self.wanted = carriers, alone, wanted
        self.draws, self.clock, self.seed = draws, clock, seed
        self.kinds = [one.kind for one in carriers]
        self.choice = choice_of(self.kinds, wanted, clock, seed)
        self.best = [alone.units if k == alone.place else 0 for k in range(len(carriers))]
        self.replays: tuple[MixReplay, ...] = ()
        self.requests = 0

    def low(self) -> float:
        """Dollars per hour that no mix costs less than, by what numbers of units carry at most."""
        return self.choice.cheapest([kind.most() for kind in self.kinds])[1]

    def run(self, low: float, work: Work, on_better: Callable[[Mix], None]) -> None:
        """Choose, search and replay while there is time, ``work`` says so, and something cheaper is likely."""
        replayed = 0
        while not self.clock.over:
            usd = self.choice.usd(self.best)
            if low >= usd * (1 - ROUNDING):
                break
            chosen, _ = self.choice.cheapest([one.likely() for one in self.carriers], beneath=usd)
            if chosen is None or len(self._losses(chosen)) > _LOSSES:
                break
            unknown = self._unknown(chosen)
            if not (work.search() if unknown else work.replay() and replayed < _REPLAYED):
                break
            try:
                if unknown:
                    k, units, rate = unknown
                    self.carriers[k].learn(units, rate)
                    continue
                replayed += 1
                found = self._replayed(chosen)
            except (NoFeasibleLayout, NoLayoutInTime):
                break
            if found is not None:
                self.best, self.replays = chosen, found
                on_better(self.answer(low))

    def answer(self, low: float) -> Mix:
        """The best mix; ``low``: what none costs less than."""
        carried = self.choice.worst([one.carried() for one in self.carriers], self.best)
        found = mix_of(
            self.kinds, self.best, wanted=self.wanted, alone=self.alone, carried=carried, low=low
        )
        return replace(found, replays=self.replays, covers=self.covers)

    def _unknown(self, chosen: Sequence[int]) -> tuple[int, int, float] | None:
        """The first number of a kind for which a layout is still to be found, and the requests/s that it is for."""
        rates: dict[tuple[int, int], float] = {}
        for _, parts in self._after(chosen):
            for k, units, rate in parts:
                rates[k, units] = max(rate, rates.get((k, units), 0.0))
        unknown = (
            (*key, rate)
            for key, rate in rates.items()
            if not self.carriers[key[0]].knows(key[1], rate)
        )
        return next(unknown, None)

    def _losses(self, chosen: Sequence[int]) -> list[tuple[int, ...]]:
        """What may be lost, one more than are replayed at most."""
        return list(islice(self.choice.losses(chosen), _LOSSES + 1))

    def _after(
        self, chosen: Sequence[int]
    ) -> list[tuple[dict[str, int], list[tuple[int, int, float]]]]:
        """By loss, what is left: kind, units, and its requests/s, in proportion to what it is likely to carry."""
        likely, found = [one.likely() for one in self.carriers], []
        for lost in self._losses(chosen):
            left = left_of(chosen, lost)
            has = [own[n] for own, n in zip(likely, left, strict=True)]
            part = self.wanted.peak_rate / sum(has)
            named = {kind.name: n for kind, n in zip(self.kinds, lost, strict=True) if n}
            found.append((named, [(k, n, has[k] * part) for k, n in enumerate(left) if has[k] > 0]))
        return found

    def _replayed(self, chosen: Sequence[int]) -> tuple[MixReplay, ...] | None:
        """What requests meet after every loss; ``None``: some part of them misses a target."""
        found = []
        for lost, parts in self._after(chosen):
            if self.clock.over:
                return None
            stand = [self.carriers[k].part(units, rate) for k, units, rate in parts]
            seen = replay_mix(lost, stand, self.draws, self.seed)
            self.requests += seen.requests
            if isinstance(seen, Missed):
                late = next(k for k, one in enumerate(stand) if one is seen.part)
                k, units, rate = parts[late]
                self.carriers[k].miss(units, rate)
                return None
            found.append(seen)
        return tuple(found)

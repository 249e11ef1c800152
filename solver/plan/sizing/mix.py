"""The least money in whole units of several kinds together that carry a peak rate after a loss.

Each kind serves a part of the requests with a layout of its own. CP-SAT chooses numbers by what is known at most of them;
what it chooses is searched, and it chooses again, until what it chose is found to carry the peak. Numbers that no search has
looked at carry at most their part of what a relaxation allows one unit, and at least what searched numbers beside each other do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from costmodel.evaluate import SECONDS_PER_HOUR
from solver.clock import Clock
from solver.plan.sizing.carried import MOST_CHIPS, Units
from solver.plan.sizing.choose import Choice
from solver.plan.sizing.mix_replay import MixReplay
from solver.plan.sizing.size import Sized, Wanted
from solver.verify import ROUNDING
from topology.errors import NoLayoutInTime

#: numbers of units that are searched for a mix, at most
_SEARCHES = 40
#: what the bound of a mix holds for
COVERS = (
    "whole units of these kinds, each kind with layouts of its own that serve a share of the requests, of all lengths alike",
)


@dataclass(frozen=True)
class Mix:
    """Whole units by kind; ``carried_requests_per_s`` after the worst loss.

    ``bound_usd_per_hour``: no mix of these kinds costs less, as far as ``covers`` says. ``one_kind_usd_per_hour``: what the cheapest
    kind alone costs. Money is for all units, at the mean rate. ``replays``: what requests meet after each loss, where replays judged the mix.
    """

    units: dict[str, int]
    usd_per_hour: float
    usd_per_m_output_tokens: float
    carried_requests_per_s: float
    headroom: float
    bound_usd_per_hour: float
    one_kind_usd_per_hour: float
    covers: tuple[str, ...] = COVERS
    replays: tuple[MixReplay, ...] = ()

    @property
    def gap(self) -> float | None:
        """Money over the bound, less 1; ``None`` where the time was over before a bound."""
        low = self.bound_usd_per_hour
        return max(0.0, self.usd_per_hour / low - 1.0) if low > 0.0 else None


def mix(
    searched: Mapping[str, Units],
    found: Sequence[Sized],
    wanted: Wanted,
    *,
    clock: Clock,
    seed: int = 0,
) -> Mix | None:
    """The cheapest numbers of all kinds; ``None`` where no kind alone carries the peak.

    Parameters
    ----------
    searched
        What is known of each kind, as :func:`solver.plan.sizing.size.size` leaves it; searches are added.
    found
        What it found of each kind.
    wanted
        Rate, peak and loss.
    """
    alone = Alone.of(found)
    if alone is None:
        return None
    return _Mixing(Kind.all(searched, found, alone), alone, wanted, clock, seed).run()


@dataclass(frozen=True)
class Alone:
    """The cheapest kind alone: its place among all, its number, its money per hour."""

    place: int
    units: int
    usd_per_hour: float

    @classmethod
    def of(cls, found: Sequence[Sized]) -> Alone | None:
        """That of some kinds; ``None`` where none carries the peak."""
        costs = [
            (one.usd_per_hour, k, one.count) for k, one in enumerate(found) if one.count is not None
        ]
        if not costs:
            return None
        usd, place, count = min(costs)
        return cls(place, count, usd)


class Kind:
    """One kind: what numbers of its units carry at least and at most, as far as that is known."""

    def __init__(self, units: Units, name: str, count: int) -> None:
        self.units, self.name, self.count = units, name, count
        self.unfit = 0
        self.each = units.most_of_each(count) if count else 0.0

    @classmethod
    def all(cls, searched: Mapping[str, Units], found: Sequence[Sized], alone: Alone) -> list[Kind]:
        """All kinds, each with as many units as may be of use: more than one kind alone costs is none."""
        kinds = []
        for one in found:
            units = searched[one.kind]
            enough = one.count or MOST_CHIPS // units.chips
            paid = floor(alone.usd_per_hour / units.usd_per_hour + ROUNDING)
            kinds.append(cls(units, one.kind, min(enough, paid)))
        return kinds

    def search(self, number: int) -> bool:
        """Search a number that was not searched; whether it was."""
        if number <= self.unfit or number in self.units.known:
            return False
        if self.units.fitting(number) is None:
            self.unfit = number
        return True

    def least(self) -> list[float]:
        """Requests/s that none, one, two ... units are found to carry, searched numbers beside each other."""
        known = {n: one.requests_per_s for n, one in self.units.known.items()}
        table = [0.0]
        for number in range(1, self.count + 1):
            beside = (rate + table[number - n] for n, rate in known.items() if n <= number)
            table.append(max(table[-1], *beside, 0.0))
        return table

    def most(self) -> list[float]:
        """Requests/s that none, one, two ... units carry at most."""
        table = [n * self.each if n > self.unfit else 0.0 for n in range(1, self.count + 1)]
        table.insert(0, 0.0)
        for number, most in self.units.bounds().items():
            for n in range(min(number, self.count) + 1):
                table[n] = min(table[n], most)
        return table


class _Mixing:
    """State of one search for a mix."""

    def __init__(
        self, kinds: Sequence[Kind], alone: Alone, wanted: Wanted, clock: Clock, seed: int
    ) -> None:
        self.kinds, self.alone, self.wanted, self.clock = kinds, alone, wanted, clock
        self.choice = choice_of(kinds, wanted, clock, seed)
        self.best = [alone.units if k == alone.place else 0 for k in range(len(kinds))]
        #: chosen, searched, and neither found to carry the peak nor proven not to
        self.open: list[list[int]] = []

    def run(self) -> Mix:
        """The cheapest mix found, and its bound."""
        searches, usd = 0, self.choice.usd
        while True:
            most = [kind.most() for kind in self.kinds]
            chosen, low = self.choice.cheapest(most, without=self.open)
            least = [kind.least() for kind in self.kinds]
            better, _ = self.choice.cheapest(least, beneath=usd(self.best))
            self.best = better or self.best
            if chosen is None or low >= usd(self.best) * (1 - ROUNDING):
                break
            if searches >= _SEARCHES or self.clock.over:
                break
            try:
                new = sum(
                    kind.search(number)
                    for kind, bought in zip(self.kinds, chosen, strict=True)
                    for number in range(
                        max(1, bought - self.wanted.lost(kind.units.chips)), bought + 1
                    )
                    if bought
                )
            except NoLayoutInTime:
                break
            searches += new
            if not new:
                self.open.append(chosen)
        low = min(low, *(usd(one) for one in self.open), self.alone.usd_per_hour)
        carried = self.choice.worst([kind.least() for kind in self.kinds], self.best)
        return mix_of(
            self.kinds, self.best, wanted=self.wanted, alone=self.alone, carried=carried, low=low
        )


def choice_of(kinds: Sequence[Kind], wanted: Wanted, clock: Clock, seed: int) -> Choice:
    """The question of each choice among some kinds."""
    return Choice(
        [kind.units.usd_per_hour for kind in kinds],
        wanted.peak_rate,
        lost=wanted.spare or wanted.spare_chips,
        sizes=[1 if wanted.spare else kind.units.chips for kind in kinds],
        clock=clock,
        seed=seed,
    )


def mix_of(
    kinds: Sequence[Kind],
    bought: Sequence[int],
    *,
    wanted: Wanted,
    alone: Alone,
    carried: float,
    low: float,
) -> Mix:
    """So many units of each kind, which carry ``carried`` requests/s after the worst loss; ``low``: dollars per hour at least."""
    usd = sum(n * kind.units.usd_per_hour for n, kind in zip(bought, kinds, strict=True))
    tokens = wanted.rate * kinds[0].units.output_tokens
    return Mix(
        units={kind.name: n for kind, n in zip(kinds, bought, strict=True) if n},
        usd_per_hour=usd,
        usd_per_m_output_tokens=usd / SECONDS_PER_HOUR / tokens * 1e6,
        carried_requests_per_s=carried,
        headroom=carried / wanted.peak_rate - 1.0,
        bound_usd_per_hour=min(low, usd),
        one_kind_usd_per_hour=alone.usd_per_hour,
    )

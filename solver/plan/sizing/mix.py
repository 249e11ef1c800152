"""The least money in whole units of several kinds together that carry a peak rate after a loss.

Each kind serves a part of the requests with a layout of its own. CP-SAT chooses numbers by what is known at most of them;
what it chooses is searched, and it chooses again, until what it chose is found to carry the peak. Numbers that no search has
looked at carry at most their part of what a relaxation allows one unit, and at least what searched numbers beside each other do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, floor, inf

from ortools.sat.python import cp_model

from costmodel.evaluate import SECONDS_PER_HOUR
from solver.clock import Clock
from solver.plan.sizing.carried import MOST_CHIPS, Units
from solver.plan.sizing.size import Sized, Wanted
from solver.verify import ROUNDING
from topology.errors import NoLayoutInTime

#: numbers of units that are searched for a mix, at most; seconds of one choice
_SEARCHES, _LIMIT_S = 40, 20.0
#: losses that one choice is told of beside those it knows, at most
_LOSSES = 40
#: whole numbers that stand for the peak, and for a dollar per hour
_PEAK, _USD = 10**7, 10**4


@dataclass(frozen=True)
class Mix:
    """Whole units by kind; ``carried_requests_per_s`` after the worst loss.

    ``bound_usd_per_hour``: no mix of these kinds costs less, each kind with layouts of its own. ``one_kind_usd_per_hour``: what the cheapest
    kind alone costs. Money is for all units, at the mean rate.
    """

    units: dict[str, int]
    usd_per_hour: float
    usd_per_m_output_tokens: float
    carried_requests_per_s: float
    headroom: float
    bound_usd_per_hour: float
    one_kind_usd_per_hour: float

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
    if all(one.count is None for one in found):
        return None
    return _Mixing([(searched[one.kind], one) for one in found], wanted, clock, seed).run()


class _Kind:
    """One kind: what numbers of its units carry at least and at most, as far as that is known."""

    def __init__(self, units: Units, name: str, count: int) -> None:
        self.units, self.name, self.count = units, name, count
        self.unfit = 0
        self._each = units.most_of_each(count) if count else 0.0

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
        table = [n * self._each if n > self.unfit else 0.0 for n in range(1, self.count + 1)]
        table.insert(0, 0.0)
        for number, one in self.units.known.items():
            for n in range(min(number, self.count) + 1):
                table[n] = min(table[n], one.most_requests_per_s)
        return table


class _Mixing:
    """State of one search for a mix."""

    def __init__(
        self, kinds: Sequence[tuple[Units, Sized]], wanted: Wanted, clock: Clock, seed: int
    ) -> None:
        self.wanted, self.clock, self.seed = wanted, clock, seed
        self.prices = [units.usd_per_hour for units, _ in kinds]
        counts = [one.count or MOST_CHIPS // units.chips for units, one in kinds]
        self.alone_usd, cheapest = min(
            (one.count * usd, k)
            for k, ((_, one), usd) in enumerate(zip(kinds, self.prices, strict=True))
            if one.count is not None
        )
        self.best = [count if k == cheapest else 0 for k, count in enumerate(counts)]
        # more of a kind than that money buys is no use
        self.kinds = [
            _Kind(units, one.kind, min(count, floor(self.alone_usd / usd + ROUNDING)))
            for (units, one), count, usd in zip(kinds, counts, self.prices, strict=True)
        ]
        #: what may be lost, in units or in chips, and what each unit counts for
        self.lost = wanted.spare or wanted.spare_chips
        self.sizes = [1 if wanted.spare else units.chips for units, _ in kinds]
        #: losses that a choice is told of, first those in one kind: there may be too many to tell it all
        self.losses = [
            [ceil(self.lost / size) if k == own else 0 for k in range(len(kinds))]
            for own, size in enumerate(self.sizes)
        ]
        #: chosen, searched, and neither found to carry the peak nor proven not to
        self.open: list[list[int]] = []

    def run(self) -> Mix:
        """The cheapest mix found, and its bound."""
        searches = 0
        while True:
            chosen, low = self._choose([kind.most() for kind in self.kinds], without=self.open)
            least = [kind.least() for kind in self.kinds]
            better, _ = self._choose(least, beneath=self._usd(self.best))
            self.best = better or self.best
            if chosen is None or low >= self._usd(self.best) * (1 - ROUNDING):
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
        return self._answer(min(low, *(self._usd(one) for one in self.open), self.alone_usd))

    def _usd(self, units: Sequence[int]) -> float:
        return sum(n * usd for n, usd in zip(units, self.prices, strict=True))

    def _worst(self, carried: Sequence[Sequence[float]], units: Sequence[int]) -> list[int]:
        """The loss that leaves so many units of each kind least, by such tables.

        The largest units come first, so that none is lost that the others' chips make up for.
        """
        order = sorted(range(len(self.kinds)), key=lambda k: -self.sizes[k])

        @cache
        def left(place: int, missing: int) -> tuple[float, tuple[int, ...]]:
            if place == len(order):
                return 0.0, ()
            k = order[place]
            most = min(units[k], ceil(missing / self.sizes[k]))
            found = []
            for lost in range(most + 1):
                rest, others = left(place + 1, max(0, missing - lost * self.sizes[k]))
                found.append((carried[k][units[k] - lost] + rest, (lost, *others)))
            return min(found)

        _, lost = left(0, self.lost)
        return [number for _, number in sorted(zip(order, lost, strict=True))]

    def _choose(
        self,
        carried: Sequence[Sequence[float]],
        *,
        without: Sequence[Sequence[int]] = (),
        beneath: float | None = None,
    ) -> tuple[list[int] | None, float]:
        """The cheapest numbers with which such tables carry the peak after every loss, and what none costs less than.

        ``beneath``: so much money; the tables are then what was found, and roundings go down. ``None``: there are none.
        """
        rounded = floor if beneath is not None else ceil
        scale = _PEAK / self.wanted.peak_rate
        most = 2.0 * self.wanted.peak_rate
        tables = [[rounded(min(rate, most) * scale) for rate in own] for own in carried]
        for _ in range(_LOSSES):
            found, low = self._chosen(tables, without, beneath)
            if found is None:
                return None, low
            loss = self._worst(tables, found)
            left = sum(own[n - lost] for own, n, lost in zip(tables, found, loss, strict=True))
            if left >= _PEAK:
                return found, low
            if self.clock.over:
                break
            self.losses.append(loss)
        return None, low

    def _chosen(
        self,
        tables: Sequence[Sequence[int]],
        without: Sequence[Sequence[int]],
        beneath: float | None,
    ) -> tuple[list[int] | None, float]:
        """As :meth:`_choose`, after the losses that are told."""
        model = cp_model.CpModel()
        number = [model.new_int_var(0, kind.count, kind.name) for kind in self.kinds]
        after: dict[tuple[int, int], cp_model.IntVar] = {}
        for loss in self.losses:
            for k, lost in enumerate(loss):
                if (k, lost) not in after:
                    table = [tables[k][max(0, n - lost)] for n in range(len(tables[k]))]
                    after[k, lost] = model.new_int_var(0, max(table), f"{k} less {lost}")
                    model.add_element(number[k], table, after[k, lost])
            model.add(sum(after[k, lost] for k, lost in enumerate(loss)) >= _PEAK)
        # whatever is lost, something is left
        model.add(sum(n * size for n, size in zip(number, self.sizes, strict=True)) > self.lost)
        if without:
            model.add_forbidden_assignments(number, [tuple(one) for one in without])
        cost = sum(n * round(usd * _USD) for n, usd in zip(number, self.prices, strict=True))
        if beneath is not None:
            model.add(cost < round(beneath * _USD))
        model.minimize(cost)
        solver, status = self.clock.run(model, seed=self.seed, limit_s=_LIMIT_S, linearize=True)
        if status == cp_model.INFEASIBLE:
            return None, inf
        # a unit's price is rounded by half of one at most
        rounding = sum(kind.count for kind in self.kinds) / 2
        low = max(0.0, (solver.best_objective_bound - rounding) / _USD)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, low
        found = [solver.value(n) for n in number]
        return found, self._usd(found) if status == cp_model.OPTIMAL else low

    def _answer(self, low: float) -> Mix:
        usd, wanted = self._usd(self.best), self.wanted
        least = [kind.least() for kind in self.kinds]
        loss = self._worst(least, self.best)
        carried = sum(own[n - lost] for own, n, lost in zip(least, self.best, loss, strict=True))
        tokens = wanted.rate * self.kinds[0].units.output_tokens
        return Mix(
            units={kind.name: n for kind, n in zip(self.kinds, self.best, strict=True) if n},
            usd_per_hour=usd,
            usd_per_m_output_tokens=usd / SECONDS_PER_HOUR / tokens * 1e6,
            carried_requests_per_s=carried,
            headroom=carried / wanted.peak_rate - 1.0,
            bound_usd_per_hour=min(low, usd),
            one_kind_usd_per_hour=self.alone_usd,
        )

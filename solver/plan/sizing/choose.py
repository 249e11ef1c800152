"""How many whole units of each kind to buy, by tables of what none, one, two ... of each carry: all numbers tried, or CP-SAT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import ceil, floor, inf, prod

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import Clock

#: seconds of one choice; losses that it is told of beside those it knows, at most
_LIMIT_S, _LOSSES = 20.0, 40
#: numbers of all kinds but one, together, up to which all are tried: CP-SAT has more to do with the tables of hundreds of units
_TRIED = 1_000_000
#: whole numbers that stand for the peak, and for a dollar per hour
_PEAK, _USD = 10**7, 10**4

#: requests/s that none, one, two ... units of each kind carry
Carried = Sequence[Sequence[float]]


def left_of(units: Sequence[int], lost: Sequence[int]) -> list[int]:
    """Units of each kind after a loss, which takes what there is."""
    return [max(0, own - gone) for own, gone in zip(units, lost, strict=True)]


class Choice:
    """The question of each choice: dollars per hour of a unit of each kind, the peak, and what may be lost.

    ``lost``: as many units as hold so much, where ``sizes`` is what a unit of each kind holds: 1 each where units are counted, or
    chips.
    """

    def __init__(
        self,
        prices: Sequence[float],
        peak_rate: float,
        *,
        lost: int,
        sizes: Sequence[int],
        clock: Clock,
        seed: int,
    ) -> None:
        self.prices, self.peak_rate, self.clock, self.seed = prices, peak_rate, clock, seed
        self.lost, self.sizes = lost, sizes
        #: kinds, the largest units first: none is lost then that the others' chips make up for
        self._order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
        #: losses that a choice is told of, first those in one kind: there may be too many to tell it all
        self.told: list[tuple[int, ...]] = [
            tuple(ceil(lost / size) if k == own else 0 for k in range(len(sizes)))
            for own, size in enumerate(sizes)
        ]

    def usd(self, units: Sequence[int]) -> float:
        """Dollars per hour of so many units of each kind."""
        return sum(n * usd for n, usd in zip(units, self.prices, strict=True))

    def losses(self, units: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """How many of so many units of each kind a loss may take, no more than hold what may be lost."""

        def lose(place: int, missing: int) -> Iterator[tuple[int, ...]]:
            if place == len(self._order):
                if missing == 0:
                    yield ()
                return
            k = self._order[place]
            for gone in range(self._most_lost(k, units, missing), -1, -1):
                for others in lose(place + 1, max(0, missing - gone * self.sizes[k])):
                    yield (gone, *others)

        yield from map(self._in_place, lose(0, self.lost))

    def worst_loss(self, carried: Carried, units: Sequence[int]) -> tuple[int, ...]:
        """The loss that leaves so many units of each kind least, by such tables."""

        @cache
        def left(place: int, missing: int) -> tuple[float, tuple[int, ...]]:
            if place == len(self._order):
                return 0.0, ()
            k = self._order[place]
            found = []
            for gone in range(self._most_lost(k, units, missing) + 1):
                rest, others = left(place + 1, max(0, missing - gone * self.sizes[k]))
                found.append((carried[k][units[k] - gone] + rest, (gone, *others)))
            return min(found)

        return self._in_place(left(0, self.lost)[1])

    def worst(self, carried: Carried, units: Sequence[int]) -> float:
        """Requests/s that are carried after the worst loss, by such tables."""
        left = left_of(units, self.worst_loss(carried, units))
        return sum(own[n] for own, n in zip(carried, left, strict=True))

    def cheapest(
        self,
        carried: Carried,
        *,
        without: Sequence[Sequence[int]] = (),
        beneath: float | None = None,
    ) -> tuple[list[int] | None, float]:
        """The cheapest numbers with which such tables carry the peak after every loss, and what none costs less than.

        ``beneath``: so much money; the tables are then what was found, and roundings go down. ``None``: there are none.
        """
        rounded = floor if beneath is not None else ceil
        scale = _PEAK / self.peak_rate
        most = 2.0 * self.peak_rate
        tables = [[rounded(min(rate, most) * scale) for rate in own] for own in carried]
        for _ in range(_LOSSES):
            found, low = self._chosen(tables, without, beneath)
            if found is None:
                return None, low
            loss = self.worst_loss(tables, found)
            left = left_of(found, loss)
            if sum(own[n] for own, n in zip(tables, left, strict=True)) >= _PEAK:
                return found, low
            if self.clock.over:
                break
            self.told.append(loss)
        return None, low

    def _chosen(
        self,
        tables: Sequence[Sequence[int]],
        without: Sequence[Sequence[int]],
        beneath: float | None,
    ) -> tuple[list[int] | None, float]:
        """As :meth:`cheapest`, after the losses that are told."""
        sizes = sorted(map(len, tables))
        if len(sizes) > 1 and prod(sizes[:-1]) <= _TRIED:
            return self._tried(tables, without, beneath)
        model = cp_model.CpModel()
        number = [model.new_int_var(0, len(own) - 1, f"{k}") for k, own in enumerate(tables)]
        after: dict[tuple[int, int], cp_model.IntVar] = {}
        for loss in self.told:
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
        rounding = sum(len(own) - 1 for own in tables) / 2
        low = max(0.0, (solver.best_objective_bound - rounding) / _USD)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, low
        found = [solver.value(n) for n in number]
        return found, self.usd(found) if status == cp_model.OPTIMAL else low

    def _tried(
        self,
        tables: Sequence[Sequence[int]],
        without: Sequence[Sequence[int]],
        beneath: float | None,
    ) -> tuple[list[int] | None, float]:
        """The same by trying all numbers of all kinds but one: of that one the fewest that are enough beside them."""
        kinds = range(len(tables))
        one = max(kinds, key=lambda k: len(tables[k]))
        others = [k for k in kinds if k != one]
        numbers = np.indices([len(tables[k]) for k in others]).reshape(len(others), -1)
        beside = list(zip(others, numbers, strict=True))
        # units carry no less beside more of them
        own = np.maximum.accumulate(np.array(tables[one], dtype=np.int64))
        # whatever is lost, something is left
        held = sum(row * self.sizes[k] for k, row in beside)
        fewest = np.maximum(0, (self.lost - held) // self.sizes[one] + 1)
        for loss in self.told:
            left = sum(np.array(tables[k])[np.maximum(0, row - loss[k])] for k, row in beside)
            enough = np.searchsorted(own, _PEAK - left)
            fewest = np.maximum(fewest, np.where(enough > 0, enough + loss[one], 0))
        for chosen in sorted(without, key=lambda units: units[one]):
            alike = np.all([row == chosen[k] for k, row in beside], axis=0)
            fewest += alike & (fewest == chosen[one])
        prices = [round(usd * _USD) for usd in self.prices]
        cost = fewest * prices[one] + sum(row * prices[k] for k, row in beside)
        fits = fewest < len(own)
        if beneath is not None:
            fits &= cost < round(beneath * _USD)
        if not fits.any():
            return None, inf
        at = int(np.flatnonzero(fits)[cost[fits].argmin()])
        units = [0] * len(tables)
        units[one] = int(fewest[at])
        for k, row in beside:
            units[k] = int(row[at])
        return units, self.usd(units)

    def _most_lost(self, kind: int, units: Sequence[int], missing: int) -> int:
        return min(units[kind], ceil(missing / self.sizes[kind]))

    def _in_place(self, lost: Sequence[int]) -> tuple[int, ...]:
        """By kind, what was lost in the order of sizes."""
        return tuple(n for _, n in sorted(zip(self._order, lost, strict=True)))

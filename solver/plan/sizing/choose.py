"""CP-SAT's choice: how many whole units of each kind to buy, by tables of what none, one, two ... of each carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import ceil, floor, inf

from ortools.sat.python import cp_model

from solver.clock import Clock

#: seconds of one choice
_LIMIT_S = 20.0
#: whole numbers that stand for the peak, and for a dollar per hour
_PEAK, _USD = 10**7, 10**4

#: requests/s that none, one, two ... units of each kind carry
Carried = Sequence[Sequence[float]]


def losses(kinds: int, spare: int) -> Iterator[tuple[int, ...]]:
    """How many units of each kind a loss of ``spare`` units may take."""
    for lost in combinations_with_replacement(range(kinds), spare):
        yield tuple(lost.count(k) for k in range(kinds))


def left_of(units: Sequence[int], lost: Sequence[int]) -> list[int]:
    """Units of each kind after a loss, which takes what there is."""
    return [max(0, own - gone) for own, gone in zip(units, lost, strict=True)]


@dataclass(frozen=True)
class Choice:
    """The question of each choice: dollars per hour of a unit of each kind, the peak, units that may be lost."""

    prices: Sequence[float]
    peak_rate: float
    spare: int
    clock: Clock
    seed: int

    def usd(self, units: Sequence[int]) -> float:
        """Dollars per hour of so many units of each kind."""
        return sum(n * usd for n, usd in zip(units, self.prices, strict=True))

    def losses(self) -> Iterator[tuple[int, ...]]:
        """How many units of each kind a loss may take."""
        return losses(len(self.prices), self.spare)

    def worst(self, carried: Carried, units: Sequence[int]) -> float:
        """Requests/s that are carried after the worst loss, by such tables."""
        return min(
            sum(own[n] for own, n in zip(carried, left_of(units, lost), strict=True))
            for lost in self.losses()
        )

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
        carried = [[min(rate, 2.0 * self.peak_rate) for rate in own] for own in carried]
        model = cp_model.CpModel()
        number = [model.new_int_var(0, len(own) - 1, f"{k}") for k, own in enumerate(carried)]
        after: dict[tuple[int, int], cp_model.IntVar] = {}
        for loss in self.losses():
            for k, lost in enumerate(loss):
                if (k, lost) not in after:
                    table = [
                        rounded(carried[k][max(0, n - lost)] * scale)
                        for n in range(len(carried[k]))
                    ]
                    after[k, lost] = model.new_int_var(0, max(table), f"{k} less {lost}")
                    model.add_element(number[k], table, after[k, lost])
            model.add(sum(after[k, lost] for k, lost in enumerate(loss)) >= _PEAK)
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
        rounding = sum(len(own) - 1 for own in carried) / 2
        low = max(0.0, (solver.best_objective_bound - rounding) / _USD)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, low
        found = [solver.value(n) for n in number]
        return found, self.usd(found) if status == cp_model.OPTIMAL else low

r"""Which replicas stay and which start anew (CP-SAT): least money, and least bytes moved.

``x[o]``: a running replica goes on by option ``o``, at most one each; ``n[k]``: new replicas of item ``k``;
``z[k,c,p]``: their slices of ``c`` chips on pool ``p``.

    sum_o chips(o, p) x[o] + sum_(k,c) c z[k,c,p] <= chips of p                      every pool
    sum_p z[k,c,p] = slices(k, c) n[k],  sum_c z[k,c,p] <= n[k]                      every item
    R = pooled + sum mixed,  pooled <= sum prefill,  pooled <= sum decode            rates

Rates are rounded down; bytes and money up. New replicas count all their bytes: what chips hold already of them is
known once chips are chosen, and only lowers the number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.fleet.asked import Question
from solver.fleet.items import Item
from solver.fleet.packing import deal
from solver.move.running import Option
from solver.scaling import down, rate_unit, up
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES

_MIB = 2.0**20
#: dollars per hour of one unit of money
_USD = 1e-5
#: rates and money meet in products of this many parts
_PARTS = 2**16
#: seconds of one solve
_LIMIT_S = 5.0


@dataclass(frozen=True)
class New:
    """An item that may start anew, and the bytes of all its weights."""

    item: Item
    weight_bytes: float


@dataclass(frozen=True)
class Chosen:
    """Ways on for running replicas, and new ones with the pools of their slices."""

    stay: tuple[Option, ...]
    start: tuple[tuple[Item, tuple[Pool, ...]], ...]


class Choice:
    """One model over the ways on and the items."""

    def __init__(
        self,
        stay: Sequence[Option],
        new: Sequence[New],
        classes: Sequence[PoolClass],
        question: Question,
        prices: dict[str, float],
    ):
        """``prices``: dollars per hour of each chip."""
        self.stay, self.new, self.classes, self.question = stay, new, classes, question
        self.model = model = cp_model.CpModel()
        self.on = [model.new_bool_var(f"x[{at}]") for at in range(len(stay))]
        for of in {option.of for option in stay}:
            model.add_at_most_one(
                x for x, option in zip(self.on, stay, strict=True) if option.of == of
            )
        chips = sum(len(c.pools) * c.size for c in classes)
        self.count = [
            model.new_int_var(0, chips // one.item.chips, f"n[{at}]") for at, one in enumerate(new)
        ]
        self.slices: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self._pools()
        unit = rate_unit(
            sum(option.requests_per_s for option in stay)
            + sum(one.item.requests_per_s * (chips // one.item.chips) for one in new)
        )
        self.unit = unit
        rates = [self._rate(role, unit) for role in range(len(ROLES))]
        pooled = model.new_int_var(0, 2**40, "pooled")
        for role, name in enumerate(ROLES):
            if name != "mixed":
                model.add(pooled <= rates[role])
        self.rate = cp_model.LinearExpr.sum([pooled, rates[ROLES.index("mixed")]])
        self.usd = self._sum(
            [sum(prices[chip] for chip in option.replica.chips) for option in stay],
            [sum(classes[c].prices[0] * n for c, n in one.item.parts) for one in new],
            _USD,
        )
        self.moved = self._sum([0.0] * len(stay), [one.weight_bytes for one in new], _MIB)
        self.read = self._sum(
            [option.weight_bytes * option.restarts for option in stay],
            [one.weight_bytes for one in new],
            _MIB,
        )
        if question.rate is not None:
            model.add(self.rate >= up(question.rate, unit))
        else:
            model.add(self.rate >= 1)

    def _sum(
        self, stay: Sequence[float], new: Sequence[float], unit: float
    ) -> cp_model.LinearExprT:
        weights = [up(value, unit) for value in (*stay, *new)]
        return cp_model.LinearExpr.weighted_sum([*self.on, *self.count], weights)

    def _rate(self, role: int, unit: float) -> cp_model.LinearExprT:
        stay = [
            down(o.requests_per_s, unit) if o.replica.role == ROLES[role] else 0 for o in self.stay
        ]
        new = [
            down(one.item.requests_per_s, unit) if one.item.role == role else 0 for one in self.new
        ]
        return cp_model.LinearExpr.weighted_sum([*self.on, *self.count], [*stay, *new])

    def _pools(self) -> None:
        """Chips of every pool, and slices of every item on pools."""
        for pool_class in self.classes:
            used: list[list[cp_model.LinearExprT]] = [[] for _ in pool_class.pools]
            home = {chip: at for at, pool in enumerate(pool_class.pools) for chip in pool.chips}
            for x, option in zip(self.on, self.stay, strict=True):
                there = Counter(home[chip] for chip in option.replica.chips if chip in home)
                for at, number in there.items():
                    used[at].append(number * x)
            for k, one in enumerate(self.new):
                need = one.item.slices_in(pool_class.index)
                here: list[list[cp_model.IntVar]] = [[] for _ in pool_class.pools]
                for size, number in sorted(need.items()):
                    own = []
                    for at in range(len(pool_class.pools)):
                        most = pool_class.size // size
                        z = self.model.new_int_var(0, most, f"z[{k},{size},{at}]")
                        self.slices[k, size, pool_class.index, at] = z
                        used[at].append(size * z)
                        here[at].append(z)
                        own.append(z)
                    self.model.add(sum(own) == number * self.count[k])
                if need.total() > 1:
                    for variables in here:
                        self.model.add(sum(variables) <= self.count[k])
            for load in used:
                if load:
                    self.model.add(sum(load) <= pool_class.size)

    def _money(self, usd_per_rate: float) -> cp_model.LinearExprT:
        """What money is left out of: dollars, the rate turned round, or both at a price."""
        if self.question.rate is not None:
            return self.usd
        if self.question.whole:
            return cp_model.LinearExpr.weighted_sum([self.rate], [-1])
        weight = down(usd_per_rate * self.unit / _USD * _PARTS, 1.0)
        return cp_model.LinearExpr.weighted_sum([self.usd, self.rate], [_PARTS, -weight])

    def least_moved(self, most_usd_per_rate: float, clock: Clock, seed: int) -> Chosen | None:
        """Fewest bytes moved at no more than a cost per request, then fewest read again, then least money."""
        if self.question.rate is not None:
            self.model.add(self.usd <= down(most_usd_per_rate * self.question.rate, _USD))
        elif self.question.whole:
            least = self.question.whole_usd_per_hour / most_usd_per_rate
            self.model.add(self.rate >= up(least, self.unit))
        else:
            self.model.add(self._money(most_usd_per_rate) <= 0)
        return self._in_turn([self.moved, self.read, self._money(most_usd_per_rate)], clock, seed)

    def least_money(
        self, most_bytes: float, price: float, clock: Clock, seed: int
    ) -> Chosen | None:
        """Least money with no more bytes moved, then fewest bytes. ``price``: a cost per request to begin at."""
        self.model.add(self.moved <= down(most_bytes, _MIB))
        if self.question.rate is not None or self.question.whole:
            return self._in_turn([self._money(price), self.moved, self.read], clock, seed)
        for _ in range(8):  # Dinkelbach: the price that no choice beats is the least
            solver = self._least(self._money(price), clock, seed)
            if solver is None:
                return None
            rate = solver.value(self.rate) * self.unit
            found = solver.value(self.usd) * _USD / rate
            if found >= price * (1 - 1e-9):
                break
            price = found
        return self._in_turn([self._money(price), self.moved, self.read], clock, seed)

    def _in_turn(
        self, wishes: Sequence[cp_model.LinearExprT], clock: Clock, seed: int
    ) -> Chosen | None:
        """Each wish as small as it can be with those before it kept."""
        found: cp_model.CpSolver | None = None
        for wish in wishes:
            solver = self._least(wish, clock, seed)
            if solver is None:
                break
            found = solver
            self.model.add(wish <= solver.value(wish))
        return None if found is None else self._read(found)

    def _least(
        self, wish: cp_model.LinearExprT, clock: Clock, seed: int
    ) -> cp_model.CpSolver | None:
        self.model.minimize(wish)
        solver, status = clock.run(self.model, seed=seed, limit_s=_LIMIT_S)
        return solver if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None

    def _read(self, solver: cp_model.CpSolver) -> Chosen:
        stay = tuple(o for x, o in zip(self.on, self.stay, strict=True) if solver.value(x))
        start: list[tuple[Item, tuple[Pool, ...]]] = []
        for k, one in enumerate(self.new):
            number = solver.value(self.count[k])
            by_class: list[dict[int, list[Pool]]] = [{} for _ in range(number)]
            for pool_class in self.classes if number else ():
                need = one.item.slices_in(pool_class.index)
                if not need:
                    continue
                held = [
                    Counter(
                        {
                            size: solver.value(self.slices[k, size, pool_class.index, at])
                            for size in need
                        }
                    )
                    for at in range(len(pool_class.pools))
                ]
                for stand, pools in zip(by_class, deal(held, need, number), strict=True):
                    stand[pool_class.index] = [pool_class.pools[pool] for pool in pools]
            for stand in by_class:
                start.append((one.item, _in_order(one.item, stand)))
        return Chosen(stay, tuple(start))


def _in_order(item: Item, stand: dict[int, list[Pool]]) -> tuple[Pool, ...]:
    """Pools in the order of the item's parts; those of a class come most chips first."""
    left: dict[tuple[int, int], list[Pool]] = {}
    for index, pools in stand.items():
        sizes = sorted(item.slices_in(index).elements(), reverse=True)
        for size, pool in zip(sizes, pools, strict=True):
            left.setdefault((index, size), []).append(pool)
    return tuple(left[part].pop(0) for part in item.parts)

"""What none, one, two ... whole units carry at most for a model, and what is left of that after the worst loss of one.

Shapes are bounded once, on the largest number of units that is looked at: what a replica serves on its chips does not depend on
how many others there are. Fewer units may run a shape that the largest number does not: two units are few enough to look at chips in
unequal parts. Those units are then bounded anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.fleet.asked import Question
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item, Items
from solver.known import groundwork
from solver.plan.bounds.after_loss import most_after_loss
from solver.plan.bounds.most import Every
from solver.shapes.pools import PoolClass, pool_classes
from solver.shapes.shapes import COLUMNS, ShapeTable
from solver.verify import usd_per_m_output
from topology import load_cluster

Rates = NDArray[np.float64]
#: units of a kind up to which each number of them is bounded alone: always, and on so many chips
_FEW, _FEW_CHIPS = 4, 128
#: a kind with more units than that is not worth it
_FEW_OF = 16
#: chips of a unit up to which what a loss leaves is bounded
_SMALL = 16
#: work for one fleet, seconds
_FLEET_S = 12.0


@dataclass(frozen=True)
class _Bounded:
    """Shapes with the requests/s that none exceeds; ``leaving``: of prefill whose KV leaves its domain."""

    every: Every
    shapes: ShapeTable
    rates: Rates
    leaving: Rates

    @classmethod
    def of(cls, every: Every, clock: Clock, seed: int) -> _Bounded:
        """Those of a question."""
        known, rates = every.bounded(clock, seed)
        return cls(every, known.shapes, rates, np.minimum(rates, known.items.leaving))

    def beside(self, other: _Bounded) -> _Bounded | None:
        """Of two ways each replica its better one; ``None`` where their shapes or requests are not the same."""
        alike = _rows(self.shapes) == _rows(other.shapes) and self.every.share == other.every.share
        if not alike:
            return None
        rates, leaving = (
            np.maximum(*own) for own in ((self.rates, other.rates), (self.leaving, other.leaving))
        )
        return _Bounded(self.every, self.shapes, rates, leaving)

    def items(self, classes: tuple[PoolClass, ...]) -> list[Item]:
        """The best of each footprint that the pools of some units have room for."""
        every = Items(self.shapes, self.rates, classes, self.leaving).best()
        return [one for one in every if _has_room(one, classes)]


def most_of_few(
    model: PlanModel, units: PlanUnits, off: int, clock: Clock, seed: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Requests/s that none, one, two ... units carry at most, all of their chips paid and joined as well as may be.

    And what is left of these after the worst loss of one of them: of small units, which one replica takes a large part of.
    """
    size = len(load_cluster(units.cluster).chips)
    few = max(_FEW, _FEW_CHIPS // size) if units.count <= _FEW_OF else 0
    ways = [
        _joined(model, units, number, off, seed) for number in range(1, min(few, units.count) + 1)
    ]
    found, left = [0.0], [0.0]
    if not ways or any(every.several for every in ways[0]):
        return tuple(found), tuple(left)
    largest = _bounded(ways[-1], clock, seed)
    known = {row for one in largest for row in _rows(one.shapes)}
    alike = _sorts(pool_classes(ways[-1][0].instance.cluster))
    for number, own in enumerate(ways, 1):
        instance = own[0].instance
        ground, bounded = groundwork(instance), largest
        classes = ground.classes
        fits = len(largest) == 1 and _sorts(classes) == alike
        if not fits or not known.issuperset(_rows(ground.shapes)):
            bounded = _bounded(own, clock, seed)
        most, rest = found[-1], left[-1]
        for one in bounded:
            items = one.items(classes)
            most = max(most, _carried(one, items, instance, classes, clock, seed))
            if rest < found[-1] and size <= _SMALL:
                rest = max(rest, _after_loss(items, classes, number, clock, seed) / one.every.share)
        left.append(found[-1] if size > _SMALL else min(rest, found[-1]))
        found.append(most)
    return tuple(found), tuple(left)


def _joined(
    model: PlanModel, units: PlanUnits, number: int, off: int, seed: int
) -> tuple[Every, ...]:
    """The ways of so many units that are joined as the chips of one are, all of them paid."""
    return tuple(one.joined for one in Every.on(model, units, number, off, "whole", seed))


def _bounded(ways: Sequence[Every], clock: Clock, seed: int) -> list[_Bounded]:
    """Every way with its bounds; those with equal shapes as one in which each replica has its own way."""
    found: list[_Bounded] = []
    for every in ways:
        one = _Bounded.of(every, clock, seed)
        for place, other in enumerate(found):
            if (both := other.beside(one)) is not None:
                found[place] = both
                break
        else:
            found.append(one)
    return found


def _rows(shapes: ShapeTable) -> list[tuple[object, ...]]:
    """Every shape, and the chips in each pool that it takes."""
    columns = zip(
        *(getattr(shapes, name).tolist() for name in COLUMNS if name != "span"), strict=True
    )
    return [(*row, shapes.parts(place)) for place, row in enumerate(columns)]


def _sorts(classes: Sequence[PoolClass]) -> list[object]:
    """What pools of each class are, whatever their number."""
    return [(one.chip.name, one.size, one.prices) for one in classes]


def _has_room(item: Item, classes: Sequence[PoolClass]) -> bool:
    """Whether there are as many pools as a replica takes chips from."""
    taken = Counter(index for index, _ in item.parts)
    return all(count <= len(classes[index].pools) for index, count in taken.items())


def _carried(
    bounded: _Bounded,
    items: list[Item],
    instance: Instance,
    classes: tuple[PoolClass, ...],
    clock: Clock,
    seed: int,
) -> float:
    """Requests/s of all chips of some units at most; infinite where the time ended before a bound."""
    question = Question.of(instance, classes)
    limit_s = min(_FLEET_S, max(0.2, clock.remaining_s / 2))
    found = solve_fleet(items, classes, question, clock=clock, time_limit_s=limit_s, seed=seed)
    usd = found.bound * usd_per_m_output(instance) * bounded.every.share
    return replace(bounded.every, instance=instance).requests_per_s(usd)


def _after_loss(
    items: Sequence[Item], classes: Sequence[PoolClass], number: int, clock: Clock, seed: int
) -> float:
    """Requests/s that are left after the loss of any of so many units, of replicas with such rates at most."""
    size, pools = (
        ceil(sum(map(each, classes)) / number)
        for each in (lambda one: len(one.pools) * one.size, lambda one: len(one.pools))
    )
    return most_after_loss(items, number, size, pools, clock=clock, seed=seed).most

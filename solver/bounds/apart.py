r"""A bound on any fleet by pricing prefill and decode apart (Lagrangian relaxation).

The fleet serves ``R = min(P, D) + M`` requests per second. For every ``0 <= y <= 1``,
``min(P, D) <= y P + (1 - y) D``, so an item is worth ``y P + (1 - y) D + M`` and pools no longer
depend on each other: each is a knapsack of its chips, solved exactly by dynamic programming (a
replica over several pools brings each its share, by chips). The smallest sum over ``y`` bounds ``R``; it is
convex in ``y``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.fleet.items import Item
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES

Array = NDArray[np.float64]
_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


def worth(items: Sequence[Item], y: float) -> Array:
    """Value of each item at price ``y`` of prefill against decode."""
    weight = np.array([y, 1.0 - y, 1.0])
    roles = np.array([item.role for item in items], dtype=int)
    rates = np.array([item.requests_per_s for item in items])
    return np.asarray(weight[roles] * rates) if len(items) else np.zeros(0)


@dataclass(frozen=True)
class Packing:
    """Best ways to fill a pool: ``best[c]`` on ``c`` chips; ``filling(c)`` lists the items used."""

    best: Array
    _chosen: NDArray[np.int64]
    _sizes: NDArray[np.int64]

    def filling(self, chips: int) -> list[int]:
        """Items (by position) of one best filling of ``chips`` chips."""
        items = []
        while chips > 0:
            item = int(self._chosen[chips])
            if item < 0:
                chips -= 1
                continue
            items.append(item)
            chips -= int(self._sizes[item])
        return items


def best_packing(values: Array, sizes: NDArray[np.int64], capacity: int) -> Packing:
    """Unbounded knapsack by dynamic programming over the chips of a pool."""
    best = np.zeros(capacity + 1)
    chosen = np.full(capacity + 1, -1, dtype=np.int64)
    top = np.zeros(capacity + 1)
    which = np.full(capacity + 1, -1, dtype=np.int64)
    for index in np.argsort(values, kind="stable"):
        if sizes[index] <= capacity:
            top[sizes[index]] = values[index]
            which[sizes[index]] = index
    useful = np.flatnonzero(which >= 0)
    worth_of = top[useful]
    count = np.searchsorted(useful, np.arange(capacity + 1), side="right").tolist()
    for room in range(1, capacity + 1):
        best[room] = best[room - 1]
        fitting = useful[: count[room]]
        if len(fitting):
            totals = best[room - fitting] + worth_of[: count[room]]
            at = int(totals.argmax())
            if totals[at] > best[room]:
                best[room], chosen[room] = totals[at], which[fitting[at]]
    return Packing(best, chosen, sizes)


def relaxed_rate(
    items: Sequence[Item], classes: Sequence[PoolClass], y: float
) -> tuple[float, dict[int, list[int]]]:
    """Bound on ``R`` at price ``y``, and one best filling (item indices) of a pool of each class."""
    values = worth(items, y)
    total, fillings = 0.0, {}
    for pool_class in classes:
        slices = [
            (place, chips)
            for place, item in enumerate(items)
            for chips in item.slices_in(pool_class.index)
        ]
        own = [place for place, _ in slices]
        share = np.array([values[place] * chips / items[place].chips for place, chips in slices])
        sizes = np.array([chips for _, chips in slices], dtype=np.int64)
        packing = best_packing(share, sizes, pool_class.size)
        total += len(pool_class.pools) * float(packing.best[-1])
        filling = packing.filling(pool_class.size)
        fillings[pool_class.index] = [own[place] for place in filling]
    return total, fillings


def rate_bound(
    items: Sequence[Item], classes: Sequence[PoolClass], rounds: int = 32
) -> tuple[float, list[dict[int, list[int]]]]:
    """The least bound over prices, and the fillings met on the way (seeds for the fleet model).

    Fewer ``rounds`` give a bound that is valid too, and a little weaker.
    """
    met: list[dict[int, list[int]]] = []

    def at(y: float) -> float:
        value, fillings = relaxed_rate(items, classes, y)
        met.append(fillings)
        return value

    low, high = 0.0, 1.0
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = at(left), at(right)
    least = min(at(0.0), at(1.0), at_left, at_right)
    for _ in range(rounds):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = at(right)
        least = min(least, at_left, at_right)
    return least, met


def cost_per_rate_bound(items: Sequence[Item], classes: Sequence[PoolClass]) -> float:
    """Least dollars per hour for one request per second, paying only for chips in replicas.

    For every ``y``, each item costs at least ``min price / worth`` per unit of worth, and the
    fleet's worth is at least ``R``: the largest such ratio over ``y`` is a bound.
    """
    price = {c.index: c.chip.usd_per_hour for c in classes}
    paid = np.array([price[item.pool_class] * item.chips for item in items])
    best = 0.0
    for y in np.linspace(0.0, 1.0, 257):
        values = worth(items, float(y))
        useful = values > 0
        if np.any(useful):
            best = max(best, float(np.min(paid[useful] / values[useful])))
    return best

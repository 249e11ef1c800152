r"""A bound on any fleet by pricing prefill and decode apart (Lagrangian relaxation).

The fleet serves ``R = min(P, D) + M`` requests per second. For every ``0 <= y <= 1``,
``min(P, D) <= y P + (1 - y) D``, so an item is worth ``y P + (1 - y) D + M`` and pools no longer
depend on each other: each is a knapsack of its chips, solved exactly by dynamic programming (a
replica over several pools brings each its share, by chips). The smallest sum over ``y`` bounds ``R``; it is
convex in ``y``.

Where a domain's links carry less KV than its replicas could hand over or take (``C`` requests per second), the
pool is worth the most over splits of its chips, ``a`` to prefill, ``b`` to decode, the rest to mixed replicas, of
``y min(P(a), D(b) + C) + (1 - y) min(D(b), P(a) + C) + M(rest)``: what links do not carry must meet inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.fleet.asked import Links
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


@dataclass(frozen=True)
class Bottled:
    """A pool alone in a domain whose links can bind: its best packing of each role, and their room.

    ``out``, ``into``: requests per second handed over to other domains and taken from them at most.
    """

    packings: tuple[Packing, Packing, Packing]
    places: tuple[list[int], list[int], list[int]]
    out: float
    into: float

    def worth(self, y: float) -> tuple[Array, NDArray[np.int64]]:
        """Most worth of ``[chips]``, and the chips of it that go to prefill and to decode ``[chips, 2]``."""
        supply, demand, mixed = (packing.best for packing in self.packings)
        count = len(mixed)
        pooled, split = np.zeros(count), np.zeros(count, dtype=np.int64)
        for a in range(count):
            given, taken = supply[a], demand[: count - a]
            value = y * np.minimum(given, taken + self.out)
            value += (1.0 - y) * np.minimum(taken, given + self.into)
            better = value > pooled[a:]
            pooled[a:][better], split[a:][better] = value[better], a
        best, parts = np.zeros(count), np.zeros((count, 2), dtype=np.int64)
        for n in range(count):
            total = pooled[n] + mixed[: count - n]
            better = total > best[n:]
            best[n:][better] = total[better]
            parts[n:][better] = split[n], n - split[n]
        return best, parts

    def filling(self, prefill: int, decode: int) -> list[int]:
        """Items (by place) on so many chips, the rest of the pool to mixed replicas."""
        chips = prefill, decode, len(self.packings[0].best) - 1 - prefill - decode
        return [
            places[at]
            for packing, places, count in zip(self.packings, self.places, chips, strict=True)
            for at in packing.filling(count)
        ]


def bottled(
    items: Sequence[Item], classes: Sequence[PoolClass], links: Links | None
) -> dict[int, Bottled]:
    """The classes whose domains' links can bind, where a domain holds one pool."""
    if links is None:
        return {}
    homes = Counter(pool.domain for c in classes for pool in c.pools)
    found = {}
    for pool_class in classes:
        if any(homes[pool.domain] > 1 for pool in pool_class.pools):
            continue  # the links of a domain with several types of chips are left to the fleet model
        room = links.room(pool_class.domain)
        packings, places = [], []
        for role in (_PREFILL, _DECODE, _MIXED):
            slices = [
                (place, chips)
                for place, item in enumerate(items)
                if item.role == role
                for chips in item.slices_in(pool_class.index)
            ]
            places.append([place for place, _ in slices])
            share = [items[p].requests_per_s * chips / items[p].chips for p, chips in slices]
            sizes = np.array([chips for _, chips in slices], dtype=np.int64)
            packings.append(best_packing(np.array(share), sizes, pool_class.size))
        leaves = any(items[place].leaves for place in places[_PREFILL])
        one = Bottled(
            (packings[0], packings[1], packings[2]), (places[0], places[1], places[2]),
            room if leaves else 0.0, room,
        )  # fmt: skip
        if one.out < packings[_PREFILL].best[-1] or one.into < packings[_DECODE].best[-1]:
            found[pool_class.index] = one
    return found


def relaxed_rate(
    items: Sequence[Item],
    classes: Sequence[PoolClass],
    y: float,
    narrow: Mapping[int, Bottled] | None = None,
) -> tuple[float, dict[int, list[int]]]:
    """Bound on ``R`` at price ``y``, and one best filling (item indices) of a pool of each class."""
    values = worth(items, y)
    total, fillings = 0.0, {}
    for pool_class in classes:
        if narrow is not None and pool_class.index in narrow:
            own_links = narrow[pool_class.index]
            best, parts = own_links.worth(y)
            total += len(pool_class.pools) * float(best[-1])
            prefill, decode = parts[-1].tolist()
            fillings[pool_class.index] = own_links.filling(prefill, decode)
            continue
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
    items: Sequence[Item],
    classes: Sequence[PoolClass],
    links: Links | None = None,
    rounds: int = 32,
) -> tuple[float, list[dict[int, list[int]]]]:
    """The least bound over prices, and the fillings met on the way (seeds for the fleet model).

    Fewer ``rounds`` give a bound that is valid too, and a little weaker.
    """
    met: list[dict[int, list[int]]] = []
    narrow = bottled(items, classes, links)

    def at(y: float) -> float:
        value, fillings = relaxed_rate(items, classes, y, narrow)
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


def cost_per_rate_bound(
    items: Sequence[Item], classes: Sequence[PoolClass], links: Links | None = None
) -> float:
    """Least dollars per hour for one request per second, paying only for chips in replicas.

    For every ``y``, each item (or each number of chips in a pool whose links can bind) costs at least
    ``min price / worth`` per unit of worth, and the fleet's worth is at least ``R``: the largest such ratio
    over ``y`` is a bound.
    """
    narrow = bottled(items, classes, links)
    prices = {index: np.cumsum(classes[index].prices) for index in narrow}
    # of a replica that has slices in such pools too, the other slices and their share of its worth
    outside = [[part for part in item.parts if part[0] not in narrow] for item in items]
    paid = np.array([sum(classes[c].usd_per_hour(n) for c, n in parts) for parts in outside])
    share = np.array(
        [sum(n for _, n in parts) / item.chips for item, parts in zip(items, outside, strict=True)]
    )
    best = 0.0
    for y in np.linspace(0.0, 1.0, 257 if not narrow else 65):
        values = worth(items, float(y)) * share
        useful = values > 0
        ratios = [float(np.min(paid[useful] / values[useful]))] if np.any(useful) else []
        for index, one in narrow.items():
            whole = one.worth(float(y))[0][1:]
            served = whole > 0
            if np.any(served):
                ratios.append(float(np.min(prices[index][served] / whole[served])))
        best = max(best, min(ratios, default=0.0))
    return best

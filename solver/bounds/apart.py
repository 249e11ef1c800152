r"""A bound on any fleet by pricing prefill and decode apart (Lagrangian relaxation).

The fleet serves ``R = min(P, D) + M`` requests per second. For every ``0 <= y <= 1``,
``min(P, D) <= y P + (1 - y) D``, so an item is worth ``y P + (1 - y) D + M`` and pools no longer
depend on each other: each is a knapsack of its chips, solved exactly by dynamic programming (a
replica over several pools brings each its share, by chips). The smallest sum over ``y`` bounds ``R``; it is
convex in ``y``.

Pools whose domains' links can bind are worth what :mod:`solver.bounds.bottled` finds.

That leaves out that replicas are whole. Where there are few chips, whole ones on all of them, wherever they stand, serve at most
``W(n) = max over p + d + m = n of min(P(p), D(d)) + M(m)``, each role being a knapsack of chips of its own; the smaller bound counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.tolerance import RELATIVE
from solver.bounds.bottled import Bottled, bottled
from solver.bounds.packing import best_packing
from solver.fleet.asked import Links
from solver.fleet.items import Item
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))
#: chips up to which replicas are taken whole: of more, one replica is too small a part to matter
_WHOLE = 512


class _Items:
    """Items as arrays, for many prices ``y`` of prefill against decode."""

    def __init__(self, items: Sequence[Item], classes: Sequence[PoolClass]):
        self.roles = np.array([item.role for item in items], dtype=int)
        self.rates = np.array([item.requests_per_s for item in items])
        #: of each class: the items with slices in its pools, their share of the item, and their chips
        self.slices: dict[int, tuple[Ints, Array, Ints]] = {}
        for pool_class in classes:
            own = [
                (place, chips / item.chips, chips)
                for place, item in enumerate(items)
                for chips in item.slices_in(pool_class.index)
            ]
            places, shares, sizes = zip(*own, strict=True) if own else ((), (), ())
            self.slices[pool_class.index] = (
                np.array(places, dtype=np.int64), np.array(shares), np.array(sizes, dtype=np.int64),
            )  # fmt: skip

    def worth(self, y: float) -> Array:
        """Value of each item."""
        return np.asarray(np.array([y, 1.0 - y, 1.0])[self.roles] * self.rates)

    def relaxed_rate(
        self, classes: Sequence[PoolClass], y: float, narrow: Mapping[int, Bottled]
    ) -> tuple[float, dict[int, list[int]]]:
        """Bound on ``R``, and one best filling (item indices) of a pool of each class."""
        values = self.worth(y)
        total, fillings = 0.0, {}
        for pool_class in classes:
            if pool_class.index in narrow:
                own_links = narrow[pool_class.index]
                best, parts = own_links.worth(y)
                total += len(pool_class.pools) * float(best[-1])
                fillings[pool_class.index] = own_links.filling(*parts)
                continue
            places, shares, sizes = self.slices[pool_class.index]
            packing = best_packing(values[places] * shares, sizes, pool_class.size)
            total += len(pool_class.pools) * float(packing.best[-1])
            filling = packing.filling(pool_class.size)
            fillings[pool_class.index] = places[filling].tolist()
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
    narrow = {} if links is None else bottled(items, classes, links)
    arrays = _Items(items, classes)

    def at(y: float) -> float:
        value, fillings = arrays.relaxed_rate(classes, y, narrow)
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
    whole = whole_replicas(items, classes)
    return least if whole is None else min(least, float(whole[-1])), met


def whole_replicas(items: Sequence[Item], classes: Sequence[PoolClass]) -> Array | None:
    """Requests/s that whole replicas serve at most on 0, 1, 2, ... of all chips, wherever these are; ``None``: too many chips."""
    chips = sum(len(pool_class.pools) * pool_class.size for pool_class in classes)
    return None if chips > _WHOLE else _whole_up_to(items, chips)


def _whole_up_to(items: Sequence[Item], chips: int) -> Array:
    """The same on 0, 1, 2, ... up to ``chips``."""
    served = []
    for role in (_PREFILL, _DECODE, _MIXED):
        own = [item for item in items if item.role == role]
        rates = np.array([item.requests_per_s for item in own])
        sizes = np.array([item.chips for item in own], dtype=np.int64)
        served.append(best_packing(rates, sizes, chips).best)
    prefill, decode, mixed = served
    apart = [np.minimum(prefill[: n + 1], decode[n::-1]).max() for n in range(chips + 1)]
    both = np.array(apart)
    return np.array([(both[: n + 1] + mixed[n::-1]).max() for n in range(chips + 1)])


def cost_per_rate_bound(
    items: Sequence[Item],
    classes: Sequence[PoolClass],
    links: Links | None = None,
    rate: float | None = None,
) -> float:
    """Least dollars per hour for one request per second, paying only for chips in replicas.

    ``rate``: so many are asked for, and a fleet that serves more costs no less for each of them.

    For every ``y``, each item (or each number of chips in a pool whose links can bind) costs at least
    ``min price / worth`` per unit of worth, and the fleet's worth is at least ``R``: the largest such ratio
    over ``y`` is a bound.
    """
    narrow = {} if links is None else bottled(items, classes, links)
    prices = {index: np.cumsum(classes[index].prices) for index in narrow}
    # of a replica that has slices in such pools too, the other slices and their share of its worth
    outside = [[part for part in item.parts if part[0] not in narrow] for item in items]
    paid = np.array([sum(classes[c].usd_per_hour(n) for c, n in parts) for parts in outside])
    share = np.array(
        [sum(n for _, n in parts) / item.chips for item, parts in zip(items, outside, strict=True)]
    )
    arrays, best = _Items(items, classes), 0.0
    for y in np.linspace(0.0, 1.0, 257 if not narrow else 65):
        values = arrays.worth(float(y)) * share
        useful = values > 0
        ratios = [float(np.min(paid[useful] / values[useful]))] if np.any(useful) else []
        for index, one in narrow.items():
            whole = one.worth(float(y))[0][1:]
            served = whole > 0
            if np.any(served):
                ratios.append(float(np.min(prices[index][served] / whole[served])))
        best = max(best, min(ratios, default=0.0))
    if rate is not None:
        best = whole_chips(best * rate, classes) / rate
    return max(best, _of_whole(items, classes, rate))


def whole_chips(usd_per_hour: float, classes: Sequence[PoolClass]) -> float:
    """Dollars per hour of whole chips for so many at least: the next multiple where all chips cost the same."""
    prices = {price for one in classes for price in one.prices}
    if len(prices) > 1 or not 0.0 < usd_per_hour < np.inf:
        return usd_per_hour
    (price,) = prices
    return max(usd_per_hour, float(np.ceil(usd_per_hour / price * (1 - RELATIVE))) * price)


def _of_whole(items: Sequence[Item], classes: Sequence[PoolClass], rate: float | None) -> float:
    """The same by whole replicas on the cheapest chips; 0 where that tells nothing.

    For a rate that few chips serve it tells even where there are many.
    """
    every = [price for one in classes for price in one.prices for _ in one.pools]
    if rate is None and len(every) > _WHOLE:
        return 0.0
    chips = min(len(every), _WHOLE)
    whole = _whole_up_to(items, chips)
    enough = whole > 0 if rate is None else whole >= rate * (1 - RELATIVE)
    if not enough.any():
        return 0.0
    usd = np.concatenate([[0.0], np.cumsum(np.sort(every)[:chips])])
    return float((usd[enough] / (whole[enough] if rate is None else rate)).min())


def cheapest_by_role(items: Sequence[Item], classes: Sequence[PoolClass]) -> list[int]:
    """Of each role, the item (by place) that costs least per worth, at the price ``y`` on which the bound rests.

    Links are left out: what rests on them is a matter of pools, not of items.
    """
    arrays = _Items(items, classes)
    paid = np.array([sum(classes[c].usd_per_hour(n) for c, n in item.parts) for item in items])
    best, found = 0.0, []
    for y in np.linspace(0.0, 1.0, 257):
        values = arrays.worth(float(y))
        ratios = np.divide(paid, values, out=np.full(len(items), np.inf), where=values > 0)
        least = float(ratios.min(initial=np.inf))
        if best < least < np.inf:
            best = least
            own = [np.flatnonzero(arrays.roles == role) for role in np.unique(arrays.roles)]
            found = [int(places[np.argmin(ratios[places])]) for places in own]
    return found

r"""Fleets that lose a replica: what is left of each role still carries the rate.

Any chip may be lost with its unit, and a replica is gone with any of its chips. So a fleet that survives every loss
has, of each role it uses, the rate without the largest of its replicas::

    sum_i n_i r_i - max_{i used} r_i >= wanted

For a largest replica of rate ``m`` that asks for ``wanted + m`` of replicas no larger than ``m``, a knapsack on
their chips. Rates that are upper bounds give a bound: without its largest upper bound, the sum of the others is at least
what is left of the truth. Pools and links are left out, which only makes fleets cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from solver.bounds.packing import best_packing
from solver.fleet.items import Item
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES
from solver.verify import ROUNDING

#: chips up to which a knapsack is solved in whole replicas; beyond, in parts of them
_WHOLE = 512
#: parts of the rate that mixed replicas may carry beside others, each bounded by its ends
_PARTS = 64

Array = NDArray[np.float64]

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


@dataclass(frozen=True)
class Spared:
    """Chips of a role's replicas, none of a higher rate than ``most``, of which any one may go."""

    chips: float
    most: float


class _Role:
    """What the items of one role serve on so many chips, none larger than one of them."""

    def __init__(self, items: Sequence[Item], role: int, chips: int) -> None:
        own = [item for item in items if item.role == role]
        rates = np.array([item.requests_per_s for item in own])
        sizes = np.array([item.chips for item in own], dtype=np.int64)
        #: rates of a largest replica, rising
        self.most = np.unique(rates)
        #: of each: requests/s at most ``[chips + 1]``
        self.reach = [
            _reach(rates[rates <= most], sizes[rates <= most], chips) for most in self.most
        ]

    def spared(self, wanted: float, part: float = 0.0) -> list[Spared]:
        """On how many chips ``wanted`` is left without any one replica, and without ``part``, by the largest; fewest first."""
        found = [
            Spared(_first(reach, wanted + max(most, part)), float(most))
            for most, reach in zip(self.most, self.reach, strict=True)
        ]
        return sorted((one for one in found if one.chips < inf), key=lambda one: one.chips)

    def least(self, wanted: float) -> float:
        """Chips of the best of them; ``inf``: all are too few."""
        return next((one.chips for one in self.spared(wanted)), inf)

    def serving(self, wanted: float) -> float:
        """Chips on which ``wanted`` is served while none is lost."""
        return _first(self.reach[-1], wanted) if self.reach else inf


def _reach(rates: Array, sizes: NDArray[np.int64], chips: int) -> Array:
    if chips <= _WHOLE:
        return best_packing(rates, sizes, chips).best
    return np.asarray(np.arange(chips + 1) * float((rates / sizes).max()))


def _first(reach: Array, wanted: float) -> float:
    enough = reach >= wanted * (1 - ROUNDING)
    return int(enough.argmax()) if enough[-1] else inf


def _roles(items: Sequence[Item], chips: int) -> list[_Role]:
    return [_Role(items, role, chips) for role in range(len(ROLES))]


def least_chips(items: Sequence[Item], wanted: float, chips: int, *, spare: bool = True) -> float:
    """Chips that every fleet needs which serves ``wanted`` without any one of its replicas; ``inf``: more than ``chips``.

    Where mixed replicas stand beside the others and carry between ``a`` and ``b``, they need the chips for ``a``, and the
    others those for ``wanted - b``. ``spare``: false where none is lost.
    """
    prefill, decode, mixed = _roles(items, chips)

    def pooled(rate: float) -> float:
        return sum(role.least(rate) if spare else role.serving(rate) for role in (prefill, decode))

    least = min(mixed.least(wanted) if spare else mixed.serving(wanted), pooled(wanted))
    if len(mixed.most) and least > 0:
        edges = np.linspace(min(wanted, float(mixed.most[0])), wanted, _PARTS + 1)
        for lower, upper in pairwise(edges):
            least = min(least, mixed.serving(lower) + pooled(wanted - upper))
    return least if least <= chips else inf


def ways(
    items: Sequence[Item], wanted: float, chips: int, number: int, part: float = 0.0
) -> list[dict[int, float]]:
    """The rate of the largest replica by role, of fleets that keep ``wanted``: those on the fewest chips first.

    ``part``: what is lost of each role at least, as where some unit has no less than an even part of it.
    Roles that a fleet does without are left out.
    """
    found = [role.spared(wanted, part) for role in _roles(items, chips)]
    pooled = [
        (one.chips + other.chips, {_PREFILL: one.most, _DECODE: other.most})
        for one in found[_PREFILL][:number]
        for other in found[_DECODE][:number]
    ]
    alone = [(one.chips, {_MIXED: one.most}) for one in found[_MIXED][:number]]
    fitting = [way for way in [*pooled, *alone] if way[0] <= chips]
    return [most for _, most in sorted(fitting, key=lambda way: way[0])[:number]]


def all_chips(classes: Sequence[PoolClass]) -> int:
    """Chips of all pools."""
    return sum(len(one.pools) * one.size for one in classes)

"""Axes of a torus and boxes of chips on it, with the loads that have closed forms there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a torus or of a box on it: ``side`` chips, closed to a ring or a line."""

    side: int
    ring: bool
    bytes_per_s: float

    @property
    def ports(self) -> int:
        """Links of the worst-placed chip along the axis: 2 on a ring, 1 at the end of a line."""
        return 0 if self.side < 2 else 2 if self.ring else 1

    @property
    def reach(self) -> int:
        """Hops to the farthest chip along the axis."""
        return self.side // 2 if self.ring else self.side - 1

    def distance(self, a: int, b: int) -> int:
        """Hops between two coordinates."""
        ahead = abs(a - b)
        return min(ahead, self.side - ahead) if self.ring else ahead


def exchange_load(axis: Axis) -> float:
    """Load of the busiest link of an axis per byte sourced per chip, all to all.

    Ring: *L/8* (even) or *(L^2-1)/(8L)* (odd), from mean distance over two directions. Line:
    *floor(L/2) ceil(L/2) / L*, the middle link.
    """
    side = axis.side
    if axis.ring:
        return (side * side - side % 2) / (8 * side)
    return (side // 2) * (side - side // 2) / side


def slab_bound(axes: Sequence[Axis], members: Sequence[int]) -> float:
    """Least seconds per byte sourced per chip of an exchange, by the cuts across each axis.

    *a(c-a)/c* bytes leave a slab that holds *a* of *c* members, over its two faces (one on a line).
    """
    shape = [axis.side for axis in axes]
    places, count = prod(shape), len(members)
    bound = 0.0
    for axis, sites in zip(axes, np.unravel_index(list(members), shape), strict=True):
        held = np.bincount(sites, minlength=axis.side).tolist()
        face = places // axis.side * axis.bytes_per_s
        total = 0
        sums = [0]
        for amount in held + held:
            total += amount
            sums.append(total)
        for low in range(axis.side if axis.ring else 1):
            for side in range(1, axis.side):
                inside = sums[low + side] - sums[low]
                faces = 2 * face if axis.ring else face
                bound = max(bound, inside * (count - inside) / count / faces)
    return bound


def site_of(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Coordinates of a position, last axis fastest."""
    site = []
    for side in reversed(shape):
        position, coordinate = divmod(position, side)
        site.append(coordinate)
    return tuple(reversed(site))


def position_of(site: Sequence[int], shape: Sequence[int]) -> int:
    """Position of coordinates."""
    position = 0
    for coordinate, side in zip(site, shape, strict=True):
        position = position * side + coordinate
    return position


def box_of(axes: Sequence[Axis], members: Sequence[int]) -> tuple[Axis, ...] | None:
    """Axes of the box that the members fill, or ``None`` when they are no box.

    A side that fills a ring keeps it. A shorter side is a line, unless shortest paths inside it
    would go round the outside, in which case the box has no closed form (``None``).
    """
    result, volume = list[Axis](), 1
    along = np.unravel_index(list(members), [axis.side for axis in axes])
    for axis, sites in zip(axes, along, strict=True):
        taken = np.flatnonzero(np.bincount(sites, minlength=axis.side)).tolist()
        side = len(taken)
        volume *= side
        if side == axis.side:
            result.append(axis)
            continue
        breaks = sum(
            1 for a, b in zip(taken, [*taken[1:], taken[0] + axis.side], strict=True) if b - a > 1
        )
        wraps = taken[0] == 0 and taken[-1] == axis.side - 1
        if breaks > 1 or (wraps and not axis.ring):
            return None
        if axis.ring and 2 * (side - 1) >= axis.side:
            return None
        result.append(Axis(side, False, axis.bytes_per_s))
    return tuple(result) if volume == len(set(members)) == len(members) else None


@lru_cache(maxsize=1024)
def best_box(axes: tuple[Axis, ...], free: frozenset[int], count: int) -> tuple[int, ...] | None:
    """Positions of the free box of ``count`` chips that exchanges fastest, or ``None``."""
    shape = [axis.side for axis in axes]
    choices = []
    for sides in product(*(range(1, axis.side + 1) for axis in axes)):
        volume = 1
        for side in sides:
            volume *= side
        if volume == count:
            box = [
                axis if side == axis.side else Axis(side, False, axis.bytes_per_s)
                for side, axis in zip(sides, axes, strict=True)
            ]
            slow = max(exchange_load(axis) / axis.bytes_per_s for axis in box)
            choices.append((slow, sum(axis.reach for axis in box), sides))
    for _, _, sides in sorted(choices):
        for corner in product(
            *(range(axis.side - side + 1) for axis, side in zip(axes, sides, strict=True))
        ):
            ranges = (range(low, low + side) for low, side in zip(corner, sides, strict=True))
            box_positions = tuple(position_of(site, shape) for site in product(*ranges))
            if free.issuperset(box_positions):
                return box_positions
    return None

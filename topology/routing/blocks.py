"""Compact sets of chips of a grid: boxes, sets grown chip by chip, and blocks cut into equal groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from topology.routing.boxes import Axis, position_of

#: partial covers that a cut into groups looks at before it is given up
_TRIES = 2000


@dataclass(frozen=True, slots=True)
class ChipBlock:
    """Chips that may serve together: seconds per byte of their exchange and their all-gather, latency."""

    chips: tuple[int, ...]
    exchange_s_per_byte: float = 0.0
    gather_s_per_byte: float = 0.0
    latency_s: float = 0.0

    @property
    def speed(self) -> tuple[float, float, float]:
        """What tells sets of equally many chips apart: seconds per byte of both patterns, and latency."""
        return self.exchange_s_per_byte, self.gather_s_per_byte, self.latency_s


#: exchange first, all-gather first, latency first
KEYS: tuple[Callable[[ChipBlock], tuple[float, ...]], ...] = (
    lambda block: (block.exchange_s_per_byte, block.latency_s),
    lambda block: (block.gather_s_per_byte, block.latency_s),
    lambda block: (block.latency_s, block.gather_s_per_byte, block.exchange_s_per_byte),
)


def front(blocks: Sequence[ChipBlock]) -> list[ChipBlock]:
    """Blocks that no other one is at least as quick as in every respect, one of each kind."""
    order = sorted(((_speed(block), block) for block in blocks), key=lambda one: one[0])
    kept: list[tuple[tuple[float, ...], ChipBlock]] = []
    for speed, block in order:
        if not any(all(a <= b for a, b in zip(k, speed, strict=True)) for k, _ in kept):
            kept.append((speed, block))
    return [block for _, block in kept]


def _speed(block: ChipBlock) -> tuple[float, ...]:
    """What a block is judged by, up to the last bits of a float."""
    return tuple(float(f"{value:.9g}") for value in block.speed)


def by_speed(blocks: Sequence[ChipBlock]) -> list[ChipBlock]:
    """Blocks by the sum of what each takes over the least that any takes, quickest first."""
    speeds = np.array([_speed(block) for block in blocks]).reshape(-1, 3)
    least = np.where(speeds.min(axis=0) > 0, speeds.min(axis=0), 1.0)
    order = np.argsort((speeds / least).sum(axis=1).round(9), kind="stable")
    return [blocks[index] for index in order]


def boxes(
    axes: Sequence[Axis], free: frozenset[int], count: int, most: int
) -> list[tuple[int, ...]]:
    """Boxes of ``count`` free chips, also across the seam of a ring: one of every shape, the compact ones first.

    Then a second of each, and so on, until there are ``most``.
    """
    ranges = [range(1, axis.side + 1) for axis in axes]
    shapes = sorted((one for one in product(*ranges) if prod(one) == count), key=sum)
    waiting = [placed_boxes(axes, free, sides) for sides in shapes]
    found: list[tuple[int, ...]] = []
    while waiting and len(found) < most:
        there = [(box, more) for more in waiting if (box := next(more, None)) is not None]
        waiting = [more for _, more in there]
        room = len(there) if not found else most - len(found)
        found += [box for box, _ in there[:room]]
    return found


def nearly_boxes(axes: Sequence[Axis], count: int) -> list[tuple[int, ...]]:
    """Sides of boxes that ``count`` chips fill, but for less than a layer; those that lack fewest first."""
    found = []
    for sides in product(*(range(1, axis.side + 1) for axis in axes)):
        lacks = prod(sides) - count
        if 0 <= lacks < prod(sides) // max(sides):
            found.append((lacks, sum(sides), sides))
    return [sides for _, _, sides in sorted(found)]


def placed_boxes(
    axes: Sequence[Axis], free: frozenset[int], sides: Sequence[int], count: int | None = None
) -> Iterator[tuple[int, ...]]:
    """The first ``count`` chips of every box with such sides where these are free; all of its chips unless said."""
    shape = [axis.side for axis in axes]
    corners = [
        range(1 if side == axis.side else axis.side if axis.ring else axis.side - side + 1)
        for side, axis in zip(sides, axes, strict=True)
    ]
    for corner in product(*corners):
        spans = [
            [(low + step) % axis.side for step in range(side)]
            for low, side, axis in zip(corner, sides, axes, strict=True)
        ]
        box = tuple(sorted([position_of(site, shape) for site in product(*spans)][:count]))
        if free.issuperset(box):
            yield box


def grown(
    hops: NDArray[np.int16], free: Sequence[int], count: int, seeds: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """A compact set of ``count`` free chips from each seed: next is the one with most links into the set,
    then the nearest one to all of it."""
    own = np.array(free)
    apart = np.asarray(hops[np.ix_(own, own)], dtype=np.int64)
    beside = (apart == 1).astype(np.int64)
    most = int(apart.max(initial=0)) + 1
    for seed in seeds:
        start = free.index(seed)
        inside = np.zeros(len(own), dtype=bool)
        inside[start] = True
        links, far, total = beside[start].copy(), apart[start].copy(), apart[start].copy()
        for _ in range(count - 1):
            # the farthest member first, then links, then the sum of hops
            rank = (far * (2 * most) - links * 2) * most * len(own) + total
            rank[inside] = np.iinfo(np.int64).max
            chosen = int(rank.argmin())
            inside[chosen] = True
            links += beside[chosen]
            far = np.maximum(far, apart[chosen])
            total += apart[chosen]
        yield tuple(int(p) for p in own[inside])


def around(
    hops: NDArray[np.int16], free: Sequence[int], count: int, seeds: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The ``count`` free chips nearest to each seed, and those nearest to it and one beside it.

    Few sets of so many chips are as close together.
    """
    own = np.array(free)
    for seed in seeds:
        apart = hops[seed, own].astype(np.int64)
        beside = own[apart == 1]
        near = [apart, *([apart + hops[beside[0], own]] if len(beside) else [])]
        for distance in near:
            yield tuple(sorted(own[np.argsort(distance, kind="stable")[:count]].tolist()))


def runs(axes: Sequence[Axis], free: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """The first ``count`` free chips row by row, along each axis: rows that are rings carry more than a box's."""
    own = np.array(free)
    along = np.unravel_index(own, [axis.side for axis in axes])
    for turn in range(len(axes)):
        keys = [*along[len(axes) - turn :], *along[: len(axes) - turn]]
        order = np.lexsort(keys[::-1])  # the last key counts first
        yield tuple(sorted(own[order[:count]].tolist()))


def in_groups(
    block: Sequence[int], candidates: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]] | None:
    """The block cut into candidates that share no chip, the first ones preferred; ``None`` if not found."""
    holding: dict[int, list[frozenset[int]]] = {chip: [] for chip in block}
    for candidate in candidates:
        holding[min(candidate)].append(frozenset(candidate))
    tries = 0

    def cover(left: frozenset[int]) -> list[frozenset[int]] | None:
        nonlocal tries
        if not left:
            return []
        tries += 1
        for group in holding[min(left)]:
            if tries > _TRIES:
                return None
            if group <= left:
                rest = cover(left - group)
                if rest is not None:
                    return [group, *rest]
        return None

    found = cover(frozenset(block))
    return None if found is None else [tuple(sorted(group)) for group in found]


def disjoint(
    places: Sequence[tuple[int, ...]], number: int, beside: Collection[int] = ()
) -> list[tuple[int, ...]]:
    """The first sets that share no chip with those before nor with ``beside``, ``number`` at most."""
    found, taken = list[tuple[int, ...]](), set(beside)
    for chips in places:
        if len(found) == number:
            break
        if taken.isdisjoint(chips):
            found.append(chips)
            taken |= set(chips)
    return found


def cut(
    block: tuple[int, ...],
    size: int,
    blocks_of: Callable[[tuple[int, ...], int], Sequence[ChipBlock]],
    key: Callable[[ChipBlock], tuple[float, ...]],
) -> list[tuple[int, ...]]:
    """The block in groups of ``size`` whose slowest, by ``key``, is as quick as was found.

    ``blocks_of(chips, size)``: sets to choose from. In order of position where no cut is found.
    """
    choices = sorted(blocks_of(block, size), key=key)
    levels = sorted({key(choice) for choice in choices})
    for level in levels:
        within = [choice.chips for choice in choices if key(choice) <= level]
        found = in_groups(block, within) if len(within) * size >= len(block) else None
        if found is not None:
            return found
    return [block[start : start + size] for start in range(0, len(block), size)]


def chain(groups: Sequence[tuple[int, ...]], hops: NDArray[np.int16]) -> list[tuple[int, ...]]:
    """Groups in an order in which each is followed by the nearest that is left, by their first chips."""
    left = list(groups)
    order = [left.pop(0)]
    while left:
        here = order[-1][0]
        order.append(left.pop(min(range(len(left)), key=lambda at: int(hops[here, left[at][0]]))))
    return order

r"""Pools whose domain's links can carry less KV than its replicas could hand over or take.

With ``a`` chips of a pool to prefill replicas whose KV stays in the domain, ``e`` to those whose KV may leave,
``b`` to decode and the rest to mixed replicas, and links for ``C`` requests per second, a pool is worth at most::

    y min(S(a) + A(e), D(b) + min(A(e), C)) + (1 - y) min(D(b), S(a) + A(e) + C) + M(rest)

for the price ``y`` of prefill: what links do not carry must meet inside. ``S``, ``A``, ``D``, ``M`` are the most that
replicas of each kind serve on so many chips; a replica over several pools brings each its share, by chips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.bounds.packing import Packing, best_packing
from solver.fleet.asked import Links
from solver.fleet.items import Item
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))

#: splits of a pool's chips that are looked at; with more, all prefill replicas count as leaving
_MOST_SPLITS = 1 << 19


@dataclass(frozen=True)
class Bottled:
    """A pool alone in a domain: its best packings (staying, leaving, decode, mixed) and its links' room.

    ``splits [splits, 3]``: chips to staying and leaving prefill and to decode, by their sum; ``firsts``: the first
    split of each sum.
    """

    packings: tuple[Packing, Packing, Packing, Packing]
    places: tuple[list[int], list[int], list[int], list[int]]
    room: float
    splits: Ints
    firsts: Ints

    def worth(self, y: float) -> tuple[Array, tuple[int, int, int]]:
        """Most worth of ``[chips]``; of all of them, the chips to staying and leaving prefill and to decode."""
        stay, leave, decode, mixed = (packing.best for packing in self.packings)
        away, demand = leave[self.splits[:, 1]], decode[self.splits[:, 2]]
        supply = stay[self.splits[:, 0]] + away
        value = y * np.minimum(supply, demand + np.minimum(away, self.room))
        value += (1.0 - y) * np.minimum(demand, supply + self.room)
        pooled = np.maximum.reduceat(value, self.firsts)
        count = len(mixed)
        best = np.zeros(count)
        for chips in range(count):
            best[chips:] = np.maximum(best[chips:], pooled[chips] + mixed[: count - chips])
        last = int(np.argmax(pooled + mixed[::-1]))
        ends = np.append(self.firsts[1:], len(value))
        at = self.firsts[last] + int(np.argmax(value[self.firsts[last] : ends[last]]))
        first, second, third = self.splits[at].tolist()
        return best, (first, second, third)

    def filling(self, stay: int, leave: int, decode: int) -> list[int]:
        """Items (by place) on so many chips, the rest of the pool to mixed replicas."""
        chips = stay, leave, decode, len(self.packings[0].best) - 1 - stay - leave - decode
        return [
            places[at]
            for packing, places, count in zip(self.packings, self.places, chips, strict=True)
            for at in packing.filling(count)
        ]


def bottled(
    items: Sequence[Item], classes: Sequence[PoolClass], links: Links
) -> dict[int, Bottled]:
    """The classes whose domains' links can bind, where a domain holds one pool."""
    homes = Counter(pool.domain for c in classes for pool in c.pools)
    found = {}
    for pool_class in classes:
        if any(homes[pool.domain] > 1 for pool in pool_class.pools):
            continue  # the links of a domain with several types of chips are left to the fleet model
        if any(item.kv_parts and item.slices_in(pool_class.index) for item in items):
            continue  # as are those of a replica whose KV does not lie evenly on its chips
        # alike domains may lie in units of one domain and of several
        room = max(links.room(pool.domain) for pool in pool_class.pools)
        stay, leave, decode, mixed = (
            _packed(items, pool_class, role, leaves)
            for role, leaves in (
                (_PREFILL, False), (_PREFILL, True), (_DECODE, None), (_MIXED, None),
            )
        )  # fmt: skip
        most = max(leave[0].best[-1], decode[0].best[-1])
        if room >= most and stay[0].best[-1] <= 0:
            continue
        splits = _splits(pool_class.size, stay[0].best, leave[0].best, decode[0].best)
        if splits is None:
            leave = _packed(items, pool_class, _PREFILL, None)
            stay = _packed([], pool_class, _PREFILL, None)
            splits = _splits(pool_class.size, stay[0].best, leave[0].best, decode[0].best)
            if splits is None:
                continue
        found[pool_class.index] = Bottled(
            (stay[0], leave[0], decode[0], mixed[0]), (stay[1], leave[1], decode[1], mixed[1]),
            room, *splits,
        )  # fmt: skip
    return found


def _packed(
    items: Sequence[Item], pool_class: PoolClass, role: int, leaves: bool | None
) -> tuple[Packing, list[int]]:
    """The best packing of a pool by items of a role, and which these are."""
    slices = [
        (place, chips)
        for place, item in enumerate(items)
        if item.role == role and leaves in (None, item.leaves)
        for chips in item.slices_in(pool_class.index)
    ]
    share = [items[p].requests_per_s * chips / items[p].chips for p, chips in slices]
    sizes = np.array([chips for _, chips in slices], dtype=np.int64)
    packing = best_packing(np.array(share), sizes, pool_class.size)
    return packing, [place for place, _ in slices]


def _splits(size: int, *tables: Array) -> tuple[Ints, Ints] | None:
    """Splits of up to ``size`` chips into numbers with which tables rise, by their sum, and the first of each.

    ``None``: too many.
    """
    steps = [np.flatnonzero(np.diff(table, prepend=-1.0) > 0) for table in tables]
    if np.prod([float(len(own)) for own in steps]) > _MOST_SPLITS:
        return None
    grid = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(tables))
    grid = grid[grid.sum(axis=1) <= size]
    # every sum has a split: all chips of it idle, which is worth nothing
    idle = np.zeros((size + 1, len(tables)), dtype=np.int64)
    chips = np.concatenate([grid.sum(axis=1), np.arange(size + 1)])
    grid = np.concatenate([grid, idle])
    order = np.argsort(chips, kind="stable")
    firsts = np.searchsorted(chips[order], np.arange(size + 1))
    return grid[order].astype(np.int64), firsts.astype(np.int64)

"""Replicas over several domains stand in one unit of the network, where pools alike allow it.

The fleet model does not tell pools of a class apart: what it puts on one may as well stand on another. Pools that
replicas share are kept together and put into one unit, the largest such groups first.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from solver.fleet.items import Item
from solver.shapes.pools import Pool, PoolClass

#: a replica and its pools
Stand = tuple[Item, tuple[Pool, ...]]


def beside(
    stands: Sequence[Stand], classes: Sequence[PoolClass], unit_of: Sequence[int]
) -> list[Stand]:
    """The same replicas on pools that are alike, those over several domains within units.

    ``unit_of``: the unit of each domain.
    """
    moved: dict[Pool, Pool] = {}
    for pool_class in classes:
        if len({unit_of[pool.domain] for pool in pool_class.pools}) > 1:
            moved |= _moved(stands, pool_class, unit_of)
    return [(item, tuple(moved.get(pool, pool) for pool in pools)) for item, pools in stands]


def _moved(
    stands: Sequence[Stand], pool_class: PoolClass, unit_of: Sequence[int]
) -> dict[Pool, Pool]:
    """Where what stands on each pool of a class goes; nothing moves where all is in its unit."""
    shared: nx.Graph[Pool] = nx.Graph()
    own = set(pool_class.pools)
    crossing = False
    for item, pools in stands:
        inside = [pool for pool in pools if pool in own]
        if item.wide and len(inside) > 1:
            nx.add_path(shared, inside)
            crossing |= len({unit_of[pool.domain] for pool in inside}) > 1
    if not crossing:
        return {}
    free: dict[int, list[Pool]] = {}
    for pool in pool_class.pools:
        free.setdefault(unit_of[pool.domain], []).append(pool)
    place = {pool: at for at, pool in enumerate(pool_class.pools)}
    groups = [sorted(one, key=place.__getitem__) for one in nx.connected_components(shared)]
    groups.sort(key=lambda one: (-len(one), place[one[0]]))
    groups += [[pool] for pool in pool_class.pools if pool not in shared]
    moved: dict[Pool, Pool] = {}
    for group in groups:
        left = list(group)
        while left:
            # the unit with the least room that has enough, else the one with the most
            unit = min(
                (unit for unit, pools in free.items() if pools),
                key=lambda unit: (
                    (short := len(free[unit]) < len(left)),
                    -len(free[unit]) if short else len(free[unit]),
                    unit,
                ),
            )
            taken = min(len(left), len(free[unit]))
            moved |= dict(zip(left[:taken], free[unit][:taken], strict=True))
            left, free[unit] = left[taken:], free[unit][taken:]
    return moved

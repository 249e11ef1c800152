"""Ways to fill one pool, for classes of so many pools that each cannot have variables of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from solver.bounds.packing import best_packing
from solver.fleet.items import Item
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


def pool_patterns(
    items: Sequence[Item],
    own: Sequence[int],
    pool_class: PoolClass,
    seeds: Iterable[Sequence[int]],
    *,
    wide: bool,
) -> list[Counter[int]]:
    """The ``seeds`` (fillings met on the way to the bound), and every split of the pool's chips.

    A split gives ``a`` chips to prefill and the rest to decode, each filled as well as it can be by
    items that stand in one pool; mixed replicas alone are one more. A slice of a replica over several pools is
    alone, among its like, or beside what fills the rest (``wide``). With many pools the fractions that a bound would like
    are met closely by counts of these.
    """
    found = {tuple(sorted(seed)) for seed in seeds}
    fillings: dict[int, list[tuple[int, ...]]] = {}
    for role in range(len(ROLES)):
        places = [p for p in own if items[p].role == role and items[p].slices == 1]
        packing = best_packing(
            np.array([items[p].requests_per_s for p in places]),
            np.array([items[p].slice_chips for p in places], dtype=np.int64),
            pool_class.size,
        )
        fillings[role] = [
            tuple(places[i] for i in packing.filling(chips)) for chips in range(pool_class.size + 1)
        ]
    for chips in range(pool_class.size + 1):
        rest = pool_class.size - chips
        found.add(tuple(sorted(fillings[_PREFILL][chips] + fillings[_DECODE][rest])))
    found.add(tuple(sorted(fillings[_MIXED][-1])))
    for place in own if wide else ():
        if items[place].wide and not items[place].span:
            slices = items[place].slices_in(pool_class.index)
            for chips in slices:
                rest = pool_class.size - chips
                found |= {(place, *fillings[role][rest]) for role in (_PREFILL, _DECODE)}
                found.add((place,) * (pool_class.size // chips))
    found.discard(())
    return [Counter(filling) for filling in sorted(found)]

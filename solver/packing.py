"""Slices onto pools: where the replicas of a fleet stand, once it is known how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.items import Item
from solver.pools import PoolClass


def packing_cuts(pool_class: PoolClass) -> list[dict[int, int]]:
    r"""Weights ``w`` by slice size with ``sum w[size] <= pools * w[pool size]`` for all packings.

    Dual feasible functions for bin packing (Fekete and Schepers): for ``k = 1, 2, ...``, a slice of
    ``x`` of ``C`` chips weighs ``floor((k + 1) x / C) / k`` pools, or ``x / C`` where ``(k + 1) x / C`` is
    whole. Scaled by ``k C`` to integers.
    """
    capacity = pool_class.size
    cuts = []
    for k in range(1, capacity):
        weights = {}
        for size in range(1, capacity + 1):
            whole, rest = divmod((k + 1) * size, capacity)
            weights[size] = k * size if rest == 0 else whole * capacity
        cuts.append(weights | {0: k * capacity})
    return cuts


def pack_slices(
    counts: Mapping[int, int],
    items: Sequence[Item],
    pool_class: PoolClass,
    *,
    clock: Clock,
    limit_s: float,
    seed: int,
) -> tuple[list[dict[int, int]] | None, bool]:
    """Slices of each item in each pool (``None`` if not found), and whether that is proven impossible."""
    model = cp_model.CpModel()
    pools = range(len(pool_class.pools))
    places = sorted(place for place, count in counts.items() if count)
    slices = {
        (place, pool): model.new_int_var(
            0,
            min(pool_class.size // items[place].slice_chips, counts[place])
            if items[place].slices > 1
            else pool_class.size // items[place].slice_chips,
            f"z[{place},{pool}]",
        )
        for place in places
        for pool in pools
    }
    loads = []
    for pool in pools:
        load = sum(items[place].slice_chips * slices[place, pool] for place in places)
        model.add(load <= pool_class.size)
        loads.append(load)
    for place in places:
        model.add(sum(slices[place, pool] for pool in pools) == items[place].slices * counts[place])
    for earlier, later in pairwise(loads):
        model.add(earlier >= later)
    solver, status = clock.run(model, seed=seed, limit_s=limit_s)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, status == cp_model.INFEASIBLE
    return [{place: solver.value(slices[place, pool]) for place in places} for pool in pools], False

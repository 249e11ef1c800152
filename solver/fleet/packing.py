"""Slices onto pools: where the replicas of a fleet stand, once it is known how many there are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.fleet.items import Item
from solver.shapes.pools import PoolClass


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


#: slices held by a pool: how many of which item, by ``(item, chips)``
Held = dict[tuple[int, int], int]


def pack_slices(
    counts: Mapping[int, int],
    items: Sequence[Item],
    pool_class: PoolClass,
    *,
    clock: Clock,
    limit_s: float,
    seed: int,
) -> tuple[list[Held] | None, bool]:
    """Slices in each pool of a class (``None`` if not found), and whether that is proven impossible.

    No pool holds more slices of an item than there are replicas of it: these can then be dealt so
    that each has its slices in pools of its own (:func:`deal`).
    """
    model = cp_model.CpModel()
    pools = range(len(pool_class.pools))
    slices: dict[tuple[int, int, int], cp_model.IntVar] = {}
    loads: list[list[cp_model.LinearExprT]] = [[] for _ in pools]
    for place in sorted(place for place, count in counts.items() if count):
        parts = items[place].slices_in(pool_class.index)
        for chips, number in sorted(parts.items()):
            here = []
            for pool in pools:
                variable = model.new_int_var(
                    0, pool_class.size // chips, f"z[{place},{chips},{pool}]"
                )
                slices[place, chips, pool] = variable
                loads[pool].append(chips * variable)
                here.append(variable)
            model.add(sum(here) == number * counts[place])
        if sum(parts.values()) > 1:
            for pool in pools:
                model.add(sum(slices[place, chips, pool] for chips in parts) <= counts[place])
    for load in loads:
        model.add(sum(load) <= pool_class.size)
    for earlier, later in pairwise(loads):
        model.add(sum(earlier) >= sum(later))
    solver, status = clock.run(model, seed=seed, limit_s=limit_s)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, status == cp_model.INFEASIBLE
    held: list[Held] = [{} for _ in pools]
    for (place, chips, pool), variable in slices.items():
        held[pool][place, chips] = solver.value(variable)
    return held, False


def deal(held: Sequence[Counter[int]], need: Counter[int], replicas: int) -> list[list[int]]:
    """The pools of each replica's slices, most chips first, by pool.

    ``held[pool]``: slices by their chips, together ``replicas`` times ``need``, and at most ``replicas``
    in one pool. As an edge colouring of this bipartite multigraph (Koenig) such a deal exists: each
    replica must take one slice from every pool that has as many left as there are replicas.
    """
    left = [Counter(one) for one in held]
    total = [one.total() for one in left]
    sizes = sorted(need.elements(), reverse=True)
    # the fullest pools first; only those that gave a slice change their place
    order = sorted((-total[p], p) for p in range(len(left)) if total[p])
    dealt = []
    for remaining in range(replicas, 0, -1):
        urgent = set()
        for full, pool in order:
            if -full != remaining:
                break
            urgent.add(pool)
        chosen = _distinct_pools(left, sizes, order, urgent)
        assert chosen is not None, "slices that no replicas can share"
        by_size: list[int] = []
        for chips in dict.fromkeys(sizes):
            by_size += sorted(p for p, size in zip(chosen, sizes, strict=True) if size == chips)
        for pool, chips in zip(by_size, sizes, strict=True):
            left[pool][chips] -= 1
            del order[bisect_left(order, (-total[pool], pool))]
            total[pool] -= 1
            if total[pool]:
                insort(order, (-total[pool], pool))
        dealt.append(by_size)
    return dealt


def _distinct_pools(
    left: Sequence[Counter[int]],
    sizes: Sequence[int],
    order: Sequence[tuple[int, int]],
    urgent: set[int],
    taken: tuple[int, ...] = (),
) -> list[int] | None:
    """A pool for each slice, all different, none of those taken and every urgent one among them."""
    if len(urgent) > len(sizes):
        return None
    if not sizes:
        return []
    for _, pool in order:
        if left[pool][sizes[0]] and pool not in taken:
            rest = _distinct_pools(left, sizes[1:], order, urgent - {pool}, (*taken, pool))
            if rest is not None:
                return [pool, *rest]
    return None

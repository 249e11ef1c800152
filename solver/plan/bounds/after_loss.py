r"""What whole units carry at most once any one of them is lost, whatever replicas stand on them (CP-SAT).

A replica is gone with any of its chips. ``x_j`` replicas of item ``j``, which serve ``r_j`` at most and stand on ``w_j`` units each,
leave ``min(P, D) + M`` of prefill, decode and mixed replicas. The ``R`` requests/s that are left after every loss of one of
``n`` units are no more than what is left after some losses, nor than their mean::

    R <= min(P, D) + M - r_j       for each item j that is used, with its role's sum less r_j: some unit takes a replica of it
    R <= min(P', D') + M'          where each replica counts for r_j (1 - w_j / n): the mean over the losses of every unit

on all chips, ``sum_j c_j x_j <= n c``. Which chips of a unit replicas stand on, and links, are left out: that only leaves more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.fleet.items import Item
from solver.scaling import rate_unit, up
from solver.shapes.shapes import ROLES

_PREFILL, _DECODE, _MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))
#: work for one bound, seconds
_LIMIT_S = 40.0


@dataclass(frozen=True)
class Kept:
    """No replicas on some units keep more than ``most`` requests/s after the worst loss; ``replicas`` of each item may keep as much.

    Infinite, and none, where the work or the time ended before a bound.
    """

    most: float
    replicas: tuple[int, ...] = ()


def most_after_loss(
    items: Sequence[Item], units: int, size: int, pools: int, *, clock: Clock, seed: int
) -> Kept:
    """What is left of any replicas on so many units after the worst loss of one.

    ``items``: each with the most that it serves. A unit has ``size`` chips in so many pools.
    """
    if units < 2 or not items:
        return Kept(0.0)
    cp, unit = cp_model.CpModel(), rate_unit(max(one.requests_per_s for one in items))
    most = [units * size // one.chips for one in items]
    number = [cp.new_int_var(0, own, "replicas") for own in most]
    used = [cp.new_bool_var("used") for _ in items]
    for own, replicas, is_used in zip(most, number, used, strict=True):
        cp.add(replicas <= own * is_used)
    cp.add(cp_model.LinearExpr.weighted_sum(number, [one.chips for one in items]) <= units * size)
    whole = [up(one.requests_per_s, unit) for one in items]
    mean = [
        up(one.requests_per_s * max(0.0, 1.0 - _stands_on(one, size, pools) / units), unit)
        for one in items
    ]
    left = cp.new_int_var(0, sum(r * n for r, n in zip(whole, most, strict=True)), "left")
    for role in (_PREFILL, _DECODE):
        places = [place for place, one in enumerate(items) if one.role in (role, _MIXED)]
        counted = [number[place] for place in places]
        served = cp_model.LinearExpr.weighted_sum(counted, [whole[place] for place in places])
        cp.add(left <= cp_model.LinearExpr.weighted_sum(counted, [mean[place] for place in places]))
        for place in places:
            # one less, so that what is lost is not rounded up with what serves
            cp.add(left <= served - max(0, whole[place] - 1) * used[place])
    cp.maximize(left)
    solver, status = clock.run(cp, seed=seed, limit_s=_LIMIT_S, linearize=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Kept(inf)
    counts = tuple(solver.value(own) for own in number)
    return Kept(float(solver.best_objective_bound) * unit, counts)


def _stands_on(item: Item, size: int, pools: int) -> int:
    """Units that a replica stands on, at least."""
    return max(ceil(item.chips / size), ceil(len(item.parts) / pools))

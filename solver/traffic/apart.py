"""Fleets that stand apart: what may be lost together holds little of any one role.

Replicas are dealt to pools so that the largest share of a role in one pool is least, and inside a pool roles take turns
along its chips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ortools.sat.python import cp_model

from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.fleet.asked import Fleet
from solver.scaling import up
from solver.shapes.pools import Pool, PoolClass
from solver.shapes.shapes import ROLES
from solver.traffic.losses import units

#: replicas times pools that are dealt at most, seconds for it, and units of rate of a whole role
_PAIRS, _DEAL_S, _PARTS = 4_000, 1.0, 10_000


def dealt(fleet: Fleet, classes: Sequence[PoolClass], clock: Clock, seed: int) -> Fleet:
    r"""The same replicas in pools of the same classes, so that no pool holds much of one role.

    With ``x[j, n, d]``: whether replica ``j`` has a slice of ``n`` chips in pool ``d``::

        minimise sum_role y[role]        sum_j share_j sum_n x[j, n, d] <= y[role]   for each role and pool
        sum_d x[j, n, d] = slices,   sum_n x[j, n, d] <= 1,   sum_j n x[j, n, d] <= chips of d

    Very large fleets stay as they are.
    """
    pools = [(one, pool) for one in classes for pool in one.pools]
    if len(fleet.stands) * len(pools) > _PAIRS:
        return fleet
    model = cp_model.CpModel()
    totals = [
        sum(i.requests_per_s for i, _ in fleet.stands if i.role == r) for r in range(len(ROLES))
    ]
    most = [model.new_int_var(0, _PARTS + len(fleet.stands), f"most[{role}]") for role in ROLES]
    held: dict[tuple[int, int], list[cp_model.LinearExprT]] = {}
    chips: dict[int, list[cp_model.LinearExprT]] = {}
    slices: dict[tuple[int, int, int], cp_model.IntVar] = {}
    for at, (item, stand) in enumerate(fleet.stands):
        share = up(item.requests_per_s / totals[item.role], 1.0 / _PARTS)
        own: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        for place, (one, pool) in enumerate(pools):
            sizes = item.slices_in(one.index)
            here = [model.new_bool_var(f"x[{at},{size},{place}]") for size in sizes]
            model.add(sum(here) <= 1)
            for size, variable in zip(sizes, here, strict=True):
                slices[at, size, place] = variable
                own.setdefault((one.index, size), []).append(variable)
                chips.setdefault(place, []).append(size * variable)
                model.add_hint(variable, pool in stand)
            held.setdefault((item.role, place), []).append(share * sum(here))
        for (index, size), variables in own.items():
            model.add(sum(variables) == item.slices_in(index)[size])
    for place, (one, _) in enumerate(pools):
        model.add(sum(chips.get(place, [])) <= one.size)
    for (role, _), shares in held.items():
        model.add(sum(shares) <= most[role])
    model.minimize(sum(most))
    solver, status = clock.run(model, seed=seed, limit_s=_DEAL_S, linearize=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return fleet
    found = []
    for at, (item, _) in enumerate(fleet.stands):
        free = {
            key: [
                pool
                for place, (one, pool) in enumerate(pools)
                if one.index == key[0]
                and (at, key[1], place) in slices
                and solver.boolean_value(slices[at, key[1], place])
            ]
            for key in set(item.parts)
        }
        found.append((item, tuple(free[part].pop(0) for part in item.parts)))
    return replace(fleet, stands=tuple(found))


def hosts_apart(instance: Instance, fleet: Fleet, spare: str | int) -> list[Sequence[str] | None]:
    """Chips of the replicas in one pool each, so that units that may be lost hold few of one role.

    Along the chips of a pool roles take turns where a replica ends inside a unit; where none of another role is left,
    the next replica begins with the next unit, as long as chips are idle. ``None``: chips are not chosen here.
    """
    unit_of = {chip: at for at, chips in enumerate(units(instance, spare)) for chip in chips}
    given: list[Sequence[str] | None] = [None] * len(fleet.stands)
    pools: dict[Pool, list[int]] = {}
    for at, (_, stand) in enumerate(fleet.stands):
        for pool in stand:
            pools.setdefault(pool, []).append(at)
    for pool, stands in pools.items():
        alone = all(len(fleet.stands[at][1]) == 1 for at in stands)
        if not alone or not instance.cluster.domains[pool.domain].interchangeable_chips:
            continue
        for at, chips in _in_turn(fleet, stands, pool.chips, unit_of):
            given[at] = chips
    return given


def _in_turn(
    fleet: Fleet, stands: Sequence[int], chips: Sequence[str], unit_of: Mapping[str, int]
) -> Iterator[tuple[int, Sequence[str]]]:
    left = sorted(stands, key=lambda at: -fleet.stands[at][0].chips)
    idle = len(chips) - sum(fleet.stands[at][0].chips for at in left)
    start, here = 0, set[int]()
    while left:
        other = [at for at in left if fleet.stands[at][0].role not in here]
        if not other:
            after = start
            while after < len(chips) and unit_of[chips[after]] == unit_of[chips[start]]:
                after += 1
            if after - start <= idle:
                idle -= after - start
                start, here = after, set()
                continue
        longest = Counter[int]()
        for at in left:
            longest[fleet.stands[at][0].role] += fleet.stands[at][0].chips
        at = max(other or left, key=lambda at: longest[fleet.stands[at][0].role])
        item = fleet.stands[at][0]
        yield at, chips[start : start + item.chips]
        left.remove(at)
        first, start = start, start + item.chips
        if start < len(chips):
            last = unit_of[chips[start - 1]]
            if last != unit_of[chips[start]]:
                here = set()
            else:
                here = (here if last == unit_of[chips[first]] else set()) | {item.role}

r"""No chip serves two replicas: what stands in a pool has no more chips than the pool.

sum_role a[d, role] + sum_i chips_i z[i, d] <= size_d                      pools told apart
sum_i chips_i slices_i q[i] <= pools * size, and bin-packing cuts         pools together
sum_k y[k] <= pools                                                       filled by patterns
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from solver.fleet.packing import packing_cuts
from solver.fleet.variables import FleetVariables

OF = "replica"
HOLDS = "replicas take chips of a pool, each pool once; assembly deals them out one by one"


def constrain(fleet: FleetVariables) -> None:
    """Chips of every pool."""
    for pool_class in fleet.classes:
        index, size = pool_class.index, pool_class.size
        for load in fleet.loads.get(index, ()):
            fleet.model.add(load <= size)
        if index in fleet.patterns:
            used = sum(variable for _, variable in fleet.patterns[index])
            fleet.model.add(used <= len(pool_class.pools))
        if index in fleet.aggregated:
            own = fleet.own(index)
            parts = {place: fleet.items[place].slices_in(index) for place in own}
            whole = {chips: chips for chips in range(1, size + 1)} | {0: size}
            for weights in [whole, *packing_cuts(pool_class)]:
                load = 0
                for place in own:
                    weight = sum(weights[n] * times for n, times in parts[place].items())
                    load += weight * fleet.count[place]
                fleet.model.add(load <= len(pool_class.pools) * weights[0])
            _room_for_slices(fleet, own, index)


def _room_for_slices(fleet: FleetVariables, own: list[int], index: int) -> None:
    """A replica over several pools needs as many with room: slices that leave none take others."""
    pool_class = fleet.classes[index]
    parts = {place: fleet.items[place].slices_in(index) for place in own}
    # slices of more than half a pool lie in pools of their own
    wide: dict[int, dict[int, int]] = {}
    for place, sizes in parts.items():
        if sizes.total() == 1:
            continue
        used = fleet.model.new_bool_var(f"used[{place},{index}]")
        fleet.model.add(fleet.count[place] == 0).only_enforce_if(~used)
        room = max(pool_class.size - min(sizes), pool_class.size // 2)
        if room not in wide:
            over = {
                other: sum(number for chips, number in blocking.items() if chips > room)
                for other, blocking in parts.items()
            }
            wide[room] = {other: number for other, number in over.items() if number}
        others = [(fleet.count[p], number) for p, number in wide[room].items() if p != place]
        taken = cp_model.LinearExpr.weighted_sum(*zip(*others, strict=True)) if others else 0
        fleet.model.add(sizes.total() + taken <= len(pool_class.pools)).only_enforce_if(used)

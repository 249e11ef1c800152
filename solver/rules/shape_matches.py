r"""Replicas stand as their shapes say: every slice in a pool, those of one replica in pools of their own.

sum_d z[i, d] = slices_i q[i],   z[i, d] <= q[i]
"""

from __future__ import annotations

from solver.fleet.variables import FleetVariables

OF = "replica"
HOLDS = (
    "stages are built from the shape's widths; tensor widths divide heads and every domain's share; experts are cut "
    "where slices are whole blocks of scales"
)


def constrain(fleet: FleetVariables) -> None:
    """Slices of every replica in distinct pools; a pool may use less than its pattern holds."""
    model = fleet.model
    for pool_class in fleet.classes:
        index, pools = pool_class.index, range(len(pool_class.pools))
        for place in fleet.own(index):
            sizes = fleet.items[place].slices_in(index)
            if (place, min(sizes), index, 0) not in fleet.slices:
                continue
            for size, number in sizes.items():
                held = [fleet.slices[place, size, index, pool] for pool in pools]
                model.add(sum(held) == number * fleet.count[place])
            if sizes.total() > 1:
                for pool in pools:
                    here = [fleet.slices[place, size, index, pool] for size in sizes]
                    model.add(sum(here) <= fleet.count[place])
        for place in fleet.own(index) if index in fleet.patterns else ():
            using = [(uses[place], v) for uses, v in fleet.patterns[index] if uses[place]]
            if not using:
                continue
            count, slices = fleet.count[place], fleet.items[place].slices
            filled = sum(times * variable for times, variable in using)
            model.add(slices * count <= filled)
            if fleet.linked and slices == 1:
                model.add(count == filled)  # links see every replica of a filling
            if slices > 1:
                for times, variable in using:
                    used = model.new_bool_var(f"used[{place},{variable.name}]")
                    model.add(variable == 0).only_enforce_if(~used)
                    # distinct pools: none holds more slices of an item than it has replicas
                    model.add(count >= times).only_enforce_if(used)

"""No spare slots: the hottest experts each need a chip, and CP-SAT shares out the coldest beside them.

With one slot per expert the pieces are fixed. If no two of the ``h`` hottest experts can share a
chip below the peak reached, each has its own, with ``k - 1`` others; exchanging any of those for
a smaller expert never raises a load, so the ``h (k - 1)`` smallest experts may be assumed. The
smallest possible peak of those chips is a bound for the layer and a start for its placement.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import one_worker
from solver.experts.slots import Floats, Ints

#: Most hot experts considered, integer scale of loads, CP-SAT's deterministic time.
MOST_HOT, SCALE, EFFORT = 8, 10**8, 1.0


def hot_chips(
    share: Floats, chips: int, width: int, peak: float, *, seed: int
) -> tuple[float, Ints] | None:
    """Bound on the busiest chip, and the experts ``[h, width]`` of the hottest chips; None if unknown.

    ``share [experts]`` with ``experts = chips * width``; ``peak`` is the best busiest chip so far.
    """
    order = np.argsort(-share, kind="stable")
    falling = share[order]
    rest = float(falling[len(falling) - (width - 2) :].sum()) if width > 2 else 0.0
    together = falling[: MOST_HOT + 1][:-1] + falling[: MOST_HOT + 1][1:] + rest
    apart = 1 + int((np.minimum.accumulate(together) >= peak).sum())
    hot = min(apart, MOST_HOT, chips)
    beside = order[len(order) - hot * (width - 1) :]
    if width < 2 or set(beside) & set(order[:hot]):
        return None
    load = np.floor(share * SCALE).astype(np.int64)
    model = cp_model.CpModel()
    top = model.new_int_var(0, int(SCALE), "peak")
    takes = [[model.new_bool_var("") for _ in range(hot)] for _ in beside]
    for row in takes:
        model.add_exactly_one(row)
    for chip in range(hot):
        column = [row[chip] for row in takes]
        model.add(sum(column) == width - 1)
        added: Any = cp_model.LinearExpr.weighted_sum(column, load[beside].tolist())
        model.add(added + int(load[order[chip]]) <= top)
    model.minimize(top)
    solver = one_worker(seed)
    solver.parameters.max_deterministic_time = EFFORT
    solver.parameters.relative_gap_limit = 2e-4
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    table = [
        [
            order[chip],
            *(e for e, row in zip(beside, takes, strict=True) if solver.boolean_value(row[chip])),
        ]
        for chip in range(hot)
    ]
    return min(peak, solver.best_objective_bound / SCALE * (1 - 1e-9)), np.array(table)

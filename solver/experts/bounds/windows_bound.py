r"""Bound for one placement under several windows: no replica counts serve all windows' hot experts.

Each window alone could spend the spare slots on its own hot experts; one placement cannot. With
``r_e`` replicas, whatever the chips hold,

    load_w >= max(mean chip, max_e share_we / r_e)   for every window w,   sum_e r_e <= slots

and the least weighted mean (or worst) of the right-hand sides is found by CP-SAT; its proven bound
counts, also where it stops early. Loads are rounded down to whole numbers.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import one_worker
from solver.experts.bounds.closed_form import ROUNDING
from solver.experts.slots import Floats

#: Whole-number units of a mean chip's load, and of a weight of 1.
LOAD, WEIGHT = 100_000, 100_000


def replica_bound(
    shares: Floats, weight: Floats, worst: bool, chips: int, slots: int, effort: float
) -> float:
    """Bound on the objective of one layer, ``shares [windows, experts]``, as a share of its load.

    ``weight`` adds up to 1; ``effort`` is CP-SAT's deterministic time.
    """
    load = shares[weight > 0] * chips
    most = load.max(axis=0)
    model = cp_model.CpModel()
    top = int(np.ceil(most.max())) * LOAD + LOAD
    peaks = [model.new_int_var(LOAD, top, "") for _ in load]
    used: list[cp_model.LinearExpr] = []
    above = np.flatnonzero(most > 1)
    for expert in above:
        counts = np.arange(1, min(int(np.ceil(most[expert])), chips) + 1)
        chosen = [model.new_bool_var("") for _ in counts]
        model.add_exactly_one(chosen)
        used.append(cp_model.LinearExpr.weighted_sum(chosen, counts.tolist()))
        for window, peak in enumerate(peaks):
            piece = np.floor(load[window, expert] / counts * LOAD).astype(np.int64)
            model.add(peak >= cp_model.LinearExpr.weighted_sum(chosen, piece.tolist()))
    model.add(sum(used) <= slots - (shares.shape[1] - len(above)))
    whole = np.floor(weight[weight > 0] * WEIGHT).astype(np.int64)
    if worst:
        highest = model.new_int_var(LOAD, top, "")
        model.add_max_equality(highest, peaks)
        model.minimize(highest)
    else:
        model.minimize(cp_model.LinearExpr.weighted_sum(peaks, whole.tolist()))
    solver = one_worker()
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        raise AssertionError("one replica of every expert always fits")
    unit = LOAD if worst else LOAD * WEIGHT
    return solver.best_objective_bound / unit / chips * (1 - ROUNDING)

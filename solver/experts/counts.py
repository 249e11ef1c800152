"""Replica counts for three or more slots per chip: CP-SAT on counting conditions, added as needed.

Necessary conditions only (see ``solver.experts.bounds.replica_bound``): the counts found are a good start
for the descent, which decides whether they can be packed.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import one_worker
from solver.experts.slots import Floats, Ints

CHOICES = 3
SCALE = 10**7
ROUNDS = 8
EFFORT = 0.3


def worst_group(
    unit: Floats, replicas: Ints, target: float, chips: int, width: int
) -> tuple[float, float, float]:
    """Most overfull ``h`` chips holding the ``h`` largest pieces: (excess, smallest such, largest beside)."""
    pieces = np.sort(np.repeat(unit / replicas, replicas))[::-1]
    running = np.concatenate([[0.0], np.cumsum(pieces)])
    count = len(pieces)
    group = np.arange(1, chips + 1)
    excess = running[group] + running[-1] - running[count - group * (width - 1)] - group * target
    worst = int(excess.argmax())
    held = int(group[worst])
    return (
        float(excess[worst]),
        float(pieces[held - 1]),
        float(pieces[min(count - held * (width - 1), count - 1)]),
    )


def find_counts(
    unit: Floats, chips: int, width: int, target: float, hint: Ints, *, seed: int
) -> Ints | None:
    """Replica counts that pass every counting condition at ``target``, near the even ones; or None.

    ``unit [experts]`` are loads in mean chips. Among counts that pass, those with a small sum of
    ``share^2 / count`` (even pieces) are preferred.
    """
    slots, experts = chips * width, len(unit)
    fewest = np.maximum(np.ceil(unit / target - 1e-9).astype(np.int64), 1)
    spare = slots - int(fewest.sum())
    if spare < 0:
        return None
    modelled = min(CHOICES, spare + 1)
    count = np.concatenate([np.minimum(fewest + extra, chips) for extra in range(modelled)])
    piece = np.tile(unit, modelled) / count
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(len(count))]
    model.add(cp_model.LinearExpr.weighted_sum(chosen, count.tolist()) == slots)
    for expert in range(experts):
        model.add_exactly_one(chosen[expert::experts])
    for index, literal in enumerate(chosen):
        model.add_hint(literal, int(count[index] == hint[index % experts]))
    unevenness = np.ceil(count * piece**2 * 1e4).astype(np.int64)
    model.minimize(cp_model.LinearExpr.weighted_sum(chosen, unevenness.tolist()))
    solver = one_worker(seed)
    solver.parameters.max_deterministic_time = EFFORT
    solver.parameters.relative_gap_limit = 1e-3
    solver.parameters.symmetry_level = 0
    solver.parameters.cp_model_probing_level = 0
    for _ in range(ROUNDS):
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        replicas = np.zeros(experts, dtype=np.int64)
        for index, literal in enumerate(chosen):
            if solver.boolean_value(literal):
                replicas[index % experts] = count[index]
        excess, above, below = worst_group(unit, replicas, target, chips, width)
        if excess <= 1e-6:
            return replicas
        value = np.where(
            piece >= above - 1e-12,
            count * (piece - target + (width - 1) * below),
            -count * np.maximum(below - piece, 0.0),
        )
        whole = np.floor(value * SCALE).astype(np.int64)
        used = np.flatnonzero(whole)
        model.add(
            cp_model.LinearExpr.weighted_sum([chosen[i] for i in used], whole[used].tolist()) <= 0
        )
    return None

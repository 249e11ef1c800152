"""Some chips of one layer placed anew by CP-SAT, replica counts included; all chips is an exact proof.

Experts with every replica on the chosen chips may change their count; others keep their piece and
the number of replicas there. With all chips chosen the optimum is the layer's.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import one_worker
from solver.experts.slots import Floats, Ints

SCALE = 10**9
#: seconds of a solve whose time is nearly over
LEAST_S = 0.05


def literals_needed(experts: int, chips: int, slots: int) -> int:
    """Rough number of literals of the model with all chips, to decide whether it is worth it."""
    return experts * chips * min(chips, slots - experts + 1)


def place_anew(
    share: Floats,
    table: Ints,
    chips: Ints,
    *,
    effort: float,
    seed: int,
    deadline: float | None = None,
) -> tuple[Ints, float]:
    """A table at least as good on ``chips``, and the proven bound on their busiest (0 if none).

    ``share [experts]`` sums to 1; ``table [num_chips, width]`` holds ``experts`` beyond a chip's
    slots. Loads are rounded by at most ``1 / SCALE`` per slot, which the bound takes off. ``deadline`` (of
    ``time.monotonic``) ends the solve with what is best by then.
    """
    experts = len(share)
    replicas = np.bincount(table[table < experts], minlength=experts)
    part = table[chips]
    inside = np.bincount(part[part < experts], minlength=experts)
    model = cp_model.CpModel()
    top = model.new_int_var(0, SCALE * 2, "peak")
    loads: list[list[Any]] = [[] for _ in chips]
    filled: list[list[Any]] = [[] for _ in chips]
    held = {}
    for expert in np.flatnonzero(inside).tolist():
        here = [model.new_bool_var("") for _ in chips]
        held[expert] = here
        for place, literal in enumerate(here):
            filled[place].append(literal)
            model.add_hint(literal, int((part[place] == expert).any()))
        free = inside[expert] == replicas[expert]
        spare = int((part < experts).sum()) - len(np.flatnonzero(inside))
        most = min(len(chips), 1 + spare) if free else 0
        if most <= 1:
            size = round(float(share[expert] / replicas[expert]) * SCALE)
            model.add(sum(here) == int(inside[expert]))
            for place, literal in enumerate(here):
                loads[place].append(size * literal)
            continue
        counts = [model.new_bool_var("") for _ in range(most)]
        model.add_exactly_one(counts)
        model.add(sum(here) == sum((n + 1) * c for n, c in enumerate(counts)))
        sizes = [round(float(share[expert]) / (n + 1) * SCALE) for n in range(most)]
        for place, literal in enumerate(here):
            amount = model.new_int_var(0, sizes[0], "")
            for size, count in zip(sizes, counts, strict=True):
                model.add(amount >= size).only_enforce_if(literal, count)
            loads[place].append(amount)
        for n, count in enumerate(counts):
            model.add_hint(count, int(replicas[expert] == n + 1))
    for place, chip in enumerate(chips):
        model.add(sum(filled[place]) == int((table[chip] < experts).sum()))
        model.add(sum(loads[place]) <= top)
    model.minimize(top)
    solver = one_worker(seed)
    solver.parameters.max_deterministic_time = effort
    if deadline is not None:
        solver.parameters.max_time_in_seconds = max(deadline - time.monotonic(), LEAST_S)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return table, 0.0
    changed = table.copy()
    for place, chip in enumerate(chips):
        row = [expert for expert, here in held.items() if solver.boolean_value(here[place])]
        changed[chip, : len(row)] = row
    bound = max(solver.best_objective_bound / SCALE - table.shape[1] / SCALE, 0.0)
    worse = busiest(share, changed, chips) > busiest(share, table, chips)
    return (table if worse else changed), bound


def busiest(share: Floats, table: Ints, chips: Ints) -> float:
    """Largest load among ``chips`` of ``table``."""
    counts = np.bincount(table.ravel(), minlength=len(share) + 1)[: len(share)]
    pieces = np.append(share / np.maximum(counts, 1), 0.0)
    return float(pieces[table[chips]].sum(axis=1).max())

r"""Two slots per chip: replica counts decide everything, and CP-SAT finds them.

With fixed pieces the best pairing joins the largest with the smallest, the second largest with
the second smallest, and so on. So busiest chip ``T`` is possible iff, walking down the pieces
above ``T / 2``, there are always as many pieces small enough to sit beside those seen so far:

    #{pieces >= x}  <=  #{pieces <= T - x}        for every piece x > T / 2

Both counts are sums over experts of the replicas chosen, hence linear; walking them cumulatively
keeps every choice in two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from solver.clock import one_worker
from solver.experts.slots import Floats, Ints

#: Replica counts modelled above the fewest possible for the target.
CHOICES = 3
#: Pieces are compared with this slack, so that rounding never refutes a possible target.
SLACK = 1e-9
#: CP-SAT's deterministic time for a layer and for one target in it.
EFFORT, EFFORT_ONCE = 0.9, 0.35
#: Targets tried above the bound, as fractions of it, from easy to hard.
STEPS = (0.02, 0.01, 0.006, 0.003, 0.001)


@dataclass(frozen=True, slots=True)
class Answer:
    """Replicas within a target, or a proof that there are none (neither: not known)."""

    replicas: Ints | None
    refuted: bool
    effort: float = 0.0


def paired_peak(share: Floats, replicas: Ints) -> float:
    """Busiest chip when the pieces of one layer are paired largest with smallest."""
    pieces = np.sort(np.repeat(share / replicas, replicas))
    return float((pieces + pieces[::-1]).max())


def improve_pairs(
    share: Floats, num_chips: int, replicas: Ints, bound: float, *, close: float, seed: int
) -> tuple[Ints, float]:
    """Better replica counts of one layer than ``replicas``, and a bound no lower than ``bound``.

    Tries targets ever closer to the bound until one is missed or the deterministic effort is spent.
    """
    peak, left = paired_peak(share, replicas), EFFORT
    for step in STEPS:
        target = bound * (1 + step)
        if target >= peak * (1 - close):
            continue
        answer = find_pairs(
            share, num_chips, target, replicas, effort=min(left, EFFORT_ONCE), seed=seed
        )
        left -= max(answer.effort, 0.01)
        if answer.replicas is not None:
            replicas = answer.replicas
            peak = min(peak, paired_peak(share, replicas))
        elif answer.refuted:
            bound = target
            break
        if answer.replicas is None or left <= 0:
            break
    return replicas, bound


def find_pairs(
    share: Floats, num_chips: int, target: float, hint: Ints, *, effort: float, seed: int
) -> Answer:
    """Replica counts of one layer whose best pairing stays within ``target``, or a refutation.

    ``share [experts]`` in the unit of ``target``. Only the fewest replicas that an expert needs
    and up to two more are searched; it is a refutation only if the slots allow no more.
    """
    slots = 2 * num_chips
    fewest = np.maximum(np.ceil(share / target - SLACK).astype(np.int64), 1)
    spare = slots - int(fewest.sum())
    if spare < 0:
        return Answer(None, True)
    model = cp_model.CpModel()
    modelled = min(CHOICES, spare + 1)
    count = np.concatenate([np.minimum(fewest + extra, num_chips) for extra in range(modelled)])
    piece = np.tile(share, modelled) / count
    chosen = [model.new_bool_var("") for _ in range(len(count))]
    model.add(weighted(chosen, count, np.arange(len(count))) == slots)
    for expert in range(len(share)):
        model.add_exactly_one(chosen[expert :: len(share)])
    for index, literal in enumerate(chosen):
        model.add_hint(literal, int(count[index] == hint[index % len(share)]))
    _walk(model, target, piece, count, chosen, slots)
    solver = one_worker(seed)
    solver.parameters.max_deterministic_time = effort
    solver.parameters.linearization_level = 2
    solver.parameters.symmetry_level = 0
    solver.parameters.cp_model_probing_level = 0
    status = solver.solve(model)
    spent = float(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return Answer(None, spare < CHOICES, spent)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, False, spent)
    replicas = np.zeros(len(share), dtype=np.int64)
    for index, literal in enumerate(chosen):
        if solver.boolean_value(literal):
            replicas[index % len(share)] = count[index]
    return Answer(replicas, False, spent)


def weighted(chosen: list[cp_model.IntVar], count: Ints, part: Ints) -> Any:
    """Pieces of the choices ``part``, as a linear expression."""
    return cp_model.LinearExpr.weighted_sum([chosen[i] for i in part], count[part].tolist())


def _walk(
    model: cp_model.CpModel,
    target: float,
    piece: Floats,
    count: Ints,
    chosen: list[cp_model.IntVar],
    slots: int,
) -> None:
    """Add the counting rows, from the largest piece down and from the smallest up."""
    large = np.flatnonzero(piece > target / 2 + SLACK)
    small = np.flatnonzero(piece <= target / 2 + SLACK)
    large = large[np.argsort(-piece[large], kind="stable")]
    small = small[np.argsort(piece[small], kind="stable")]
    reach = np.searchsorted(piece[small], target - piece[large] + SLACK, side="right")
    seen: Any = 0
    beside: Any = 0
    done = start = 0
    for stop in (np.flatnonzero(np.diff(reach, append=-1)) + 1).tolist():
        upto = int(reach[stop - 1])
        if upto > done:
            grown = model.new_int_var(0, slots, "")
            model.add(grown == beside + weighted(chosen, count, small[done:upto]))
            beside, done = grown, upto
        total = model.new_int_var(0, slots, "")
        model.add(total == seen + weighted(chosen, count, large[start:stop]))
        model.add(total <= beside)
        seen, start = total, stop

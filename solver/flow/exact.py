"""Every placement of a small question in one model, node by node and link by link: for the last word."""

from __future__ import annotations

import math

from ortools.sat.python import cp_model

from costmodel.flow.question import FlowQuestion
from solver.clock import Clock
from solver.flow.network import Ranges

#: ranges of all nodes together, at most, for which the model is worth its time
MOST_RANGES = 700
#: whole numbers that stand for the most that can flow
_STEPS = 10**8


def small(question: FlowQuestion) -> bool:
    """Whether there are few enough ranges."""
    layers = question.model.layers
    nodes = range(len(question.nodes))
    return (
        sum(layers - k + 1 for n in nodes for k in range(1, question.most_layers(n) + 1))
        <= MOST_RANGES
    )


def settle(
    question: FlowQuestion, flow: float, bound: float, *, clock: Clock, seed: int, limit_s: float
) -> tuple[float, Ranges | None]:
    """The least bound known then, and ranges that pass more than ``flow``, if any were found.

    Capacities are rounded up, so that no placement passes more than the model says.
    """
    model = cp_model.CpModel()
    unit = bound / _STEPS
    layers, number = question.model.layers, len(question.nodes)

    def steps(tokens_per_s: float) -> int:
        return min(_STEPS, math.ceil(tokens_per_s / unit))

    held: list[dict[tuple[int, int], cp_model.IntVar]] = []
    starts: list[dict[int, list[cp_model.IntVar]]] = []
    ends: list[dict[int, list[cp_model.IntVar]]] = []
    into: list[list[cp_model.IntVar]] = [[] for _ in range(number)]
    out: list[list[cp_model.IntVar]] = [[] for _ in range(number)]
    for node in range(number):
        own = {
            (first, first + k - 1): model.new_bool_var(f"held[{node},{first},{k}]")
            for k in range(1, question.most_layers(node) + 1)
            for first in range(layers - k + 1)
        }
        model.add_at_most_one(own.values())
        held.append(own)
        starts.append({})
        ends.append({})
        for (first, last), variable in own.items():
            starts[node].setdefault(first, []).append(variable)
            ends[node].setdefault(last + 1, []).append(variable)
    entering = []
    for node in range(number):
        entry = model.new_int_var(0, _STEPS, f"entry[{node}]")
        model.add(entry <= steps(question.entry(node)) * sum(starts[node].get(0, [])))
        leaving = model.new_int_var(0, _STEPS, f"leaving[{node}]")
        model.add(leaving <= steps(question.leaving(node)) * sum(ends[node].get(layers, [])))
        into[node].append(entry)
        out[node].append(leaving)
        entering.append(entry)
        for other in range(number):
            if other == node:
                continue
            joined = model.new_bool_var(f"joined[{node},{other}]")
            carried = model.new_int_var(0, _STEPS, f"carried[{node},{other}]")
            model.add(carried <= steps(question.link(node, other)) * joined)
            out[node].append(carried)
            into[other].append(carried)
            # where the two are joined, the other starts at the layer after the last one of the node
            model.add(sum(held[node].values()) >= joined)
            for begin in range(1, layers + 1):
                model.add(
                    sum(ends[node].get(begin, [])) + joined - 1 <= sum(starts[other].get(begin, []))
                )
    for node in range(number):
        model.add(sum(into[node]) == sum(out[node]))
        rates = {key: steps(question.rate(node, key[1] - key[0] + 1)) for key in held[node]}
        model.add(sum(out[node]) <= sum(rates[key] * v for key, v in held[node].items()))
    total = model.new_int_var(min(_STEPS, math.floor(flow / unit)), _STEPS, "flow")
    model.add(total == sum(entering))
    model.maximize(total)
    solver, status = clock.run(model, seed=seed, limit_s=limit_s)
    if status == cp_model.INFEASIBLE:
        return min(bound, flow), None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return min(bound, max(flow, solver.best_objective_bound * unit)), None
    ranges = [next((key for key, v in own.items() if solver.value(v)), None) for own in held]
    return min(bound, max(flow, solver.best_objective_bound * unit)), ranges

r"""The bound where links are slow: layers that one machine alone cannot hold, because its links cannot pass the flow.

Let a placement pass at least *F*, and leave out machines that pass nothing. Call a layer single if one machine
holds it. Such a machine passes the whole flow, so it holds at most :math:`k_F`, the most layers with
:math:`T(k) \ge F`; it goes over to the next single layer's machine by a link of at least *F*. A run of single layers
thus stays in one island: machines joined by links of at least *F*. No machine is in two runs, as the flow that
passes all of it leaves no other layer of its range to others. Between two runs at least one layer is shared by two
machines or more. With islands that hold :math:`K_1 \ge K_2 \ge ..` single layers, the shared layers are at least

.. math:: M = \min_u \max(u - 1,\ L - K_1 - .. - K_u).

Let prices as in :mod:`solver.flow.cover` make every machine cost *s* at least for a single layer, and every set of two
machines or more that passes *F* cost *t* at least for a shared one. If :math:`(L - M) s + M t` (or :math:`L t`, where
that is less) is more than all machines cost, no placement passes *F*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import networkx as nx
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from costmodel.flow.question import FlowQuestion
from solver.clock import Clock
from solver.flow.cover import Pattern
from solver.flow.groups import Kind

#: whole numbers that stand for the price of a layer, and for the flow
_COST, _RATE = 10**9, 10**10
#: rounds of prices for one flow, and work for one knapsack in seconds of an idle core
_MOST_ROUNDS, _KNAPSACK_S = 60, 5.0
#: what rounding of floats may add up to, relatively
_ROUNDING = 1e-9


def alone_layers(kind: Kind, flow: float) -> int:
    """The most layers that a machine holds and still passes the flow; 0 if it never does."""
    return max((k for k, rate in enumerate(kind.rates, 1) if rate >= flow), default=0)


def shared_layers(question: FlowQuestion, kinds: Sequence[Kind], flow: float) -> int:
    """Layers that two machines or more hold in every placement that passes ``flow``."""
    least_rate = flow * (1 - _ROUNDING)
    alone = {kind.name: alone_layers(kind, least_rate) for kind in kinds}
    number = len(question.nodes)
    islands: nx.Graph[int] = nx.Graph()
    islands.add_nodes_from(range(number))
    islands.add_edges_from(
        (one, other)
        for one in range(number)
        for other in range(one + 1, number)
        if question.link(one, other) >= least_rate
    )
    held = sorted(
        (sum(alone[question.nodes[n]] for n in island) for island in nx.connected_components(islands)),
        reverse=True,
    )  # fmt: skip
    least, single = question.model.layers, 0
    for used, layers in enumerate(held):
        single += layers
        least = min(least, max(used, question.model.layers - single))
    return least


class Borders:
    """Which flows slow links exclude. Patterns found for one flow help with the next."""

    def __init__(
        self, question: FlowQuestion, kinds: Sequence[Kind], *, clock: Clock, seed: int = 0
    ):
        self.question, self.kinds, self.clock, self.seed = question, kinds, clock, seed
        self.patterns: list[Pattern] = []

    def exclude(self, flow: float) -> bool:
        """Whether prices prove that no placement passes ``flow`` or more."""
        shared, layers = shared_layers(self.question, self.kinds, flow), self.question.model.layers
        if not shared:
            return False
        for _ in range(_MOST_ROUNDS):
            if self.clock.over:
                break
            prices, extra = self._dual(flow, shared)
            spent = sum(kind.count * p for kind, p in zip(self.kinds, prices, strict=True))
            most = [alone_layers(kind, flow * (1 - _ROUNDING)) for kind in self.kinds]
            single = min(
                (price / k for price, k in zip(prices, most, strict=True) if k), default=math.inf
            )
            together, pattern = self._cheapest(prices, flow)
            least = layers * together
            if together > single:
                least = (layers - shared) * single + shared * together
            if least > spent * (1 + _ROUNDING):
                return True
            if pattern is None or pattern in self.patterns or together >= 1 + extra - _ROUNDING:
                break
            self.patterns.append(pattern)
        return False

    def _dual(self, flow: float, shared: int) -> tuple[list[float], float]:
        """Prices, and how much more than 1 a shared layer costs, that make most of what is known."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        prices = [
            solver.NumVar(float(alone_layers(kind, flow)), solver.infinity(), kind.name)
            for kind in self.kinds
        ]
        extra = solver.NumVar(-1.0, float(self.question.model.layers), "extra")
        for pattern in self.patterns:
            if pattern.tokens_per_s >= flow:
                row = solver.Constraint(1.0, solver.infinity())
                row.SetCoefficient(extra, -1.0)
                for price, share in zip(prices, pattern.shares(len(prices)), strict=True):
                    if share:
                        row.SetCoefficient(price, share)
        for kind, price in zip(self.kinds, prices, strict=True):
            solver.Objective().SetCoefficient(price, kind.count)
        solver.Objective().SetCoefficient(extra, -shared)
        solver.Objective().SetMinimization()
        solver.Solve()
        return [max(0.0, price.solution_value()) for price in prices], extra.solution_value()

    def _cheapest(self, prices: Sequence[float], flow: float) -> tuple[float, Pattern | None]:
        """At least what two machines or more that pass the flow cost for a layer, and such machines.

        Costs are rounded down and rates up, so that the first number is never too large.
        """
        model = cp_model.CpModel()
        unit = flow / _RATE
        counts, costs, rates = [], [], []
        for t, kind in enumerate(self.kinds):
            own = []
            for k, rate in enumerate(kind.rates, 1):
                variable = model.new_int_var(0, kind.count, f"c[{kind.name},{k}]")
                own.append(variable)
                counts.append((t, k, variable))
                costs.append(math.floor(min(prices[t] / k, 1e3) * _COST))
                rates.append(min(_RATE, math.ceil(rate / unit)))
            model.add(sum(own) <= kind.count)
        variables = [variable for _, _, variable in counts]
        model.add(sum(variables) >= 2)
        model.add(cp_model.LinearExpr.weighted_sum(variables, rates) >= _RATE)
        model.minimize(cp_model.LinearExpr.weighted_sum(variables, costs))
        solver, status = self.clock.run(model, seed=self.seed, limit_s=_KNAPSACK_S)
        if status == cp_model.INFEASIBLE:
            return math.inf, None
        least = max(0.0, solver.best_objective_bound) / _COST
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return (least if status == cp_model.UNKNOWN else 0.0), None
        chosen = tuple((t, k, solver.value(v)) for t, k, v in counts if solver.value(v))
        passed = sum(count * self.kinds[t].rates[k - 1] for t, k, count in chosen)
        return least, Pattern(chosen, max(passed, flow))

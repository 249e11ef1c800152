r"""The bound on the flow through unlike machines: no layer can be held by more than its share of them.

Give every machine of kind *t* a price :math:`p_t \ge 0`, and spread it over the *k* layers that the machine
holds. All prices together pay for *L* layers, so some layer is held by machines that pay at most
:math:`B = \sum_t n_t p_t / L` for it. All flow passes the machines of that layer, hence

.. math:: F \le \max \Big\{ \sum c_{tk} T_t(k) :
          \sum c_{tk}\, p_t / k \le B,\ \sum_k c_{tk} \le n_t,\ c \ge 0 \text{ whole} \Big\}.

This holds for any prices and any links, which only take flow away. The best prices are the dual of a covering problem: how many layers can be held by sets of machines (patterns) that each pass
*F*. Patterns are made one by one, each by the knapsack above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.flow.groups import Kind

#: whole numbers that stand for the budget and for the largest rate
_COST, _RATE = 10**9, 10**11
#: relative width at which the search for the best bound ends
_CLOSE = 1e-7
#: share of the time that is left, and prices tried for one flow
_SHARE, _MOST_ROUNDS = 0.3, 60
#: work allowed for one knapsack, seconds of an idle core
_KNAPSACK_S = 5.0


@dataclass(frozen=True)
class Pattern:
    """Machines that hold one layer: how many of kind ``t`` with ``k`` layers, and tokens/s of all."""

    counts: tuple[tuple[int, int, int], ...]
    tokens_per_s: float

    def shares(self, number: int) -> list[float]:
        """Machines of each kind that one layer takes: each counts for one over its layers."""
        found = [0.0] * number
        for kind, layers, count in self.counts:
            found[kind] += count / layers
        return found


class Cover:
    """The bound, and the prices behind it."""

    def __init__(self, kinds: Sequence[Kind], layers: int, *, clock: Clock, seed: int = 0):
        self.kinds = kinds
        self.layers = layers
        self.clock = clock
        self.seed = seed
        self.patterns: list[Pattern] = []
        #: largest flow that no prices tried so far exclude
        self.bound = self._truncated()

    @property
    def plain(self) -> float:
        """Tokens/s if every machine worked alone at its best: sum of the largest ``k T(k)``, over the layers."""
        best = [max(k * rate for k, rate in enumerate(kind.rates, 1)) for kind in self.kinds]
        return (
            sum(kind.count * one for kind, one in zip(self.kinds, best, strict=True)) / self.layers
        )

    def _truncated(self) -> float:
        """Largest *F* at which machines that pass no more than *F* each could work off *F* for all layers."""
        low, high = 0.0, self.plain

        def enough(flow: float) -> bool:
            best = [
                kind.count * max(k * min(flow, rate) for k, rate in enumerate(kind.rates, 1))
                for kind in self.kinds
            ]
            return sum(best) >= self.layers * flow * (1 - 1e-12)

        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if enough(middle) else (low, middle)
        return high

    def tighten(self) -> float:
        """Lower the bound as far as prices can. Proven whenever it is read; time left makes it lower."""
        low, latest = 0.0, self.clock.elapsed_s + self.clock.remaining_s * _SHARE
        while self.bound - low > _CLOSE * self.bound and self.clock.elapsed_s < latest:
            middle = (low + self.bound) / 2
            if not self._exclude(middle):
                low = middle
        return self.bound

    def prices(self, flow: float) -> tuple[list[float], float]:
        """Prices at which every pattern that passes ``flow`` costs about 1 or more, and all machines together.

        That sum is the number of layers that they could hold at most.
        """
        for _ in range(_MOST_ROUNDS):
            prices, total = self._dual(flow)
            if self.clock.over:
                break
            capacity, pattern = self._richest(prices, 1 - 1e-6)
            if capacity < flow or pattern.tokens_per_s < flow:
                break
            self.patterns.append(pattern)
        return prices, total

    def _exclude(self, flow: float) -> bool:
        """Whether some prices prove that less than ``flow`` passes; the bound is then lower."""
        for _ in range(_MOST_ROUNDS):
            if self.clock.over:
                break
            prices, total = self._dual(flow)
            if total >= self.layers * (1 - 1e-12):
                return False
            capacity, pattern = self._richest(prices, total / self.layers)
            if capacity < flow:
                self.bound = min(self.bound, capacity)
                return True
            if pattern.tokens_per_s < flow:  # rounding stands between the two
                return False
            self.patterns.append(pattern)
        return False

    def _dual(self, flow: float) -> tuple[list[float], float]:
        """Least prices at which every known pattern that passes ``flow`` costs 1, and their sum over machines."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        variables = [
            solver.NumVar(self._least(kind, flow), solver.infinity(), kind.name)
            for kind in self.kinds
        ]
        for pattern in self.patterns:
            if pattern.tokens_per_s >= flow:
                row = solver.Constraint(1.0, solver.infinity())
                for variable, share in zip(variables, pattern.shares(len(variables)), strict=True):
                    if share:
                        row.SetCoefficient(variable, share)
        counts = [kind.count for kind in self.kinds]
        for count, variable in zip(counts, variables, strict=True):
            solver.Objective().SetCoefficient(variable, count)
        solver.Objective().SetMinimization()
        solver.Solve()
        prices = [max(0.0, variable.solution_value()) for variable in variables]
        return prices, sum(n * p for n, p in zip(counts, prices, strict=True))

    def _least(self, kind: Kind, flow: float) -> float:
        """Least price at which patterns of one kind with equally many layers each cost 1."""
        machines = [(k, max(1, math.ceil(flow / rate))) for k, rate in enumerate(kind.rates, 1)]
        return max((k / count for k, count in machines if count <= kind.count), default=0.0)

    def _richest(self, prices: Sequence[float], budget: float) -> tuple[float, Pattern]:
        """At most what a pattern within the budget passes, and a pattern.

        Costs are rounded down and rates up, so that the first number is never too small.
        """
        model = cp_model.CpModel()
        unit = max(max(kind.rates) for kind in self.kinds) / _RATE
        counts, costs, rates = [], [], []
        for t, kind in enumerate(self.kinds):
            own = []
            for k, rate in enumerate(kind.rates, 1):
                cost = math.floor(prices[t] / k / budget * _COST) if budget > 0 else 0
                if cost > _COST:
                    continue
                variable = model.new_int_var(0, kind.count, f"c[{kind.name},{k}]")
                own.append(variable)
                counts.append((t, k, variable))
                costs.append(cost)
                rates.append(math.ceil(rate / unit))
            model.add(sum(own) <= kind.count)
        variables = [variable for _, _, variable in counts]
        model.add(cp_model.LinearExpr.weighted_sum(variables, costs) <= _COST)
        model.maximize(cp_model.LinearExpr.weighted_sum(variables, rates))
        solver, status = self.clock.run(model, seed=self.seed, limit_s=_KNAPSACK_S)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return math.inf, Pattern((), 0.0)
        chosen = tuple((t, k, solver.value(v)) for t, k, v in counts if solver.value(v))
        passed = sum(count * self.kinds[t].rate(k) for t, k, count in chosen)
        if status == cp_model.OPTIMAL:
            # the best is this pattern but for rounding: half a unit for each machine at most
            return max(passed, solver.best_objective_bound * unit), Pattern(chosen, passed)
        return solver.best_objective_bound * unit, Pattern(chosen, passed)

r"""The linear relaxation of a plan: what fractions of groups serve, and a bound that holds whatever the linear solver does.

    n[h, j]  groups of column j that serve in hour h          s[h, j]  groups that start with it
    u[h, k]  units of kind k in use                           o[h, k]  units rented beyond the r[k] reserved

As in :mod:`solver.plan.hours`, with ``s[h] >= n[h] - n[h-1]``: what stops is ``n[h-1] - n[h] + s[h]``, so that units that serve
or finish for ``D`` hours sum to ``n[h-D]`` and the starts of the last ``D`` hours. A group counts for the most that a group of its
column carries in any number; of what a loss takes, the least that any group carries is counted.

Every variable has limits. So any dual values ``y`` prove ``min c x >= y b + sum_j min over the limits of (c - y A)_j x_j``,
which is computed here from the numbers of the question: the linear solver is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from ortools.linear_solver import pywraplp

from costmodel.plan.hours import Hours
from solver.clock import Clock
from topology.errors import NoFeasibleLayout

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: rounding of the sums that make the bound, relatively: far more than doubles lose
_LOST = 1e-9


@dataclass(frozen=True)
class Relaxed:
    """Fractions ``groups[hour, column]``, units ``reserved[kind]``, and the proven bound."""

    groups: Array
    reserved: Array
    bound_usd: float


@dataclass
class _Rows:
    """Rows ``sum a x >= b`` in triplets."""

    rows: list[Index] = field(default_factory=list)
    columns: list[Index] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    at_least: list[Array] = field(default_factory=list)
    number: int = 0

    def add(self, terms: list[tuple[Index, Array | float]], at_least: Array | float) -> None:
        """As many rows as each term has columns; a term of two dimensions has its rows' columns in its rows."""
        count = len(terms[0][0])
        own = np.arange(self.number, self.number + count)
        for columns, values in terms:
            rows = own if columns.ndim == 1 else np.repeat(own, columns.shape[1])
            self.rows.append(rows)
            self.columns.append(columns.ravel())
            self.values.append(np.broadcast_to(values, columns.shape).ravel().astype(float))
        self.at_least.append(np.broadcast_to(at_least, (count,)).astype(float))
        self.number += count

    def all(self) -> tuple[Index, Index, Array, Array]:
        """Row, column and value of every entry, and what each row is at least."""
        return (
            np.concatenate(self.rows), np.concatenate(self.columns), np.concatenate(self.values),
            np.concatenate(self.at_least),
        )  # fmt: skip


class Linear:
    """The relaxation of one question."""

    def __init__(self, asked: Hours) -> None:
        self.asked = asked
        hours, columns, kinds = asked.hours, len(asked.columns), len(asked.kinds)
        self.number = 0
        self.serve = self._table(hours, columns)
        self.start = self._table(hours, columns)
        self.used = self._table(hours, kinds)
        self.rented = self._table(hours, kinds)
        self.reserved = self._table(1, kinds)[0]
        self.rows = _Rows()
        self.groups = np.array([one.group for one in asked.columns], float)
        self._changes()
        for kind in range(kinds):
            self._units(kind)
        for model in range(len(asked.models)):
            self._demand(model)
        if asked.power_cap_w is not None:
            watts = np.array([kind.power_w for kind in asked.kinds])
            self.rows.add([(self.used, -watts[None, :])], -asked.power_cap_w)
        self._limits()

    def _table(self, hours: int, width: int) -> Index:
        found = self.number + np.arange(hours * width).reshape(hours, width)
        self.number += hours * width
        return found

    def _changes(self) -> None:
        before = np.roll(self.serve, 1, axis=0)
        self.rows.add(
            [(self.start.ravel(), 1.0), (before.ravel(), 1.0), (self.serve.ravel(), -1.0)], 0.0
        )
        for index, column in enumerate(self.asked.columns):
            if column.least_hours > 1:
                recent = self._over(self.start[:, index], range(column.least_hours))
                self.rows.add([(self.serve[:, index], 1.0), (recent, -1.0)], 0.0)

    def _over(self, table: Index, back: range) -> Index:
        """For every hour the entries of so many hours before ``[hours, len(back)]``."""
        hours = np.arange(self.asked.hours)[:, None]
        rows: Index = (hours - np.array(list(back), int)[None, :]) % self.asked.hours
        return np.asarray(table[rows])

    def _units(self, kind: int) -> None:
        """Units in use: those that serve, and those that load or finish."""
        asked = self.asked
        load: list[tuple[Index, Array | float]] = [(self.used[:, kind], 1.0)]
        drain: list[tuple[Index, Array | float]] = [(self.used[:, kind], 1.0)]
        for index in asked.of_kind[kind]:
            column = asked.columns[index]
            group = -float(column.group)
            starts = self.start[:, index]
            serve = (self.serve[:, index], group)
            ahead = (self._over(starts, range(-column.loading_hours, 0)), group)
            behind = (self._over(starts, range(column.draining_hours)), group)
            late = (np.roll(self.serve[:, index], column.draining_hours), group)
            if asked.exchanges[kind]:
                load += [serve, ahead]
                drain += [late, behind]
            else:
                load += [late, behind, ahead]
        self.rows.add(load, 0.0)
        if asked.exchanges[kind]:
            self.rows.add(drain, 0.0)
        self.rows.add(
            [
                (self.rented[:, kind], 1.0),
                (self.used[:, kind], -1.0),
                (np.full(asked.hours, self.reserved[kind]), 1.0),
            ],
            0.0,
        )

    def _demand(self, model: int) -> None:
        """What every hour asks of a model, and the least that a loss takes."""
        asked = self.asked
        own = asked.of_model[model]
        wanted = np.array(asked.demand[model])
        tables = [np.array(asked.columns[index].requests_per_s) for index in own]
        taken = [
            min(one.requests_per_s[n] - one.left(n, 1) for n in range(1, len(one.requests_per_s)))
            for one in (asked.columns[index] for index in own)
            if len(one.requests_per_s) > 1
        ]
        least = min(taken, default=0.0)
        at_least = np.where(wanted > 0, wanted + asked.units_lost[0] * max(0.0, least), 0.0)
        each = [
            float((table[1:] / np.arange(1, len(table))).max()) if len(table) > 1 else 0.0
            for table in tables
        ]
        self.rows.add([(self.serve[:, own], np.array(each)[None, :])], at_least)

    def _limits(self) -> None:
        """Limits and money of the variables."""
        asked = self.asked
        self.low, self.high = np.zeros(self.number), np.zeros(self.number)
        self.cost = np.zeros(self.number)
        most = [float(len(one.requests_per_s) - 1) for one in asked.columns]
        self.high[self.serve] = self.high[self.start] = most
        for index, kind in enumerate(asked.kinds):
            self.high[self.used[:, index]] = self.high[self.rented[:, index]] = kind.units
            self.low[self.reserved[index]], self.high[self.reserved[index]] = kind.reserved
            self.cost[self.reserved[index]] = asked.hours * kind.reserved_usd_per_hour
            self.cost[self.rented[:, index]] = kind.on_demand_usd_per_hour
            self.cost[self.used[:, index]] = [
                asked.energy_usd(index, h) for h in range(asked.hours)
            ]

    def solve(self, *, clock: Clock, limit_s: float) -> Relaxed:
        """Fractions and bound.

        Raises ``NoFeasibleLayout`` where even fractions do not meet the demand, ``NoLayoutInTime`` where the time ends first.
        """
        rows, columns, values, at_least = self.rows.all()
        solver = pywraplp.Solver.CreateSolver("GLOP")
        solver.SetTimeLimit(int(1000 * max(1.0, min(limit_s, clock.remaining_s))))
        own = [
            solver.NumVar(low, high, "")
            for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)
        ]
        own_rows = [solver.Constraint(least, solver.infinity()) for least in at_least.tolist()]
        for row, column, value in zip(
            rows.tolist(), columns.tolist(), values.tolist(), strict=True
        ):
            own_rows[row].SetCoefficient(own[column], value)
        objective = solver.Objective()
        for one, usd in zip(own, self.cost.tolist(), strict=True):
            if usd:
                objective.SetCoefficient(one, usd)
        objective.SetMinimization()
        status = solver.Solve()
        if status == pywraplp.Solver.INFEASIBLE:
            raise NoFeasibleLayout("even parts of units together do not meet the demand")
        if status != pywraplp.Solver.OPTIMAL:
            raise clock.late("the linear relaxation was solved")
        dual = np.array([row.dual_value() for row in own_rows])
        found = np.array([one.solution_value() for one in own])
        bound = max(0.0, self.proven(dual))
        return Relaxed(found[self.serve], found[self.reserved], bound)

    def proven(self, dual: Array) -> float:
        """What any plan costs at least, by such values of the rows; negative ones count for nothing."""
        rows, columns, values, at_least = self.rows.all()
        dual = np.maximum(0.0, dual)
        left = self.cost - np.bincount(columns, values * dual[rows], minlength=self.number)
        held = np.where(left > 0, self.low, self.high) * left
        parts = np.concatenate([dual * at_least, held])
        return float(parts.sum()) - _LOST * float(np.abs(parts).sum())

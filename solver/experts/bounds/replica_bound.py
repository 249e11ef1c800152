r"""Bound on the busiest chip over all replica counts, by a linear program with a checked certificate.

Each expert chooses replicas (a column: ``count`` pieces of size ``share / count``); the columns use
exactly the slots there are. A target ``T`` asks, for every set of placements, rows that are sums
over pieces, ``sum of f(piece) <= 0``:

* two slots per chip: ``#{pieces >= x} <= #{pieces <= T - x}`` for ``x > T / 2``;
* more: some ``h`` chips hold the ``h`` pieces of size ``x`` or more and ``h (k - 1)`` smaller ones,
  so ``sum of those pieces + h (k - 1) t - sum of (t - piece)+ over smaller pieces <= h T``
  for every ``t``.

If the linear program cannot satisfy them, its multipliers ``y, u`` prove it: ``sum over experts
of the cheapest column under (y, u) > u * slots``. That sum is recomputed here from the multipliers,
so no solver tolerance enters the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.linear_solver import pywraplp

from solver.experts.slots import Floats, Ints

#: Replica counts above the fewest possible: single ones, then ranges with their smallest piece.
RANGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 10), (11, 10**9))
#: A certificate counts only above this; loads are shares of a layer times the number of chips.
CERTAIN = 1e-7
#: Rounds of adding violated rows, and rows per round.
ROUNDS, ROWS = 12, 6


@dataclass(frozen=True, slots=True)
class Columns:
    """Choices of replicas: expert, pieces counted, smallest and largest piece of the range."""

    expert: Ints
    count: Floats
    low: Floats
    high: Floats
    num_experts: int


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: pieces of size ``above`` or more against smaller ones (see the module)."""

    above: float
    below: float


def columns_for(share: Floats, target: float, slots: int, num_chips: int) -> Columns | None:
    """All choices with pieces of at most ``target``; None if they need more than ``slots``."""
    fewest = np.maximum(np.ceil(share / target - 1e-9).astype(np.int64), 1)
    spare = slots - int(fewest.sum())
    if spare < 0:
        return None
    parts = []
    every = np.arange(len(share))
    for start, stop in RANGES:
        first = fewest + start
        last = np.minimum(np.minimum(fewest + stop, fewest + spare), max(num_chips, 1))
        use = first <= last
        if not use.any():
            break
        first, last, who = first[use], last[use], every[use]
        for count in (first, last) if start < stop else (first,):
            parts.append((who, count, share[who] / last, share[who] / first))
    expert, count, low, high = (np.concatenate([part[i] for part in parts]) for i in range(4))
    return Columns(expert, count.astype(np.float64), low, high, len(share))


def coefficients(columns: Columns, row: Condition, target: float, width: int) -> Floats:
    """Coefficient of each column in ``row``: the smallest that a piece of its range can have."""
    large = -target + (width - 1) * row.below
    small = -np.maximum(row.below - columns.low, 0.0)
    value = np.where(columns.low >= row.above, columns.low + large, small)
    mixed = (columns.low < row.above) & (columns.high >= row.above)
    value = np.where(mixed, np.minimum(small, row.above + large), value)
    return columns.count * value


def worst_rows(
    columns: Columns, used: Floats, target: float, width: int, chips: int
) -> list[Condition]:
    """The rows that the amounts ``used`` of the columns violate most, at most :data:`ROWS`."""
    order = np.argsort(columns.low, kind="stable")
    piece, mass = columns.low[order], (columns.count * used)[order]
    running = np.concatenate([[0.0], np.cumsum(mass)])
    load = np.concatenate([[0.0], np.cumsum(mass * piece)])
    start = np.flatnonzero((mass > 1e-9) & (running[-1] - running[:-1] <= chips + 1e-9))
    above, held = piece[start], running[-1] - running[start]
    need = np.minimum(held * (width - 1), running[start])
    edge = np.maximum(np.minimum(np.searchsorted(running, need, "left"), len(piece)) - 1, 0)
    below = piece[edge]
    filler = load[edge] + (need - running[edge]) * below
    over = load[-1] - load[start] + filler - held * target
    best = np.argsort(-over)[:ROWS]
    return [Condition(float(above[i]), float(below[i])) for i in best if over[i] > 1e-7]


def refuted(
    share: Floats, num_chips: int, width: int, target: float, rows: list[Condition] | None = None
) -> bool:
    """Whether no placement of one layer has busiest chip ``target`` or less (proven), any replicas.

    ``share [experts]`` in units of a mean chip's load (sums to ``num_chips``); every chip has
    ``width`` slots. ``False`` only means that this program found no proof. Violated conditions
    are appended to ``rows`` for the next target.
    """
    slots = num_chips * width
    columns = columns_for(share, target, slots, num_chips)
    if columns is None:
        return True
    rows = [] if rows is None else rows
    program = Program(columns, slots)
    if width == 2:
        chain = program.add_pairing_rows(target)
        return program.solve() and program.certified(chain, slots)
    added: list[Floats] = []

    def add(row: Condition) -> None:
        added.append(coefficients(columns, row, target, width))
        program.add_row(added[-1])

    for row in rows:
        add(row)
    for _ in range(ROUNDS):
        if not program.solve():
            return False
        if added and program.certified(np.stack(added), slots):
            return True
        found = worst_rows(columns, program.amounts(), target, width, num_chips)
        if not found:
            return False
        for row in found:
            add(row)
        rows.extend(found)
    return False


class Program:
    """The linear program: one unit of columns per expert, all slots used, least excess of any row."""

    def __init__(self, columns: Columns, slots: int):
        self.columns = columns
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.infinity = self.solver.infinity()
        self.amount = [
            self.solver.NumVar(0.0, self.infinity, "") for _ in range(len(columns.count))
        ]
        self.excess = self.solver.NumVar(0.0, self.infinity, "")
        pick = [self.solver.RowConstraint(1.0, 1.0, "") for _ in range(columns.num_experts)]
        self.total = self.solver.RowConstraint(float(slots), float(slots), "")
        self.limits: list[pywraplp.Constraint] = []
        counts = columns.count.tolist()
        for variable, who, count in zip(self.amount, columns.expert.tolist(), counts, strict=True):
            pick[who].SetCoefficient(variable, 1.0)
            self.total.SetCoefficient(variable, count)
        self.solver.Minimize(self.excess)

    def add_row(self, values: Floats) -> None:
        """Ask for ``values @ amounts <= excess``."""
        row = self.solver.RowConstraint(-self.infinity, 0.0, "")
        row.SetCoefficient(self.excess, -1.0)
        for index in np.flatnonzero(values):
            row.SetCoefficient(self.amount[index], float(values[index]))
        self.limits.append(row)

    def add_pairing_rows(self, target: float) -> Floats:
        """Ask for every pairing row, as a chain of running differences; their dense coefficients."""
        columns = self.columns
        large = np.flatnonzero(columns.low > target / 2 + 1e-9)
        small = np.flatnonzero(columns.low <= target / 2 + 1e-9)
        large = large[np.argsort(-columns.low[large], kind="stable")]
        small = small[np.argsort(columns.low[small], kind="stable")]
        reach = np.searchsorted(columns.low[small], target - columns.low[large] + 1e-9, "right")
        values = np.zeros(((np.diff(reach, append=-1) != 0).sum(), len(columns.count)))
        before: pywraplp.Variable | None = None
        done = start = 0
        for index, stop in enumerate((np.flatnonzero(np.diff(reach, append=-1)) + 1).tolist()):
            upto = int(reach[stop - 1])
            ahead = self.solver.NumVar(-self.infinity, self.infinity, "")
            link = self.solver.RowConstraint(0.0, 0.0, "")
            link.SetCoefficient(ahead, -1.0)
            if before is not None:
                link.SetCoefficient(before, 1.0)
            for column in large[start:stop]:
                link.SetCoefficient(self.amount[column], float(columns.count[column]))
            for column in small[done:upto]:
                link.SetCoefficient(self.amount[column], -float(columns.count[column]))
            limit = self.solver.RowConstraint(-self.infinity, 0.0, "")
            limit.SetCoefficient(ahead, 1.0)
            limit.SetCoefficient(self.excess, -1.0)
            self.limits.append(limit)
            values[index, large[:stop]] = columns.count[large[:stop]]
            values[index, small[:upto]] = -columns.count[small[:upto]]
            before, done, start = ahead, upto, stop
        return values

    def solve(self) -> bool:
        """Whether the program was solved."""
        return bool(self.solver.Solve() == pywraplp.Solver.OPTIMAL)

    def amounts(self) -> Floats:
        """Amount of each column in the solution."""
        return np.array([variable.solution_value() for variable in self.amount])

    def certified(self, values: Floats, slots: int) -> bool:
        """Whether the multipliers prove that no columns satisfy ``values @ amounts <= 0``.

        For any ``y >= 0`` and any ``u`` it is enough that the sum over experts of the cheapest
        column at cost ``y @ values - u count``, plus ``u slots``, is above zero.
        """
        if not len(values) or self.excess.solution_value() <= CERTAIN:
            return False
        weights = np.maximum([-limit.dual_value() for limit in self.limits], 0.0)
        price = self.total.dual_value()
        cost = weights @ values - price * self.columns.count
        cheapest = np.full(self.columns.num_experts, np.inf)
        np.minimum.at(cheapest, self.columns.expert, cost)
        scale = max(1.0, float(weights.sum()), abs(price) * slots)
        return bool(cheapest.sum() + price * slots > CERTAIN * scale)


def raise_bound(
    share: Floats, num_chips: int, width: int, bound: float, peak: float, *, close: float
) -> float:
    """Highest proven bound on the busiest chip between ``bound`` and ``peak`` (shares of the layer).

    Bisects until ``bound`` and the lowest target not refuted differ by ``close`` (a fraction). The least rise worth
    having is tried first, since many layers allow none, then the most.
    """
    unit = share / share.sum() * num_chips
    low, high = bound * num_chips, peak * num_chips
    rows: list[Condition] = []
    tries = [high * (1 - close), low * (1 + close)]
    while high > low * (1 + close):
        target = tries.pop() if tries else (low + high) / 2
        if refuted(unit, num_chips, width, target, rows):
            low = max(low, target)
        else:
            high = min(high, target)
    return low / num_chips * (1 - 1e-9)

"""Which chips new replicas take: those that hold most of their weights already (linear assignment).

Chips of a domain that cannot be told apart may change places, and so may whole domains that are alike; neither changes
what a layout achieves. Replicas that stay keep their chips.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import linear_sum_assignment

from costmodel.change.joined import on_chips
from costmodel.change.weights import Weights, expert_bytes, weights_by_chip
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance

Array = NDArray[np.float64]


def nearest_chips(
    instance: Instance, before: Layout, after: Layout, kept: Collection[int] = ()
) -> Layout:
    """``after`` on the chips where fewest bytes have to be loaded; replicas ``kept`` stay where they are."""
    return _Swap(instance, before, after, kept).best()


class _Swap:
    """One search for the chips of one layout."""

    def __init__(self, instance: Instance, before: Layout, after: Layout, kept: Collection[int]):
        self.instance, self.after = instance, after
        self.cluster = instance.cluster
        self.had = weights_by_chip(before)
        self.wanted = weights_by_chip(after, evaluate(instance, after).priced)
        self.each = expert_bytes(instance)
        self.fixed = {
            chip for at, one in enumerate(after.replicas) if at in kept for chip in one.chips
        }
        self._known: dict[tuple[int, int], float] = {}

    def best(self) -> Layout:
        """Domains to domains alike, then chips to chips of the domain."""
        moved: dict[str, str] = {}
        for content, goal in self._homes().items():
            moved |= self._within(content, goal)[0]
        if all(chip == goal for chip, goal in moved.items()):
            return self.after
        replicas = tuple(on_chips(replica, moved) for replica in self.after.replicas)
        return self.after.model_copy(update={"replicas": replicas})

    def _homes(self) -> dict[int, int]:
        """For each domain the one that takes over what stands there."""
        found: dict[int, int] = {}
        for first in dict.fromkeys(self.cluster.first_alike(d.index) for d in self.cluster.domains):
            alike = self.cluster.alike(first)
            units = [int(self.cluster.uplinks.unit_of[d]) for d in alike]
            for unit in dict.fromkeys(units):
                own = [d for d, u in zip(alike, units, strict=True) if u == unit]
                found |= self._among(own)
        return found

    def _among(self, domains: Sequence[int]) -> dict[int, int]:
        """The same among domains alike, of one unit of the network."""
        bound = [d for d in domains if any(chip in self.fixed for chip in self._ids(d))]
        free = [d for d in domains if d not in bound and self._regular(d)]
        found = {d: d for d in domains}
        known: dict[tuple[object, object], float] = {}
        costs = np.zeros((len(free), len(free)))
        for row, content in enumerate(free):
            for column, goal in enumerate(free):
                key = (self._sign(content, self.wanted), self._sign(goal, self.had))
                if key not in known:
                    known[key] = self._within(content, goal)[1]
                costs[row, column] = known[key]
        here = float(np.trace(costs))
        rows, columns = _assigned(costs)
        if float(costs[rows, columns].sum()) < here:
            found |= {
                free[r]: free[c] for r, c in zip(rows.tolist(), columns.tolist(), strict=True)
            }
        return found

    def _within(self, content: int, goal: int) -> tuple[dict[str, str], float]:
        """Chips of a domain onto those of another (or its own), and the bytes that they load there."""
        used = [chip for chip in self._ids(content) if chip in self.wanted]
        movable = [chip for chip in used if chip not in self.fixed]
        if not self._regular(goal):
            return {}, sum(self._bytes(chip, chip) for chip in used)
        room = [chip for chip in self._ids(goal) if chip not in self.fixed]
        kinds = [self.cluster.chip(chip).chip.name for chip in room]
        costs = np.full((len(movable), len(room)), np.inf)
        for row, chip in enumerate(movable):
            name = self.cluster.chip(chip).chip.name
            for column, (other, kind) in enumerate(zip(room, kinds, strict=True)):
                if kind == name:
                    costs[row, column] = self._bytes(chip, other)
        rows, columns = _assigned(costs)
        taken = {movable[r]: room[c] for r, c in zip(rows.tolist(), columns.tolist(), strict=True)}
        return taken, float(costs[rows, columns].sum())

    def _bytes(self, position: str, chip: str) -> float:
        """Bytes that a chip loads to hold what the layout has on ``position``; alike pairs are counted once."""
        wanted, there = self.wanted[position], self.had.get(chip)
        key = (id(wanted), id(there))
        if key not in self._known:
            self._known[key] = wanted.fresh(there, self.each)
        return self._known[key]

    def _regular(self, domain: int) -> bool:
        return self.cluster.domains[domain].interchangeable_chips

    def _ids(self, domain: int) -> list[str]:
        return [placed.id for placed in self.cluster.domains[domain].usable]

    def _sign(self, domain: int, held: dict[str, Weights]) -> tuple[int, ...]:
        return tuple(id(held.get(chip)) for chip in self._ids(domain))


def _assigned(costs: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and their columns, each column once, at the least sum; infinite entries are not allowed, rows not more than columns.

    Bytes are counted whole. Raises ``ValueError`` where no assignment is finite.
    """
    height, width = costs.shape
    rows, columns = np.nonzero(np.isfinite(costs))
    # rows that stand for nothing take the columns that are left
    spare, free = (part.ravel() for part in np.mgrid[height:width, 0:width])
    solver = linear_sum_assignment.SimpleLinearSumAssignment()
    solver.add_arcs_with_cost(
        np.concatenate([rows, spare]),
        np.concatenate([columns, free]),
        np.concatenate([np.rint(costs[rows, columns]).astype(np.int64), 0 * spare]),
    )
    if width and solver.solve() != solver.OPTIMAL:
        raise ValueError("no assignment: a row has no column of its own")
    found = [solver.right_mate(row) for row in range(height)]
    return np.arange(height), np.array(found, np.int64)

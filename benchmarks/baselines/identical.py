"""The cheapest fleet of identical replicas: one shape per role, of the widths that others try.

A baseline for whole solves, written from descriptions of other tools. It uses the same shapes,
placements, batches, fleet model and evaluator as Rackfit, so that only what is searched differs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.fleet.asked import Question
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.place.realise import Realised, Realiser
from solver.place.standing import Slice
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ROLES, ShapeTable, enumerate_shapes

Mask = NDArray[np.bool_]
Allowed = Callable[[ShapeTable], Mask]

#: what a further pair of shapes must gain to be worth a look, relatively
_WORTH = 1e-4


def power_of_two(values: NDArray[np.int64]) -> Mask:
    """Whether each value is a power of two."""
    return np.asarray((values & (values - 1)) == 0)


def common_widths(shapes: ShapeTable) -> Mask:
    """Powers of two in every width, no pipeline: what the best peer searches."""
    return np.asarray(
        power_of_two(shapes.tp)
        & power_of_two(shapes.attention_dp)
        & (shapes.pp == 1)
        & power_of_two(shapes.slices)
        & (shapes.span < 0)
    )


def tensor_in_node(shapes: ShapeTable) -> Mask:
    """Tensor parallelism within a node, pipeline stages one to a node: the textbook layout."""
    return np.asarray(
        power_of_two(shapes.tp)
        & (shapes.attention_dp == 1)
        & (shapes.stage_pools == 1)
        & (shapes.slices == shapes.pp)
        & (shapes.span < 0)
    )


@dataclass(frozen=True)
class Baseline:
    """The best layout of a baseline; ``complete``: nothing it allows is cheaper."""

    layout: Layout
    evaluation: Evaluation
    complete: bool


def cheapest_identical(
    instance: Instance, allowed: Allowed, *, time_limit_s: float = 60.0, seed: int = 0
) -> Baseline | None:
    """Best fleet with one allowed shape per role, ``None`` where none serves. One chip type only."""
    return _Search(instance, allowed, Clock(time_limit_s), seed).run()


class _Search:
    """Best-first over pairs (prefill shape, decode shape) and mixed shapes."""

    def __init__(self, instance: Instance, allowed: Allowed, clock: Clock, seed: int):
        self.instance, self.clock, self.seed = instance, clock, seed
        self.classes = pool_classes(instance.cluster)
        every = enumerate_shapes(instance, self.classes)
        self.shapes = every.take(allowed(every))
        pricer = Pricer(instance, self.classes)
        bounds = pricer.bounds(self.shapes)
        self.per_rank = bounds.per_rank
        self.rate = bounds.requests_per_s.copy()
        self.realiser = Realiser(instance, self.shapes, pricer, clock, seed)
        self.realised: dict[int, Realised] = {}
        self.chips = sum(len(c.pools) * c.size for c in self.classes)
        usd = sum(len(c.pools) * c.size * c.chip.usd_per_hour for c in self.classes)
        self.question = Question(True, usd, None)

    def of(self, item: Item) -> Realised:
        """The replica of an item."""
        return self.realised[item.shape]

    def on(self, item: Item, slices: Sequence[Slice]) -> Realised:
        """The replica of an item on given chips."""
        return self.realiser.realise(item.shape, int(self.per_rank[item.shape]), slices)

    def run(self) -> Baseline | None:
        """Realise the most promising shapes until no pair left can be cheaper."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row in np.flatnonzero(self.rate > 0).tolist():
            one = self.shapes.row(row)
            key = (one["role"], one["pool_class"], one["slices"], one["slice_chips"])
            groups.setdefault(key, []).append(row)
        prefill, decode, mixed = ([k for k in groups if k[0] == r] for r in range(len(ROLES)))
        ways = [(p, d) for p in prefill for d in decode] + [(m,) for m in mixed]
        queue = [
            (-self._most(rows), rows, way) for way in ways for rows in [self._best(groups, way)]
        ]
        heapq.heapify(queue)
        best: Baseline | None = None
        served = 0.0
        while queue and not self.clock.over:
            bound, rows, way = heapq.heappop(queue)
            if -bound <= served * (1 + _WORTH):
                queue.clear()
                break
            stale = rows != self._best(groups, way) or any(r not in self.realised for r in rows)
            for row in rows:
                self._realise(row)
            if stale:
                fresh = self._best(groups, way)
                heapq.heappush(queue, (-self._most(fresh), fresh, way))
                continue
            found = self._judged(rows, served)
            if found is not None:
                best, served = found, found.evaluation.requests_per_s or 0.0
        if best is None:
            return None
        return Baseline(best.layout, best.evaluation, not queue)

    def _best(
        self, groups: dict[tuple[int, ...], list[int]], way: tuple[tuple[int, ...], ...]
    ) -> tuple[int, ...]:
        """The best row of each footprint as far as is known."""
        return tuple(max(groups[key], key=lambda row: (self.rate[row], -row)) for key in way)

    def _most(self, rows: tuple[int, ...]) -> float:
        """Requests per second if chips could be split at will between the shapes."""
        with np.errstate(divide="ignore"):
            need = [self.shapes.chips[row] / self.rate[row] for row in rows]
        return float(self.chips / sum(need))

    def _realise(self, row: int) -> None:
        if row not in self.realised:
            self.realised[row] = self.realiser.realise(row, int(self.per_rank[row]))
            self.rate[row] = self.realised[row].requests_per_s

    def _judged(self, rows: tuple[int, ...], served: float) -> Baseline | None:
        """The best numbers of replicas of these shapes, if the evaluator agrees they serve more."""
        items = []
        for row in rows:
            one = self.shapes.row(row)
            place = (one["role"], one["pool_class"], one["slices"], one["slice_chips"])
            items.append(Item(row, *place, float(self.rate[row])))
        answer = solve_fleet(
            items, self.classes, self.question, clock=self.clock, time_limit_s=4.0, seed=self.seed,
            accept_gap=1e-4,
        )  # fmt: skip
        if answer.fleet is None or answer.fleet.requests_per_s <= served:
            return None
        layout = assemble(self.instance, answer.fleet, self)
        evaluation = evaluate(self.instance, layout)
        if evaluation.violations or (evaluation.requests_per_s or 0.0) <= served:
            return None
        return Baseline(layout, evaluation, True)

"""What one search knows so far: shapes with their bounds, what was placed, the incumbent and the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from solver.answer import Progress
from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.explain.explain import why_nothing_fits
from solver.fleet.asked import Fleet, FleetAnswer, Question
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item, Items
from solver.place.assemble import assemble
from solver.place.mend import mended
from solver.place.placed_shapes import PlacedShapes
from solver.place.realise import Realised
from solver.rules import allowed
from solver.rules.ttft_target import leaving
from solver.shapes.least_rates import KnownSets
from solver.shapes.pools import PoolClass, pool_classes
from solver.shapes.shapes import ShapeTable, enumerate_shapes
from solver.shapes.spans import joined_as_priced
from solver.shapes.stands import every_set
from solver.threads import side_by_side
from solver.verify import ROUNDING, better, usd_per_m_output, verify

#: fleets that are kept with their questions: of the bounds, of what is hoped for, of what was placed, each of two rounds
_FLEETS = 6


@dataclass(frozen=True)
class Groundwork:
    """Classes of chips, every shape on them that the rules allow, and loads and rates as they are worked out.

    Targets play no part in it, and nothing in it is cut short by a deadline.
    """

    classes: tuple[PoolClass, ...]
    shapes: ShapeTable
    pricer: Pricer


def groundwork(instance: Instance, sets: KnownSets | None = None) -> Groundwork:
    """That of a question. ``sets``: of other questions, on the same cluster too."""
    classes = pool_classes(instance.cluster)
    shapes = allowed(instance, enumerate_shapes(instance, classes))
    if instance.scenario.apart:
        # entered where they are asked for, and nowhere else
        from solver.apart.pricer import ApartPricer
        from solver.apart.table import with_apart

        shapes, table = with_apart(instance, classes, shapes)
        pricer: Pricer = ApartPricer(instance, classes, table=table)
    else:
        pricer = Pricer(instance, classes)
    pricer.sets = sets or pricer.sets
    return Groundwork(classes, shapes, pricer)


class Known:
    """State of one search. Costs inside are dollars per hour and (request per second)."""

    #: of a search that another one can do without, since it has an answer: that one's clock. When it is over nothing more is
    #: placed; else a search without a layout works one out first, however late it is
    outer: Clock | None = None

    def __init__(
        self,
        instance: Instance,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None,
        like: Known | None = None,
        workers: int = 1,
        ground: Groundwork | None = None,
    ):
        """``like``: a search for the same question with KV elsewhere; what does not depend on that is shared.

        ``ground``: what an earlier search for the same question with other targets worked out.

        ``workers``: threads that place and price; the answer does not depend on it.
        """
        self.instance = instance
        self.clock = clock
        self.target = gap
        self.seed = seed
        self.on_progress = on_progress
        self.workers = workers
        before = like or ground or groundwork(instance)
        self.classes: tuple[PoolClass, ...] = before.classes
        self.shapes: ShapeTable = before.shapes
        self.pricer: Pricer = before.pricer.again(instance)
        self.bounds = self.pricer.bounds(self.shapes, workers)
        self.question = Question.of(instance, self.classes)
        links = self.question.links
        may_leave = (
            None if links is None else leaving(instance, self.shapes, self.bounds, self.classes)
        )
        self.items = Items(self.shapes, self.bounds.requests_per_s, self.classes, may_leave)
        self.placed: PlacedShapes = PlacedShapes(
            self.items, self.pricer, links, clock, seed, None if like is None else like.placed
        )
        self.to_usd = usd_per_m_output(instance)
        #: whether chips of a pool cannot be told apart; else a replica's place changes its price
        self.regular = all(
            instance.cluster.domains[pool.domain].interchangeable_chips
            for pool_class in self.classes
            for pool in pool_class.pools
        )
        self.bound = 0.0
        #: the same of what waits, before anything is placed; see :mod:`solver.rounds`
        self.waiting_bound = float("inf")
        self.best_cost = float("inf")
        self.layout: Layout | None = None
        self.evaluation: Evaluation | None = None
        self.best_fleet: Fleet | None = None
        #: held while the incumbent changes
        self.changing = Lock()
        self.first_s = 0.0
        self.trajectory: list[Progress] = []
        #: the last questions of :meth:`fleet` with their answers
        self._fleets: list[tuple[tuple[tuple[Item, ...], float], FleetAnswer]] = []

    @property
    def proven(self) -> float:
        """What no layout costs less than, with shapes that wait."""
        return min(self.bound, self.waiting_bound)

    @property
    def gap(self) -> float:
        """Incumbent over the bound of shapes that do not wait, minus 1."""
        if self.bound <= 0 or self.best_cost == float("inf"):
            return float("inf")
        return max(0.0, self.best_cost / self.bound - 1.0)

    @property
    def num_shapes(self) -> int:
        """Shapes in the search space."""
        return len(self.shapes)

    @property
    def bound_usd(self) -> float:
        """Dollars per million output tokens that no layout's chips cost less than."""
        return self.proven * self.to_usd

    def first_bound_usd(self) -> float:
        """The same before anything is placed (``inf``: nothing can fit)."""
        items = self.items.best()
        links = self.question.links
        relaxed = rate_bound(items, self.classes, links)[0] if items else 0.0
        wanted = self.question.rate
        if relaxed <= 0 or (wanted is not None and relaxed < wanted * (1 - 1e-9)):
            return float("inf")
        if self.question.whole and wanted is None:
            return self.question.whole_usd_per_hour / relaxed * self.to_usd
        return cost_per_rate_bound(items, self.classes, links, wanted) * self.to_usd

    def place(self, rows: Iterable[int]) -> None:
        """Realise shapes, each on its own, and lower their bounds to what that allows."""

        def realised(row: int) -> Realised | None:
            late = self.clock.over and self.layout is not None
            if late or (self.outer is not None and self.outer.over):
                return None
            return self.placed.place(row, int(self.bounds.per_rank[row]))

        wanted = list(rows)
        with side_by_side(self.workers, len(wanted)) as each:
            made = list(each(realised, wanted))
        for row, found in zip(wanted, made, strict=True):
            if found is not None:
                self.items.tighten(row, found.upper_requests_per_s, found.requests_per_s)
        self.bound_anew()

    def bound_anew(self) -> None:
        """Lower the bound where a shape served more than its own.

        Not every set of chips is looked at where neighbours matter, and a stage may stand on a quicker one. Elsewhere
        that is a fault, which :meth:`solver.rounds.Search._finish` reports.
        """
        if self.items.outdone and not (
            self.regular or every_set(self.instance.cluster, self.classes)
        ):
            self.items.outdone = False
            least = self.first_bound_usd() / self.to_usd
            self.bound, self.waiting_bound = min(self.bound, least), min(self.waiting_bound, least)

    def report(self, doing: str) -> None:
        """Record progress and hand it to the caller."""
        found, bound = self.best_cost < float("inf"), self.proven
        progress = Progress(
            elapsed_s=self.clock.elapsed_s,
            incumbent=self.best_cost * self.to_usd if found else None,
            bound=bound * self.to_usd if bound > 0 else None,
            gap=max(0.0, self.best_cost / bound - 1.0) if found and bound > 0 else None,
            doing=doing,
        )
        self.trajectory.append(progress)
        if self.on_progress is not None:
            self.on_progress(progress)

    def fleet(self, items: list[Item], limit_s: float) -> FleetAnswer:
        """Best fleet of some items, to a tenth of the gap asked for; what was just asked has the answer it had."""
        asked = tuple(items), limit_s
        for at, (known, answer) in enumerate(self._fleets):
            if known == asked:
                self._fleets.append(self._fleets.pop(at))
                return answer
        remaining = self.clock.remaining_s
        if remaining < float("inf"):
            limit_s = min(limit_s, max(0.2, remaining / 2))
        found = solve_fleet(
            items, self.classes, self.question, clock=self.clock, time_limit_s=limit_s,
            seed=self.seed, accept_gap=self.target / 10,
        )  # fmt: skip
        self._fleets = [*self._fleets[1 - _FLEETS :], (asked, found)]
        return found

    def hoped(self) -> list[Item]:
        """Items of shapes that were placed by what they serve and send, of others by their bounds."""
        return [
            self.placed.sending(item) if item.shape in self.placed.realised else item
            for item in self.items.best(*self.hoped_rates())
        ]

    def hoped_rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By shape: requests/s hoped for, and of those whose KV leaves its domain."""
        rates, leaves = self.items.upper.copy(), self.items.leaving.copy()
        for row, found in self.placed.realised.items():
            rates[row], leaves[row] = found.requests_per_s, self.placed.leaves(row)
        return rates, np.minimum(rates, leaves)

    def take(self, fleet: Fleet) -> bool:
        """Make a fleet the incumbent, if the evaluator agrees that it is better; whether it did."""
        cost = self.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
        layout = assemble(self.instance, fleet, self.placed)
        as_priced = self.regular and all(
            joined_as_priced(self.instance.cluster, self.classes, item.parts, pools)
            for item, pools in fleet.stands
        )
        return self.judge(layout, fleet, cost if as_priced else float("inf"))

    def judge(self, layout: Layout, fleet: Fleet | None, claimed: float) -> bool:
        """Make a fleet's layout the incumbent if the evaluator accepts it and finds it better; whether it did.

        ``None``: a layout that another search found, whose shapes are not numbered here.
        Replicas that stand too far apart where neighbours matter, or that links do not carry, are left out.
        """
        evaluation = evaluate(self.instance, layout)
        if evaluation.violations:
            left = mended(self.instance, layout, evaluation)
            if left is None and not self.regular:
                return False
            if left is not None:
                (layout, evaluation), claimed = left, float("inf")
        judged = verify(self.instance, claimed, evaluation)
        if judged > self.best_cost * (1 + ROUNDING) or not better(evaluation, self.evaluation):
            return False
        if self.layout is None:
            self.first_s = self.clock.elapsed_s
        with self.changing:
            self.best_cost, self.layout, self.evaluation = judged, layout, evaluation
            self.best_fleet = fleet
        return True

    def why(self) -> str:
        """Why nothing fits, in words."""
        return why_nothing_fits(
            self.instance,
            self.classes,
            self.shapes,
            self.bounds,
            self.question,
            rate_bound(self.items.best(), self.classes, self.question.links)[0],
        )

"""The search: best-first over fleets of bounded shapes until the gap asked for is proven.

1. Bound every shape (:mod:`solver.bounds.pricing`). 2. Find the best fleet under the bounds: its cost is a
proven bound. 3. Realise the shapes in it, which lowers their bounds to what placement really
allows. 4. The best fleet of realised shapes, assembled on named chips and judged by the evaluator,
is the incumbent. Repeat from 2 until incumbent and bound are close enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.bounds.held_pricing import HeldPricer
from solver.certificate import Certificate, covers
from solver.clock import Clock, check_seed
from solver.explain.explain import why_nothing_fits
from solver.fleet.asked import Fleet, FleetAnswer, Question, fleet_of, links_between
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item, Items
from solver.place.assemble import assemble
from solver.place.pack import packed
from solver.place.placed_shapes import PlacedShapes
from solver.rules.ttft_target import leaving
from solver.shapes.pools import PoolClass, pool_classes
from solver.shapes.shapes import ShapeTable, enumerate_shapes
from solver.verify import ROUNDING, usd_per_m_output, verify
from topology.errors import (
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    Problem,
    VerificationError,
)

if TYPE_CHECKING:
    from solver.runner_up import RunnerUp

#: rounds of placing shapes that are not in the bound's fleet
_HOPES = 32
#: siblings of a shape tried in one round: placing one is quick beside a search for the fleet
_SIBLINGS = 4


@dataclass(frozen=True)
class Progress:
    """State of a search at one moment; costs in dollars per million output tokens."""

    elapsed_s: float
    incumbent: float | None
    bound: float | None
    gap: float | None
    doing: str


@dataclass(frozen=True)
class SearchResult:
    """The best verified layout with its proof."""

    status: str
    layout: Layout
    evaluation: Evaluation
    certificate: Certificate
    wall_s: float
    first_layout_s: float
    proof_s: float | None
    shapes: int
    trajectory: tuple[Progress, ...]
    #: relative cost of uneven expert load (0 for a dense model)
    skew_cost: float
    #: the best layout found that is built differently, where it was asked for and there is one
    runner_up: RunnerUp | None = None


def search(
    instance: Instance,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    runner_up: bool = False,
) -> SearchResult:
    """Best verified layout of an instance, with a proven bound, and its runner-up if asked for.

    Raises ``NoFeasibleLayout`` (with an explanation) where nothing fits, ``NoLayoutInTime`` where
    the clock ran out before the first verified layout, ``VerificationError`` on a bug,
    ``InstanceError`` for an option that is evaluated but not searched.
    """
    check_seed(seed)
    if instance.scenario.two_batch_overlap:
        message = (
            "is evaluated, not searched: no bound covers it; leave it out, then evaluate with it"
        )
        raise InstanceError(Problem("two_batch_overlap", message))
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        from solver.kv_search import PlanSearch  # one search for each place that KV may lie in

        plans = PlanSearch(instance, clock=clock, gap=gap, seed=seed, on_progress=on_progress)
        clock.kept = plans.snapshot
        found, engine, whole = plans.run(), plans.best_search, False
    else:
        engine, whole = Search(instance, clock, gap, seed, on_progress), True
        clock.kept = engine.snapshot
        answer = engine.run()
        assert answer is not None
        found = answer
    if runner_up and engine is not None:
        from solver.runner_up import with_runner_up

        return with_runner_up(engine, found, proven=whole)
    return found


class Search:
    """What a search knows so far. Costs inside are dollars per hour and (request per second)."""

    def __init__(
        self,
        instance: Instance,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None,
        like: Search | None = None,
    ):
        """``like``: a search for the same question with KV elsewhere; what does not depend on that is shared."""
        self.instance = instance
        self.clock = clock
        self.target = gap
        self.seed = seed
        self.on_progress = on_progress
        self.classes: tuple[PoolClass, ...] = (
            pool_classes(instance.cluster) if like is None else like.classes
        )
        self.shapes: ShapeTable = (
            enumerate_shapes(instance, self.classes) if like is None else like.shapes
        )
        self.pricer: HeldPricer = HeldPricer(
            instance, self.classes, None if like is None else like.pricer
        )
        self.bounds = self.pricer.bounds(self.shapes)
        links = links_between(instance)
        may_leave = (
            None if links is None else leaving(instance, self.shapes, self.bounds, self.classes)
        )
        self.items = Items(self.shapes, self.bounds.requests_per_s, self.classes, may_leave)
        self.placed: PlacedShapes = PlacedShapes(
            self.items, self.pricer, links, clock, seed, None if like is None else like.placed
        )
        self.question = Question(
            whole=instance.scenario.pay == "whole",
            whole_usd_per_hour=sum(len(c.pools) * sum(c.prices) for c in self.classes),
            rate=instance.scenario.rate,
            links=links,
        )
        self.to_usd = usd_per_m_output(instance)
        #: whether chips of a pool cannot be told apart; else a replica's place changes its price
        self.regular = all(
            instance.cluster.domains[pool.domain].interchangeable_chips
            for pool_class in self.classes
            for pool in pool_class.pools
        )
        self.bound = 0.0
        self.best_cost = float("inf")
        self.layout: Layout | None = None
        self.evaluation: Evaluation | None = None
        self.best_fleet: Fleet | None = None
        self._changing = Lock()
        self.first_s = 0.0
        self.trajectory: list[Progress] = []

    @property
    def gap(self) -> float:
        """Incumbent over bound, minus 1."""
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
        return self.bound * self.to_usd

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
        return cost_per_rate_bound(items, self.classes, links) * self.to_usd

    def run(self, enough_usd: float = float("inf")) -> SearchResult | None:
        """Rounds of bounding, realising and judging until the gap is proven or time is up.

        ``None`` as soon as the bound reaches ``enough_usd``: another search has found that already.
        """
        self.report(f"{len(self.shapes)} shapes bounded")
        proof_s: float | None = None
        hopes = 0
        while True:
            answer = self.fleet(self.items.best(), 12.0)
            self.bound = max(self.bound, min(answer.bound, self.best_cost))
            if float("inf") > enough_usd <= self.bound_usd:
                return None
            if answer.fleet is None and self.layout is None:
                self._fail()
            if self.gap <= max(self.target, ROUNDING):
                proof_s = self.clock.elapsed_s
                break
            wanted = answer.fleet.shapes if answer.fleet is not None else set()
            fresh = sorted(wanted - set(self.placed.realised)) or self._promising(wanted)
            if not fresh and hopes < _HOPES:
                fresh, hopes = self._hopeful(), hopes + 1
            for row in fresh:
                if self.clock.over and self.layout is not None:
                    break
                found = self.placed.place(row, int(self.bounds.per_rank[row]))
                self.items.tighten(row, found.upper_requests_per_s)
            self._improve()
            self.report(f"{len(self.placed.realised)} shapes placed")
            if self.gap <= max(self.target, ROUNDING):
                proof_s = self.clock.elapsed_s
                break
            if self.clock.over or not fresh:
                break
        if proof_s is None and not self.regular and not self.clock.over:
            self._pack()
            self.report("sets of chips packed")
            proof_s = self.clock.elapsed_s if self.gap <= max(self.target, ROUNDING) else None
        return self._finish(proof_s)

    def report(self, doing: str) -> None:
        """Record progress and hand it to the caller."""
        found = self.best_cost < float("inf")
        progress = Progress(
            elapsed_s=self.clock.elapsed_s,
            incumbent=self.best_cost * self.to_usd if found else None,
            bound=self.bound * self.to_usd if self.bound > 0 else None,
            gap=self.gap if found and self.bound > 0 else None,
            doing=doing,
        )
        self.trajectory.append(progress)
        if self.on_progress is not None:
            self.on_progress(progress)

    def fleet(self, items: list[Item], limit_s: float) -> FleetAnswer:
        """Best fleet of some items, to a tenth of the gap asked for."""
        remaining = self.clock.remaining_s
        if remaining < float("inf"):
            limit_s = min(limit_s, max(0.2, remaining / 2))
        return solve_fleet(
            items, self.classes, self.question, clock=self.clock, time_limit_s=limit_s,
            seed=self.seed, accept_gap=self.target / 10,
        )  # fmt: skip

    def _promising(self, wanted: set[int]) -> list[int]:
        """For each shape wanted, the next few siblings whose bound beats all that were realised."""
        found = set()
        for shape in wanted:
            family = self.items.siblings(shape).tolist()
            best = max(
                self.placed.realised[row].requests_per_s
                for row in family
                if row in self.placed.realised
            )
            fresh = [row for row in family if row not in self.placed.realised]
            better = [row for row in fresh if self.items.upper[row] > best * (1 + 1e-9)]
            found |= set(better[:_SIBLINGS])
        return sorted(found)

    def _hopeful(self) -> list[int]:
        """Shapes not placed yet that would beat the incumbent if they reached their bounds.

        Where a placed shape falls short of its bound and nothing else can be tightened, the fleet that
        the bound names is known; others may still be better than what is known of it.
        """
        rates = self.items.upper.copy()
        for row, found in self.placed.realised.items():
            rates[row] = found.requests_per_s
        fleet = self.fleet(self.items.best(rates, np.minimum(rates, self.items.leaving)), 6.0).fleet
        if fleet is None:
            return []
        cost = self.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
        if cost > self.best_cost * (1 - self.target / 10):
            return []
        return sorted(fleet.shapes - set(self.placed.realised))

    def _improve(self) -> None:
        """Make the best fleet of realised shapes the incumbent, if the evaluator agrees it is better."""
        answer = self.fleet(self.placed.achieved(), 6.0)
        if answer.fleet is None:
            return
        fleet = answer.fleet
        cost = self.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
        if cost >= self.best_cost * (1 - 1e-12):
            return
        layout = assemble(self.instance, fleet, self.placed)
        self._judge(layout, fleet, cost if self.regular else float("inf"))

    def _pack(self) -> None:
        """Where neighbours matter, try the best fleet on named chips: the sets that each replica likes best
        may not fit beside each other."""
        found = packed(
            self.placed, self.classes, self.question, self.bounds.per_rank, self.best_fleet,
            self.best_cost,
        )  # fmt: skip
        if found is not None:
            self._judge(*found, float("inf"))

    def _judge(self, layout: Layout, fleet: Fleet, claimed: float) -> None:
        """Make a layout the incumbent if the evaluator accepts it and finds it better."""
        evaluation = evaluate(self.instance, layout)
        if not self.regular and evaluation.violations:
            return  # which chips stand together matters here, and these stand too far apart
        judged = verify(self.instance, claimed, evaluation)
        if judged < self.best_cost:
            if self.layout is None:
                self.first_s = self.clock.elapsed_s
            with self._changing:
                self.best_cost, self.layout, self.evaluation = judged, layout, evaluation
                self.best_fleet = fleet

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

    def _fail(self) -> None:
        if self.clock.over:
            raise NoLayoutInTime("the time limit came before the first layout")
        raise NoFeasibleLayout(self.why())

    def snapshot(self) -> SearchResult | None:
        """The best verified layout so far with its proven gap, from any thread while the search runs."""
        with self._changing:
            return self._finish(None) if self.layout is not None else None

    def _finish(self, proof_s: float | None) -> SearchResult:
        if self.layout is None or self.evaluation is None:
            if self.clock.over:
                raise NoLayoutInTime("the time limit came before the first verified layout")
            raise NoFeasibleLayout(
                "no layout was found: every shape that its bound allows misses a target or HBM "
                "once its experts and layers are placed",
                proven=False,
            )
        cost = self.best_cost
        if self.bound > cost * (1 + ROUNDING):
            raise VerificationError("the bound is above the cost of a feasible layout")
        bound = min(self.bound, cost)
        words = covers(self.instance, self.classes, self.shapes)
        return SearchResult(
            status="optimal" if self.gap <= max(self.target, ROUNDING) else "feasible",
            layout=self.layout,
            evaluation=self.evaluation,
            certificate=Certificate(bound * self.to_usd, cost / bound - 1.0, words),
            wall_s=self.clock.elapsed_s,
            first_layout_s=self.first_s,
            proof_s=proof_s,
            shapes=len(self.shapes),
            trajectory=tuple(self.trajectory),
            skew_cost=self._skew_cost(),
        )

    def _skew_cost(self) -> float:
        """What uneven expert load costs: the answer's cost over that of the same fleet balanced.

        Balanced means that every chip of a stage gets the same share of the routed tokens; the
        batches are the largest that each shape then allows.
        """
        fleet = self.best_fleet
        if fleet is None or self.instance.operations.moe is None:
            return 0.0
        rates = {
            row: self.pricer.balanced(self.shapes, row, int(self.bounds.per_rank[row]))
            for row in fleet.shapes
        }
        stands = [
            (replace(item, requests_per_s=max(rates[item.shape], item.requests_per_s)), pools)
            for item, pools in fleet.stands
        ]
        even = fleet_of(stands, self.classes, self.question.links)
        cost = self.question.cost_per_request(even.requests_per_s, even.usd_per_hour)
        return max(0.0, self.best_cost / cost - 1.0) if cost > 0 else 0.0

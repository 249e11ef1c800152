"""The search: best-first over fleets of bounded shapes until the gap asked for is proven.

1. Bound every shape (:mod:`solver.pricing`). 2. Find the best fleet under the bounds: its cost is a
proven bound. 3. Realise the shapes in it, which lowers their bounds to what placement really
allows. 4. The best fleet of realised shapes, assembled on named chips and judged by the evaluator,
is the incumbent. Repeat from 2 until incumbent and bound are close enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from costmodel.evaluate import Evaluation, evaluate
from costmodel.instance import Instance
from costmodel.layout import Layout
from solver.assemble import assemble
from solver.certificate import Certificate, covers
from solver.clock import Clock
from solver.explain import why_nothing_fits
from solver.fleet import Fleet, FleetAnswer, Question, solve_fleet
from solver.items import Items
from solver.pools import pool_classes
from solver.pricing import Pricer
from solver.realise import Realised, Realiser
from solver.shapes import enumerate_shapes
from topology.errors import NoFeasibleLayout, NoLayoutInTime, VerificationError

#: the evaluator may differ from the solver's own sums by this much, relatively
_ROUNDING = 1e-6


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


@dataclass
class _State:
    """What a search knows so far; costs per (request/s) and hour."""

    bound: float = 0.0
    best_cost: float = float("inf")
    layout: Layout | None = None
    evaluation: Evaluation | None = None
    first_s: float = 0.0
    proof_s: float | None = None
    realised: dict[int, Realised] = field(default_factory=dict)
    trajectory: list[Progress] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """Incumbent over bound, minus 1."""
        if self.bound <= 0 or self.best_cost == float("inf"):
            return float("inf")
        return max(0.0, self.best_cost / self.bound - 1.0)


def search(
    instance: Instance,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Best verified layout of an instance, with a proven bound.

    Raises ``NoFeasibleLayout`` (with an explanation) where nothing fits, ``NoLayoutInTime`` where
    the clock ran out before the first verified layout, ``VerificationError`` on a bug.
    """
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    pricer = Pricer(instance, classes)
    bounds = pricer.bounds(shapes)
    items = Items(shapes, bounds.requests_per_s, classes)
    question = Question(
        whole=instance.scenario.pay == "whole",
        whole_usd_per_hour=sum(len(c.pools) * c.size * c.chip.usd_per_hour for c in classes),
        rate=instance.scenario.rate,
    )
    realiser = Realiser(instance, shapes, pricer, clock, seed)
    state = _State()
    to_usd = _usd_per_m_output(instance)

    def report(doing: str) -> None:
        found = state.best_cost < float("inf")
        progress = Progress(
            elapsed_s=clock.elapsed_s,
            incumbent=state.best_cost * to_usd if found else None,
            bound=state.bound * to_usd if state.bound > 0 else None,
            gap=state.gap if found and state.bound > 0 else None,
            doing=doing,
        )
        state.trajectory.append(progress)
        if on_progress is not None:
            on_progress(progress)

    report(f"{len(shapes)} shapes bounded")
    while True:
        answer = _fleet(items, classes, question, clock, seed)
        state.bound = max(state.bound, min(answer.bound, state.best_cost))
        if answer.fleet is None and state.layout is None:
            if clock.over:
                raise NoLayoutInTime("the time limit came before the first layout")
            raise NoFeasibleLayout(why_nothing_fits(instance, classes, shapes, bounds, question))
        wanted = answer.fleet.shapes if answer.fleet is not None else set()
        fresh = sorted(wanted - set(state.realised))
        for row in fresh:
            if clock.over and state.layout is not None:
                break
            found = realiser.realise(row, int(bounds.per_rank[row]))
            state.realised[row] = found
            items.tighten(row, found.upper_requests_per_s)
        _improve(instance, state, items, classes, question, clock, seed)
        report(f"{len(state.realised)} shapes placed")
        if state.gap <= gap:
            state.proof_s = clock.elapsed_s
            break
        if clock.over or not fresh:
            break
    return _finish(instance, state, shapes, classes, clock, gap, to_usd)


def _fleet(
    items: Items,
    classes: tuple,
    question: Question,
    clock: Clock,
    seed: int,  # type: ignore[type-arg]
) -> FleetAnswer:
    limit = 12.0 if clock.remaining_s == float("inf") else max(0.2, clock.remaining_s / 2)
    return solve_fleet(
        items.best(), classes, question, clock=clock, time_limit_s=min(12.0, limit), seed=seed
    )


def _improve(
    instance: Instance,
    state: _State,
    items: Items,
    classes: tuple,  # type: ignore[type-arg]
    question: Question,
    clock: Clock,
    seed: int,
) -> None:
    """Make the best fleet of realised shapes the incumbent, if the evaluator agrees it is better."""
    achieved = np.zeros_like(items.upper)
    for row, found in state.realised.items():
        achieved[row] = found.requests_per_s
    limit = 6.0 if clock.remaining_s == float("inf") else max(0.2, clock.remaining_s / 2)
    answer = solve_fleet(
        items.best(achieved),
        classes,
        question,
        clock=clock,
        time_limit_s=min(6.0, limit),
        seed=seed,
    )
    if answer.fleet is None:
        return
    cost = question.cost_per_request(answer.fleet.requests_per_s, answer.fleet.usd_per_hour)
    if cost >= state.best_cost * (1 - 1e-12):
        return
    layout = assemble(instance, answer.fleet, state.realised)
    evaluation = evaluate(instance, layout)
    judged = verify(instance, question, answer.fleet, cost, evaluation)
    if judged < state.best_cost:
        if state.layout is None:
            state.first_s = clock.elapsed_s
        state.best_cost, state.layout, state.evaluation = judged, layout, evaluation


def verify(
    instance: Instance, question: Question, fleet: Fleet, cost: float, evaluation: Evaluation
) -> float:
    """Cost per request by the evaluator. Raises ``VerificationError`` where it contradicts the solver."""
    if evaluation.violations:
        listed = "; ".join(str(violation) for violation in evaluation.violations[:3])
        raise VerificationError(f"the evaluator rejects the solver's layout: {listed}")
    assert evaluation.usd_per_m_output_tokens is not None
    judged = evaluation.usd_per_m_output_tokens / _usd_per_m_output(instance)
    if judged > cost * (1 + _ROUNDING):
        raise VerificationError(
            f"the evaluator finds a cost {judged / cost - 1:.3%} above what the solver claimed "
            f"({len(fleet.stands)} replicas)"
        )
    return judged


def _usd_per_m_output(instance: Instance) -> float:
    """$/M output tokens of one dollar per hour and (request per second)."""
    factor = instance.scenario.prices.chip_price_factor
    return factor / 3600.0 / instance.workload.output_tokens * 1e6


def _finish(
    instance: Instance,
    state: _State,
    shapes,  # type: ignore[no-untyped-def]
    classes,  # type: ignore[no-untyped-def]
    clock: Clock,
    gap: float,
    to_usd: float,
) -> SearchResult:
    if state.layout is None or state.evaluation is None:
        if clock.over:
            raise NoLayoutInTime("the time limit came before the first verified layout")
        raise NoFeasibleLayout("no shape that its bound allows can be placed")
    cost = state.best_cost
    if state.bound > cost * (1 + _ROUNDING):
        raise VerificationError("the bound is above the cost of a feasible layout")
    bound = min(state.bound, cost)
    return SearchResult(
        status="optimal" if state.gap <= gap else "feasible",
        layout=state.layout,
        evaluation=state.evaluation,
        certificate=Certificate(
            bound * to_usd, cost / bound - 1.0, covers(instance, classes, shapes)
        ),
        wall_s=clock.elapsed_s,
        first_layout_s=state.first_s,
        proof_s=state.proof_s,
        shapes=len(shapes),
        trajectory=tuple(state.trajectory),
    )

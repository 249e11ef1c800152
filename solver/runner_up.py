"""The runner-up: the cheapest layout found that is built differently, to see what the choice is worth.

*Built differently.* A layout's main shape is that on which most of the chips that generate tokens stand
(decode and mixed replicas). Two shapes are alike
if they have one role and their tensor, pipeline and stage widths (chips of a stage, over which a MoE model's experts
lie whole or cut) are within a quarter of each other. The runner-up has no replica like the main shape of the best
layout; batches, placements, counts and the other pools may be the same.

It is looked for as the best one was, in a few rounds: the best fleet under the bounds that are left, those
shapes of it placed that were not yet, and again; then the best fleet of placed shapes, judged by the evaluator.
The least that any such layout costs is proven by the same relaxation as the certificate's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import evaluate
from solver.answer import MainShape, RunnerUp, SearchResult
from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.certificate import Certificate
from solver.fleet.asked import Fleet
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.place.mend import mended
from solver.rounds import Search
from solver.shapes.shapes import ROLES, ShapeTable
from solver.verify import better, verify

_PREFILL = ROLES.index("prefill")
#: widths of like shapes, the larger over the smaller at most
_ALIKE = 1.25
#: rounds of placing shapes for it. No time: the same seed gives the same runner-up
_LOOKS = 3
#: times that a runner-up may become the answer
_SWAPS = 3
#: rounds of the relaxation: every one bounds
_ROUNDS = 10
#: seconds for a fleet of few shapes
_FLEET_S = 0.4
#: gap of the fleet that says which shapes to place
_ROUGH = 0.01


def main_shape(shapes: ShapeTable, fleet: Fleet) -> MainShape:
    """The generating shape with most chips; of equals the first in the table."""
    chips: Counter[MainShape] = Counter()
    for item, _ in sorted(fleet.stands, key=lambda stand: stand[0].shape):
        if item.role != _PREFILL:
            chips[_widths(shapes, item.shape)] += item.chips
    return max(chips, key=lambda shape: chips[shape])


def _widths(shapes: ShapeTable, index: int) -> MainShape:
    row = shapes.row(index)
    return MainShape(ROLES[row["role"]], row["tp"], row["pp"], row["tp"] * row["attention_dp"])


def like(shapes: ShapeTable, main: MainShape) -> NDArray[np.bool_]:
    """Which rows of a shape table are like a main shape."""
    found = shapes.role == ROLES.index(main.role)
    for widths, width in (
        (shapes.tp, main.tp),
        (shapes.pp, main.pp),
        (shapes.stage_chips, main.stage_chips),
    ):
        found &= np.maximum(widths, width) <= _ALIKE * np.minimum(widths, width)
    return np.asarray(found)


def with_runner_up(search: Search, found: SearchResult, *, proven: bool = True) -> SearchResult:
    """A search's answer with its runner-up, where there is one and time to look for it.

    A runner-up that turns out better (cheaper by less than the gap that was proven, or as dear and faster)
    becomes the answer, whose own runner-up is then looked for. ``proven``: the search covered all there is, so
    that what it bounds is a bound.
    """
    for _ in range(_SWAPS):
        if search.clock.over or search.best_fleet is None:
            break
        looked = _look(search)
        if looked is None:
            break
        other, fleet = looked
        if not better(other.evaluation, found.evaluation):
            if not proven:
                other = replace(other, least_usd_per_m_output_tokens=None)
            found = replace(found, runner_up=other)
            break
        search.best_fleet = fleet
        search.best_cost = verify(search.instance, float("inf"), other.evaluation)
        found = _answered(found, other, search.imbalance())
    return replace(found, wall_s=search.clock.elapsed_s)


def _answered(found: SearchResult, other: RunnerUp, skew_cost: float) -> SearchResult:
    """The runner-up as the answer."""
    cost = other.evaluation.usd_per_m_output_tokens
    assert cost is not None
    bound = min(found.certificate.bound_usd_per_m_output_tokens, cost)
    certificate = Certificate(bound, cost / bound - 1.0, found.certificate.covers)
    return replace(
        found, layout=other.layout, evaluation=other.evaluation, certificate=certificate,
        skew_cost=skew_cost,
    )  # fmt: skip


def _look(search: Search) -> tuple[RunnerUp, Fleet] | None:
    """The runner-up of the search's best fleet, and its own fleet."""
    assert search.best_fleet is not None
    main = main_shape(search.shapes, search.best_fleet)
    other = ~like(search.shapes, main)
    upper = np.where(other, search.items.upper, 0.0)
    for _ in range(_LOOKS):
        wanted = _fleet(search, _bounded(search, upper), _ROUGH)
        if wanted is None:
            return None
        fresh = sorted(wanted.shapes - set(search.placed.realised))
        if not fresh:
            break
        search.place(fresh)
        if search.clock.over:
            return None
        for row in fresh:
            upper[row] = min(upper[row], search.placed.realised[row].upper_requests_per_s)
    fleet = _fleet(search, search.placed.achieved(other), search.target)
    if fleet is None:
        return None
    layout = assemble(search.instance, fleet, search.placed)
    evaluation = evaluate(search.instance, layout)
    claimed = search.question.cost_of(fleet) if search.regular else float("inf")
    if evaluation.violations:
        left = mended(search.instance, layout, evaluation)
        if left is None and not search.regular:
            return None
        if left is not None:
            (layout, evaluation), claimed = left, float("inf")
    verify(search.instance, claimed, evaluation)
    least = _least(search, _bounded(search, upper))
    return RunnerUp(layout, evaluation, main, least * search.to_usd), fleet


def _bounded(search: Search, upper: NDArray[np.float64]) -> list[Item]:
    """Items by the bounds that are left."""
    return search.items.best(upper, np.minimum(upper, search.items.leaving))


def _least(search: Search, items: list[Item]) -> float:
    """What any fleet of the items costs per request at least."""
    question, classes = search.question, search.classes
    if question.whole and question.rate is None:
        rate, _ = rate_bound(items, classes, question.links, rounds=_ROUNDS)
        return question.whole_usd_per_hour / rate if rate > 0 else float("inf")
    return cost_per_rate_bound(items, classes, question.links, question.rate)


def _fleet(search: Search, items: list[Item], gap: float) -> Fleet | None:
    """The best fleet of few items within a gap."""
    return solve_fleet(
        items, search.classes, search.question, clock=search.clock,
        time_limit_s=_FLEET_S, seed=search.seed,
        accept_gap=gap,
    ).fleet  # fmt: skip

"""The runner-up: the cheapest layout found that is built differently, to see what the choice is worth.

*Built differently.* A layout's main shape is that on which most of the chips that generate tokens stand
(decode and mixed replicas). Two shapes are alike
if they have one role and their tensor, pipeline and stage widths (chips of a stage: the expert ways of a MoE
model) are within a quarter of each other. The runner-up has no replica like the main shape of the best
layout; batches, placements, counts and the other pools may be the same.

It is looked for as the best one was, for about a second: the best fleet under the bounds that are left, those
shapes of it placed that were not yet, and again; then the best fleet of placed shapes, judged by the evaluator.
The least that any such layout costs is proven by the same relaxation as the certificate's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from solver.bounds.apart import cost_per_rate_bound, rate_bound
from solver.certificate import Certificate
from solver.fleet.asked import Fleet
from solver.fleet.best import solve_fleet
from solver.fleet.items import Item
from solver.place.assemble import assemble
from solver.search import Search, SearchResult
from solver.shapes.shapes import ROLES, ShapeTable
from solver.verify import verify

_PREFILL = ROLES.index("prefill")
#: widths of like shapes, the larger over the smaller at most
_ALIKE = 1.25
#: seconds to look for it, and of what the search took
_LOOK_S = 1.0
_LOOK_SHARE = 0.25
#: rounds of the relaxation: every one bounds
_ROUNDS = 10
#: seconds for a fleet of few shapes
_FLEET_S = 0.4
#: gap of the fleet that says which shapes to place
_ROUGH = 0.01


@dataclass(frozen=True)
class MainShape:
    """Role and widths of the shape that most generating chips of a layout stand on."""

    role: str
    tp: int
    pp: int
    stage_chips: int

    def words(self, *, experts: bool) -> str:
        """``decode replicas like tp 1 ep 16``."""
        wide = f" ep {self.stage_chips}" if experts else ""
        piped = f" pp {self.pp}" if self.pp > 1 else ""
        return f"{self.role} replicas like tp {self.tp}{wide}{piped}"


@dataclass(frozen=True)
class RunnerUp:
    """The cheapest layout found that has no replica like the best one's main shape.

    ``least_usd_per_m_output_tokens``: no such layout of the search space costs less (``None``: not proven).
    """

    layout: Layout
    evaluation: Evaluation
    without: MainShape
    least_usd_per_m_output_tokens: float | None


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

    A runner-up that turns out cheaper (by less than the gap that was proven) becomes the answer, and the
    answer its runner-up. ``proven``: the search covered all there is, so that what it bounds is a bound.
    """
    if search.clock.over or search.best_fleet is None:
        return found
    answer = _look(search, found)
    if answer is not None and not proven:
        answer = replace(answer, least_usd_per_m_output_tokens=None)
    return replace(_swapped(found, answer) if answer else found, wall_s=search.clock.elapsed_s)


def _swapped(found: SearchResult, answer: RunnerUp) -> SearchResult:
    """The cheaper of both as the answer."""
    best, other = (
        one.evaluation.usd_per_m_output_tokens or float("inf") for one in (found, answer)
    )
    if other >= best:
        return replace(found, runner_up=answer)
    bound = found.certificate.bound_usd_per_m_output_tokens
    return replace(
        found,
        layout=answer.layout,
        evaluation=answer.evaluation,
        certificate=Certificate(min(bound, other), max(0.0, other / bound - 1.0), found.certificate.covers),
        runner_up=replace(
            answer, layout=found.layout, evaluation=found.evaluation,
            least_usd_per_m_output_tokens=None,
        ),
    )  # fmt: skip


def _look(search: Search, found: SearchResult) -> RunnerUp | None:
    assert search.best_fleet is not None
    main = main_shape(search.shapes, search.best_fleet)
    other = ~like(search.shapes, main)
    upper = np.where(other, search.items.upper, 0.0)
    until = search.clock.elapsed_s + max(_LOOK_S, _LOOK_SHARE * search.clock.elapsed_s)
    while search.clock.elapsed_s < until:
        wanted = _fleet(
            search, search.items.best(upper, np.minimum(upper, search.items.leaving)), _ROUGH
        )
        if wanted is None:
            return None
        fresh = sorted(wanted.shapes - set(search.placed.realised))
        for row in fresh:
            if search.clock.over:
                return None
            search.placed.place(row, int(search.bounds.per_rank[row]))
        if not fresh:
            break
        for row in fresh:
            upper[row] = min(upper[row], search.placed.realised[row].upper_requests_per_s)
    fleet = _fleet(search, search.placed.achieved(other), search.target)
    if fleet is None:
        return None
    layout = assemble(search.instance, fleet, search.placed)
    evaluation = evaluate(search.instance, layout)
    if not search.regular and evaluation.violations:
        return None  # its replicas would stand too far apart
    claimed = search.question.cost_per_request(fleet.requests_per_s, fleet.usd_per_hour)
    verify(search.instance, claimed if search.regular else float("inf"), evaluation)
    least = _least(search, search.items.best(upper, np.minimum(upper, search.items.leaving)))
    return RunnerUp(layout, evaluation, main, least * search.to_usd)


def _least(search: Search, items: list[Item]) -> float:
    """What any fleet of the items costs per request at least."""
    question, classes = search.question, search.classes
    if question.whole and question.rate is None:
        rate, _ = rate_bound(items, classes, question.links, rounds=_ROUNDS)
        return question.whole_usd_per_hour / rate if rate > 0 else float("inf")
    return cost_per_rate_bound(items, classes, question.links)


def _fleet(search: Search, items: list[Item], gap: float) -> Fleet | None:
    """The best fleet of few items within a gap."""
    return solve_fleet(
        items, search.classes, search.question, clock=search.clock,
        time_limit_s=_FLEET_S, seed=search.seed,
        accept_gap=gap,
    ).fleet  # fmt: skip

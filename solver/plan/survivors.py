"""Layouts that keep a rate after a loss as columns of a plan: on how many units they are worth a search, and plans with them.

Which numbers of units are worth it is told by plans in which such a layout keeps what is likely of what none keeps more than. The number
whose plan costs least is searched, then the next, as long as a plan is likely to cost less than with those that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from costmodel.plan.hours import Column, Hours
from costmodel.plan.question import PlanQuestion
from solver.clock import Clock
from solver.plan.groups import Start
from solver.plan.hours import Planned, plan_hours
from solver.plan.offers import Offers
from solver.plan.surviving import surviving
from solver.plan.units import Offer
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: searches for a model on a kind at most; money that a plan has to save for one, as a part of it
_SEARCHES, _SAVES = 2, 0.004
#: share of the time that is left, at most
_TIME = 0.3
#: share of what none keeps more than that a layout is likely to keep
_LIKELY = 0.85
#: where one unit alone carries so much of what the best group carries per unit, little is lost with it
_ALONE = 0.8


def plan_kept(asked: Hours, *, clock: Clock, seed: int) -> Planned:
    """The cheapest plan found, begun with the best of those with fewer columns where groups keep a part after a loss or share units.

    Raises what :func:`solver.plan.hours.plan_hours` raises.
    """
    keep = [index for index, one in enumerate(asked.columns) if one.after_loss]
    more = [index for index, one in enumerate(asked.columns) if one.after_loss or one.shared]
    plain = [index for index in range(len(asked.columns)) if index not in more]
    begun: Planned | None = None
    for chosen in [plain, *([*_beside(asked, plain, one), one] for one in keep)] if more else []:
        columns = tuple(asked.columns[index] for index in chosen)
        if {one.model for one in columns} != set(range(len(asked.models))):
            continue
        with suppress(NoFeasibleLayout, NoLayoutInTime):
            found = plan_hours(replace(asked, columns=columns), clock=clock, seed=seed)
            if begun is None or found.judged.usd < begun.judged.usd:
                groups = tuple(
                    _widened(row, chosen, len(asked.columns)) for row in found.plan.groups
                )
                begun = replace(found, plan=replace(found.plan, groups=groups))
    known = None if begun is None else begun.plan
    return plan_hours(asked, clock=clock, seed=seed, begun=known, thorough=True)


def _beside(asked: Hours, plain: list[int], kept: int) -> list[int]:
    """Columns that are planned with one whose groups keep a part: of the same model and kind the smallest groups alone."""
    own = asked.columns[kept]
    alike = [
        index
        for index in plain
        if (asked.columns[index].model, asked.columns[index].kind) == (own.model, own.kind)
    ]
    smallest = min(alike, key=lambda index: asked.columns[index].group, default=None)
    return [index for index in plain if index not in alike or index == smallest]


def _widened(row: tuple[int, ...], chosen: list[int], columns: int) -> tuple[int, ...]:
    """Groups of all columns, of which a plan had those chosen."""
    found = [0] * columns
    for index, groups in zip(chosen, row, strict=True):
        found[index] = groups
    return tuple(found)


def with_survivors(
    asked: PlanQuestion,
    hours: Hours,
    offers: Offers,
    off: list[int],
    *,
    clock: Clock,
    gap: float,
    seed: int,
    on_progress: Callable[[str], None],
) -> Offers:
    """The offers, with layouts that keep a rate after the loss of a unit where plans with them are likely to cost less.

    Of models with traffic, where any one unit may be lost.
    """
    if hours.spare != 1 or any(kind.size != 1 for kind in hours.kinds):
        return offers
    found = dict(offers)
    start = Start(asked.load_from, asked.load_extra)
    best: float | None = None
    clock = clock.follower(_TIME)  # the plan itself needs time, too
    for (m, k), one in offers.items():
        if asked.models[m].traffic is None or not _worth(one):
            continue
        with suppress(NoFeasibleLayout, NoLayoutInTime):
            best = best or plan_hours(hours, clock=clock, seed=seed).judged.usd
            likely = {
                column.group: _likely_usd(hours, column, clock, seed)
                for column in _likely(hours, m, k, one)
            }
            for number in sorted(likely, key=lambda own: likely[own])[:_SEARCHES]:
                if likely[number] > best * (1.0 - _SAVES) or clock.over:
                    break
                units = asked.units[k]
                on_progress(f"{asked.models[m].called} on {number} {units.called}, any one lost")
                layout = surviving(
                    asked.models[m], units, number, off[k], start, _chunk(one), clock=clock, gap=gap, seed=seed,
                )  # fmt: skip
                if layout is None:
                    continue
                found[m, k] = replace(found[m, k], layouts=(*found[m, k].layouts, layout))
                column = Column(
                    "kept", m, k, number, (0.0, layout.requests_per_s), layout.start_s, layout.drain_s,
                    asked.least_hours, layout.after_loss(1),
                )  # fmt: skip
                best = min(best, _likely_usd(hours, column, clock, seed))
    return found


def _worth(one: Offer) -> bool:
    """Whether groups lose much with a unit: several units together carry more than each alone."""
    each = {own.group: own.requests_per_s / own.group for own in one.layouts}
    return (
        len(one.left_of_few) > 2 and bool(each) and each.get(1, 0.0) < _ALONE * max(each.values())
    )


def _chunk(one: Offer) -> int:
    """Prompt tokens that a pass of the largest group takes at most."""
    return one.layouts[-1].instance.scenario.limits.prefill_chunk_tokens


def _likely(hours: Hours, m: int, k: int, one: Offer) -> Iterator[Column]:
    """A column of each number of units that some hour asks for, of what its layout is likely to keep."""
    like = one.layouts[-1]
    numbers = set[int]()
    for wanted in hours.demand[m]:
        enough = [n for n, left in enumerate(one.left_of_few) if _LIKELY * left >= wanted > 0.0]
        numbers |= set(enough[:1])
    least = min((own.least_hours for own in hours.columns), default=1)
    for number in sorted(numbers):
        whole, left = (_LIKELY * own[number] for own in (one.most_of_few, one.left_of_few))
        yield Column(
            "likely", m, k, number, (0.0, whole), like.start_s, like.drain_s, least, (0.0, left)
        )


def _likely_usd(hours: Hours, column: Column, clock: Clock, seed: int) -> float:
    """Money of the plan with one more column, beside the smallest groups of its model and kind; infinite where there is none."""
    more = replace(hours, columns=(*hours.columns, column))
    chosen = _beside(more, list(range(len(hours.columns))), len(hours.columns))
    columns = (*(hours.columns[index] for index in chosen), column)
    try:
        return plan_hours(replace(hours, columns=columns), clock=clock, seed=seed).judged.usd
    except (NoFeasibleLayout, NoLayoutInTime):
        return float("inf")

"""Layouts that keep a rate after a loss as columns of a plan: on how many units they are worth a search, and plans with them.

Which numbers of units are worth it is told by plans in which such a layout keeps what is likely of what none keeps more than. The number
whose plan costs least is searched, then the next, as long as a plan is likely to cost less than with those that were found. Where one unit
serves alone, a few are laid out together if the bound says that each may then carry more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf

from costmodel.plan.hours import Column, Hours
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from solver.clock import Clock
from solver.plan.groups import Start, UnitLayout
from solver.plan.hours import Planned, plan_hours
from solver.plan.offers import Offers
from solver.plan.surviving import surviving
from solver.plan.units import MORE, Offer
from topology import load_cluster
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: searches for a model on a kind at most; money that a plan has to save for one, as a part of it
_SEARCHES, _SAVES = 3, 0.004
#: share of the time that is left, at most
_TIME = 0.3
#: share of what none keeps more than that a layout is likely to keep, until one was found
_LIKELY = 0.75
#: where one unit alone carries so much of what the best group carries per unit, little is lost with it
_ALONE = 0.8
#: units that are looked at together at most where one alone serves, and chips: more of them hold both roles in any ratio
_TOGETHER, _TOGETHER_CHIPS = 4, 32


def plan_kept(asked: Hours, *, clock: Clock, seed: int) -> Planned:
    """The cheapest plan found, begun with the best of those with fewer columns where groups keep a part after a loss or share units.

    Raises what :func:`solver.plan.hours.plan_hours` raises.
    """
    keep = [index for index, one in enumerate(asked.columns) if one.after_loss]
    more = [index for index, one in enumerate(asked.columns) if one.after_loss or one.shared]
    plain = [index for index in range(len(asked.columns)) if index not in more]
    begun: Planned | None = None

    def begin(chosen: list[int]) -> float:
        nonlocal begun
        columns = tuple(asked.columns[index] for index in chosen)
        if {one.model for one in columns} != set(range(len(asked.models))):
            return inf
        try:
            found = plan_hours(replace(asked, columns=columns), clock=clock, seed=seed)
        except (NoFeasibleLayout, NoLayoutInTime):
            return inf
        if begun is None or found.judged.usd < begun.judged.usd:
            groups = tuple(_widened(row, chosen, len(asked.columns)) for row in found.plan.groups)
            begun = replace(found, plan=replace(found.plan, groups=groups))
        return found.judged.usd

    if more:
        begin(plain)
    # of each model on each kind that whose plan is the cheapest, alone and then together
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for one in keep:
        usd = begin([*_beside(asked, plain, [one]), one])
        where = asked.columns[one].model, asked.columns[one].kind
        best[where] = min(best.get(where, (inf, one)), (usd, one))
    if len(best) > 1:
        chosen = [one for _, one in best.values()]
        begin(sorted([*_beside(asked, plain, chosen), *chosen]))
    known = None if begun is None else begun.plan
    return plan_hours(asked, clock=clock, seed=seed, begun=known, thorough=True)


def _beside(asked: Hours, plain: list[int], kept: list[int]) -> list[int]:
    """Columns that are planned with some whose groups keep a part: of the same model and kind the smallest groups alone."""
    wheres = {(asked.columns[one].model, asked.columns[one].kind) for one in kept}
    found = []
    for index in plain:
        own = asked.columns[index]
        alike = [
            asked.columns[other].group
            for other in plain
            if (asked.columns[other].model, asked.columns[other].kind) == (own.model, own.kind)
        ]
        if (own.model, own.kind) not in wheres or own.group == min(alike):
            found.append(index)
    return found


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
        if asked.models[m].traffic is None:
            continue
        if not _worth(one):
            units = asked.units[k]
            if numbers := _few_more(one, units):
                on_progress(f"{asked.models[m].called} on a few {units.called}, any one lost")
                more = _together(
                    asked.models[m], units, numbers, one, off[k], start, clock=clock, gap=gap, seed=seed,
                )  # fmt: skip
                found[m, k] = one.having(more)
            continue
        with suppress(NoFeasibleLayout, NoLayoutInTime):
            best = best or plan_hours(hours, clock=clock, seed=seed).judged.usd
            share, searched = _LIKELY, set[int]()
            for _ in range(_SEARCHES):
                likely = {
                    column.group: _likely_usd(hours, column, clock, seed)
                    for column in _likely(hours, m, k, one, share)
                    if column.group not in searched
                }
                number = min(likely, key=lambda own: likely[own], default=0)
                if not number or likely[number] > best * (1.0 - _SAVES) or clock.over:
                    break
                searched.add(number)
                units = asked.units[k]
                on_progress(f"{asked.models[m].called} on {number} {units.called}, any one lost")
                layout = surviving(
                    asked.models[m], units, number, off[k], start, one.layouts[-1].instance, clock=clock, gap=gap, seed=seed,
                )  # fmt: skip
                if layout is None:
                    continue
                # of as many units the same share of what none exceeds
                share = layout.left_requests_per_s / one.left_of_few[number]
                found[m, k] = found[m, k].having((layout,))
                column = Column(
                    "kept", m, k, number, (0.0, layout.requests_per_s), layout.start_s, layout.drain_s,
                    asked.least_hours, layout.after_loss(1),
                )  # fmt: skip
                best = min(best, _likely_usd(hours, column, clock, seed))
    return found


def _few_more(one: Offer, units: PlanUnits) -> range:
    """Numbers of units to look at together: of small ones of which one alone serves, where several may carry more each."""
    alone = _alone(one)
    if not alone or one.most_requests_per_s <= alone * MORE:
        return range(0)
    room = _TOGETHER_CHIPS // len(load_cluster(units.cluster).chips)
    return range(2, min(_TOGETHER, room, units.count - 1) + 1)


def _alone(one: Offer) -> float:
    """Requests/s of one unit alone; 0 where none serves alone."""
    return next((own.requests_per_s for own in one.layouts if own.group == 1), 0.0)


def _together(
    model: PlanModel,
    units: PlanUnits,
    numbers: range,
    one: Offer,
    off: int,
    start: Start,
    *,
    clock: Clock,
    gap: float,
    seed: int,
) -> tuple[UnitLayout, ...]:
    """The layout of a few units that carries most each, if more than one alone: its replicas of each role are nearer what requests ask for.

    It keeps what the other units have after a loss. Empty where none is found.
    """
    best: UnitLayout | None = None
    for number in numbers:
        with suppress(NoFeasibleLayout, NoLayoutInTime):
            found = surviving(
                model,
                units,
                number,
                off,
                start,
                one.layouts[-1].instance,
                clock=clock,
                gap=gap,
                seed=seed,
            )
            least = _alone(one) * MORE if best is None else best.requests_per_s / best.group
            if found is not None and found.requests_per_s > number * least:
                best = found
    return () if best is None else (best,)


def _worth(one: Offer) -> bool:
    """Whether groups lose much with a unit: several units together carry more than each alone."""
    each = {own.group: own.requests_per_s / own.group for own in one.layouts}
    return (
        len(one.left_of_few) > 2 and bool(each) and each.get(1, 0.0) < _ALONE * max(each.values())
    )


def _likely(hours: Hours, m: int, k: int, one: Offer, share: float) -> Iterator[Column]:
    """A column of each number of units that some hour asks for, of such a share of what its layout keeps at most."""
    like = one.layouts[-1]
    numbers = set[int]()
    for wanted in hours.demand[m]:
        enough = [n for n, left in enumerate(one.left_of_few) if share * left >= wanted > 0.0]
        numbers |= set(enough[:1])
    least = min((own.least_hours for own in hours.columns), default=1)
    for number in sorted(numbers):
        whole, left = (share * own[number] for own in (one.most_of_few, one.left_of_few))
        yield Column(
            "likely", m, k, number, (0.0, whole), like.start_s, like.drain_s, least, (0.0, left)
        )


def _likely_usd(hours: Hours, column: Column, clock: Clock, seed: int) -> float:
    """Money of the plan with one more column, beside the smallest groups of its model and kind; infinite where there is none."""
    more = replace(hours, columns=(*hours.columns, column))
    chosen = _beside(more, list(range(len(hours.columns))), [len(hours.columns)])
    columns = (*(hours.columns[index] for index in chosen), column)
    try:
        return plan_hours(replace(hours, columns=columns), clock=clock, seed=seed).judged.usd
    except (NoFeasibleLayout, NoLayoutInTime):
        return inf

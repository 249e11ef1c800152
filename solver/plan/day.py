"""``plan_day``: units and what runs on them in every hour, for the least money, with bounds and every layout judged.

1. Searches say what one, two, four units of a kind run for a model (:mod:`solver.plan.offers`). 2. CP-SAT chooses, hour by
hour, how many of them serve (:mod:`solver.plan.hours`); a large question is planned by parts (:mod:`solver.plan.by_parts.region`).
3. Every layout of every hour is evaluated whole, of a large question the most groups of each layout that stand in one cluster;
where many groups carry less together than one by one, the plan is made again with what they carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.plan.hours import Column, Hours
from costmodel.plan.question import PlanQuestion, lost_of, rates_of
from costmodel.question.instance import Instance
from costmodel.tolerance import exceeds
from solver.clock import Clock
from solver.plan.bounds.of_offers import PARTED, WHOLE, Space, bound_of
from solver.plan.groups import UnitLayout, copies, less
from solver.plan.hours import Planned, gap_over
from solver.plan.offers import (
    Offers,
    by_hour,
    columns_of,
    fits_somewhere,
    kinds_of,
    offers_for,
)
from solver.plan.shared import may_share, shared_columns
from solver.plan.survivors import plan_kept, with_survivors
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, VerificationError

#: times that a plan is made again with what groups carry together
_AGAIN = 20
#: share of the time that is left in which parts of units are searched, at most
_SHARED = 0.4
#: numbers of groups to choose from, over all hours and columns, above which a question is large
LARGE = 40_000

#: group of a column on so many units, evaluated
Stood = dict[tuple[int, int], tuple[Instance, Layout, Evaluation]]


@dataclass(frozen=True)
class DayPlan:
    """A plan with its bounds.

    ``mean[model][hour]``: requests/s on average, ``hours.demand`` the highest. ``bound_usd``: no plan of whole units with
    any layouts costs less; ``planned.bound_usd``: none made of the columns. ``stood``: the layouts of every number of
    groups that serves, evaluated. ``target``: the gap of each search. ``space``: which plans
    ``bound_usd`` holds for.
    """

    asked: PlanQuestion
    mean: tuple[tuple[float, ...], ...]
    hours: Hours
    layouts: tuple[UnitLayout, ...]
    offers: Offers
    planned: Planned
    bound_usd: float
    stood: Stood
    target: float
    wall_s: float
    space: Space = WHOLE

    @property
    def gap(self) -> float:
        """Money over the bound over all layouts, less 1; infinite without a bound."""
        return gap_over(self.planned.judged.usd, self.bound_usd)

    @property
    def proven(self) -> bool:
        """Whether the plan is within the gap of the searches of the bound over all layouts."""
        return self.gap <= max(self.target, ROUNDING)

    @property
    def output_tokens(self) -> float:
        """Tokens of all answers in all hours."""
        found = 0.0
        for model, rates in enumerate(self.mean):
            column = self.hours.of_model[model][0]
            tokens = self.layouts[column].instance.workload.output_tokens
            found += sum(rates) * 3600.0 * tokens
        return found


def plan_day(
    asked: PlanQuestion,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Callable[[str], None] = lambda said: None,
) -> DayPlan:
    """The cheapest plan found for a question.

    Parameters
    ----------
    asked
        Models with their requests by hour, units, prices, what may be lost.
    gap
        Gap of each search for a layout.
    jobs
        Searches at a time, each in a process of joblib's backend.
    on_progress
        Told what is done next.

    Raises
    ------
    InstanceError
        Hours do not agree, or a name is unknown.
    NoFeasibleLayout
        A model fits on no unit, or the units do not carry an hour.
    NoLayoutInTime
        The time limit came first.
    """
    may_share(asked)  # before the first search, if it is too large
    offers = offers_for(asked, clock=clock, gap=gap, seed=seed, jobs=jobs, on_progress=on_progress)
    on_progress("hours")
    return plan_offers(asked, offers, clock=clock, gap=gap, seed=seed, on_progress=on_progress)


def plan_offers(
    asked: PlanQuestion,
    offers: Offers,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda said: None,
) -> DayPlan:
    """The cheapest plan found of such offers. Raises what :func:`plan_day` raises."""
    rates = rates_of(asked)
    kinds, off = kinds_of(asked, len(rates[0]))
    fits_somewhere(asked, offers)
    shares = may_share(asked)

    def hours_of(own: Offers) -> tuple[Hours, tuple[UnitLayout, ...]]:
        columns, layouts = columns_of(asked, own, len(rates[0]))
        return Hours(
            tuple(one.called for one in asked.models),
            tuple(tuple(most for _, most in own) for own in rates),
            kinds,
            columns,
            spare=lost_of(asked)[0],
            usd_per_kwh=by_hour(asked.usd_per_kwh, len(rates[0])) if asked.usd_per_kwh else (),
            power_cap_w=asked.power_cap,
        ), layouts

    hours, layouts = hours_of(offers)
    large = hours.choices > LARGE
    if not large:
        offers = with_survivors(
            asked, hours, offers, off, clock=clock, gap=gap, seed=seed, on_progress=on_progress
        )
        hours, layouts = hours_of(offers)
    if shares := shares and not large:
        own = shared_columns(
            asked, hours, off, clock=clock.follower(_SHARED), gap=gap, seed=seed, on_progress=on_progress
        )  # fmt: skip
        hours, layouts = replace(hours, columns=hours.columns + own.columns), layouts + own.layouts
        offers = own.no_less(offers)
    hours, planned, stood = _planned(
        asked, hours, layouts, off, _planner(hours, clock, seed, on_progress)
    )
    on_progress("bound over any layouts")
    space = PARTED if shares else WHOLE
    bound = bound_of(asked, hours, offers, off, space, large=large, clock=clock, seed=seed)
    if bound > planned.judged.usd * (1 + ROUNDING):
        raise VerificationError(
            f"the bound ${bound:,.4f} is above a plan that costs ${planned.judged.usd:,.4f}"
        )
    return DayPlan(
        asked,
        tuple(tuple(mean for mean, _ in own) for own in rates),
        hours,
        layouts,
        offers,
        planned,
        min(bound, planned.judged.usd),
        stood,
        gap,
        clock.elapsed_s,
        space,
    )


def planned_again(
    found: DayPlan, columns: tuple[Column, ...], *, clock: Clock, seed: int = 0
) -> DayPlan:
    """The cheapest plan of the same layouts that count for what ``columns`` say; bounds over any layouts stay.

    Raises what :func:`plan_day` raises.
    """
    hours = replace(found.hours, columns=columns)
    _, off = kinds_of(found.asked, hours.hours)
    plan = _planner(hours, clock, seed)
    hours, planned, stood = _planned(found.asked, hours, found.layouts, off, plan)
    return replace(found, hours=hours, planned=planned, stood=stood, wall_s=clock.elapsed_s)


def _planner(
    hours: Hours,
    clock: Clock,
    seed: int,
    on_progress: Callable[[str], None] = lambda said: None,
) -> Callable[[Hours], Planned]:
    """Plans at once, or by parts where the question is large."""
    if hours.choices <= LARGE:
        return lambda own: plan_kept(own, clock=clock, seed=seed)
    # only large questions pay for what plans by parts
    from solver.plan.by_parts.region import plan_region

    return lambda own: plan_region(own, clock=clock, seed=seed, on_progress=on_progress)


def _planned(
    asked: PlanQuestion,
    hours: Hours,
    layouts: tuple[UnitLayout, ...],
    off: list[int],
    plan: Callable[[Hours], Planned],
) -> tuple[Hours, Planned, Stood]:
    """The plan whose layouts carry, evaluated whole, what it counts on; of a large question the most groups alone."""
    stood: Stood = {}
    every = hours.choices <= LARGE
    for _ in range(_AGAIN):
        planned = plan(hours)
        tables = [list(column.requests_per_s) for column in hours.columns]
        lost = [list(column.after_loss) for column in hours.columns]
        used = {(c, n) for row in planned.plan.groups for c, n in enumerate(row) if n}
        if not every:
            used = _most(used, layouts)
        for c, n in sorted(used):
            if (c, n) not in stood:
                kind = hours.columns[c].kind
                instance, layout = copies(layouts[c], n, asked.units[kind].cluster, off[kind])
                stood[c, n] = instance, layout, evaluate(instance, layout)
            evaluation = stood[c, n][2]
            share = layouts[c].requests_per_s / layouts[c].steady_requests_per_s
            carried = (evaluation.requests_per_s or 0.0) * share
            if n < len(lost[c]):  # none, or cut by fewer groups
                kept = _kept(layouts[c], *stood[c, n][:2])
                if exceeds(lost[c][n], kept * (1 + ROUNDING)):
                    lost[c][: n + 1] = [min(own, kept) for own in lost[c][: n + 1]]
            if evaluation.violations:
                del tables[c][n:], lost[c][n:]
            elif n < len(tables[c]) and exceeds(tables[c][n], carried * (1 + ROUNDING)):
                for more in range(n, len(tables[c])):
                    tables[c][more] = min(tables[c][more], max(carried, tables[c][n - 1]))
        again = tuple(
            replace(column, requests_per_s=tuple(table), after_loss=tuple(left))
            for column, table, left in zip(hours.columns, tables, lost, strict=True)
        )
        if again == hours.columns:
            return hours, planned, {key: own for key, own in stood.items() if key in used}
        hours = replace(hours, columns=again)
    raise NoFeasibleLayout("the layouts of several groups together break rules", proven=False)


def _kept(one: UnitLayout, instance: Instance, layout: Layout) -> float:
    """Requests/s that groups carry by the evaluation after the worst loss of a unit."""
    rest = (less(layout, own, len(one.layout.replicas)) for own in one.kept)
    return min(evaluate(instance, own).requests_per_s or 0.0 for own in rest)


def _most(used: set[tuple[int, int]], layouts: tuple[UnitLayout, ...]) -> set[tuple[int, int]]:
    """Of each layout, the column and the number of the most groups that stand together."""
    found: dict[int, tuple[int, int]] = {}
    for c, n in sorted(used):
        own = id(layouts[c])
        if own not in found or found[own][1] < n:
            found[own] = c, n
    return set(found.values())

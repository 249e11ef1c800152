"""``plan_day``: units and what runs on them in every hour, for the least money, with bounds and every layout judged.

1. Searches say what one, two, four units of a kind run for a model. 2. CP-SAT chooses, hour by hour, how many of them serve
(:mod:`solver.plan.hours`). 3. Every layout of every hour is evaluated whole; where many groups carry less together than
one by one, the plan is made again with what they carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.plan.hours import Column, Hours, Kind
from costmodel.plan.question import PlanQuestion, rates_of
from costmodel.question.instance import Instance
from costmodel.tolerance import exceeds
from solver.clock import Clock
from solver.plan.groups import UnitLayout, chips_off, copies
from solver.plan.hours import Planned, bound_usd, plan_hours
from solver.plan.units import Offer, Start, offer
from solver.verify import ROUNDING
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, Problem, VerificationError

#: times that a plan is made again with what groups carry together
_AGAIN = 20

#: what the bound over all layouts holds for, beside what each search covers
COVERS = (
    "whole units: a unit runs one model in an hour, alone or together with other units of its kind",
    "any layout on the units of a kind, any exchange between hours, without time for loading and finishing",
    "not covered: replicas of one model that hand KV from one kind of unit to another; two models on one unit",
)

#: by model and kind of unit
Offers = dict[tuple[int, int], Offer]
#: group of a column on so many units, evaluated
Stood = dict[tuple[int, int], tuple[Instance, Layout, Evaluation]]


@dataclass(frozen=True)
class DayPlan:
    """A plan with its bounds.

    ``mean[model][hour]``: requests/s on average, ``hours.demand`` the highest. ``bound_usd``: no plan of whole units with
    any layouts costs less; ``planned.bound_usd``: none made of the columns. ``stood``: the layouts of every number of
    groups that serves, evaluated. ``target``: the gap of each search.
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

    @property
    def gap(self) -> float:
        """Money over the bound over all layouts, less 1."""
        return self.planned.judged.usd / self.bound_usd - 1.0 if self.bound_usd else 0.0

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
    on_progress: Callable[[str], None] = lambda said: None,
) -> DayPlan:
    """The cheapest plan found for a question.

    Parameters
    ----------
    asked
        Models with their requests by hour, units, prices, what may be lost.
    gap
        Gap of each search for a layout.
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
    offers = offers_for(asked, clock=clock, gap=gap, seed=seed, on_progress=on_progress)
    on_progress("hours")
    return plan_offers(asked, offers, clock=clock, gap=gap, seed=seed)


def offers_for(
    asked: PlanQuestion,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda said: None,
) -> Offers:
    """What each kind of unit runs for each model; the rates are not read but for their faults."""
    off = _kinds(asked, len(rates_of(asked)[0]))[1]
    start = Start(asked.load_from, asked.load_extra)
    found = {}
    for m, model in enumerate(asked.models):
        for k, units in enumerate(asked.units):
            on_progress(f"{model.called} on {units.cluster}")
            found[m, k] = offer(model, units, off[k], start, clock=clock, gap=gap, seed=seed)
    return found


def plan_offers(
    asked: PlanQuestion, offers: Offers, *, clock: Clock, gap: float = 0.01, seed: int = 0
) -> DayPlan:
    """The cheapest plan found of such offers. Raises what :func:`plan_day` raises."""
    rates = rates_of(asked)
    kinds, off = _kinds(asked, len(rates[0]))
    _fits_somewhere(asked, offers)
    columns, layouts = _columns(asked, offers, len(rates[0]))
    hours = Hours(
        tuple(one.called for one in asked.models),
        tuple(tuple(most for _, most in own) for own in rates),
        kinds,
        columns,
        spare=asked.spare,
        usd_per_kwh=_by_hour(asked.usd_per_kwh, len(rates[0])) if asked.usd_per_kwh else (),
        power_cap_w=asked.power_cap,
    )
    hours, planned, stood = _planned(asked, hours, layouts, off, clock, seed)
    most = [
        [offers[m, k].most_requests_per_s for k in range(len(kinds))]
        for m in range(len(asked.models))
    ]
    bound = bound_usd(hours, most, clock=clock, seed=seed)
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
    )


def _by_hour(value: float | tuple[float, ...], number: int) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,) * number


def _kinds(asked: PlanQuestion, number: int) -> tuple[tuple[Kind, ...], list[int]]:
    """Units with prices and power, and how many chips of each are off."""
    kinds, off = [], []
    for units in asked.units:
        left_off, watts = chips_off(units, asked.power_overhead)
        price = sum(placed.chip.usd_per_hour for placed in load_cluster(units.cluster).chips)
        reserved = price if units.usd_per_hour is None else units.usd_per_hour
        rented = units.on_demand_usd_per_hour
        off.append(left_off)
        kinds.append(
            Kind(
                units.cluster,
                units.count,
                units.reserved_range,
                reserved,
                _by_hour(reserved if rented is None else rented, number),
                watts,
            )
        )
    return tuple(kinds), off


def _fits_somewhere(asked: PlanQuestion, offers: Offers) -> None:
    """Raise ``NoFeasibleLayout`` for models that no unit runs."""
    said = []
    for m, model in enumerate(asked.models):
        own = [offers[m, k] for k in range(len(asked.units))]
        if not any(one.layouts for one in own):
            reasons = (
                f"  on {units.cluster}: {one.reason or 'no replay meets the percentiles'}"
                for units, one in zip(asked.units, own, strict=True)
            )
            said.append("\n".join((f"{model.called} runs on no unit", *reasons)))
    if said:
        raise NoFeasibleLayout("\n".join(said))


def _columns(
    asked: PlanQuestion, offers: Offers, number: int
) -> tuple[tuple[Column, ...], tuple[UnitLayout, ...]]:
    columns, layouts = [], []
    for (m, k), found in offers.items():
        for one in found.layouts:
            most = asked.units[k].count // one.group
            units = f"{one.group} x {asked.units[k].cluster}"
            column = Column(
                f"{asked.models[m].called} on {units}", m, k, one.group,
                tuple(n * one.requests_per_s for n in range(most + 1)),
                one.start_s, one.drain_s, asked.least_hours,
            )  # fmt: skip
            if max(column.loading_hours, column.draining_hours) > number:
                message = (
                    f"{column.name} takes {one.start_s:,.0f} s to load and {one.drain_s:,.0f} s to finish, longer "
                    f"than the {number} hours of the plan"
                )
                raise InstanceError(Problem(asked.name, message))
            columns.append(column)
            layouts.append(one)
    return tuple(columns), tuple(layouts)


def _planned(
    asked: PlanQuestion,
    hours: Hours,
    layouts: tuple[UnitLayout, ...],
    off: list[int],
    clock: Clock,
    seed: int,
) -> tuple[Hours, Planned, Stood]:
    """The plan whose layouts carry, evaluated whole, what it counts on."""
    stood: Stood = {}
    for _ in range(_AGAIN):
        planned = plan_hours(hours, clock=clock, seed=seed)
        tables = [list(column.requests_per_s) for column in hours.columns]
        for c, n in sorted({(c, n) for row in planned.plan.groups for c, n in enumerate(row) if n}):
            if (c, n) not in stood:
                kind = hours.columns[c].kind
                instance, layout = copies(layouts[c], n, asked.units[kind].cluster, off[kind])
                stood[c, n] = instance, layout, evaluate(instance, layout)
            evaluation = stood[c, n][2]
            share = layouts[c].requests_per_s / layouts[c].steady_requests_per_s
            carried = (evaluation.requests_per_s or 0.0) * share
            if evaluation.violations:
                del tables[c][n:]
            elif n < len(tables[c]) and exceeds(tables[c][n], carried * (1 + ROUNDING)):
                for more in range(n, len(tables[c])):
                    tables[c][more] = min(tables[c][more], max(carried, tables[c][n - 1]))
        again = tuple(
            replace(column, requests_per_s=tuple(table))
            for column, table in zip(hours.columns, tables, strict=True)
        )
        if again == hours.columns:
            used = {(c, n) for row in planned.plan.groups for c, n in enumerate(row) if n}
            return hours, planned, {key: own for key, own in stood.items() if key in used}
        hours = replace(hours, columns=again)
    raise NoFeasibleLayout("the layouts of several groups together break rules", proven=False)

"""Units through the hours of a day (CP-SAT): the cheapest plan of given columns, and its bounds. The model is in
:mod:`solver.plan.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isfinite

from ortools.sat.python import cp_model

from costmodel.plan.hours import Column, Decision, Hours
from costmodel.plan.judge import Judged, judge
from solver.clock import Clock
from solver.plan.by_parts.linear import Linear
from solver.plan.first import First, cheaper, first_plan
from solver.plan.model import HoursModel
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, NoLayoutInTime, VerificationError

#: seconds of one solve at most, and of looking for a plan as cheap with fewer starts
_LIMIT_S, _TIDY_S = 240.0, 10.0
#: kinds of units that are named where they are too few
_TOLD = 5
#: numbers of groups to choose from, over all hours and columns, up to which CP-SAT needs no plan to begin with
SMALL = 1000
#: a time that is not nothing, for what takes some time in any layout, seconds
_SOME_S = 1.0

#: by model and kind, requests/s of none, one, two ... units
Few = Mapping[tuple[int, int], Sequence[float]]


@dataclass(frozen=True)
class Planned:
    """A plan with the judge's word on it; no plan of these columns costs less than ``bound_usd``."""

    plan: Decision
    judged: Judged
    bound_usd: float

    @property
    def gap(self) -> float:
        """Money over the bound, less 1; infinite without a bound."""
        return gap_over(self.judged.usd, self.bound_usd)


def plan_hours(
    asked: Hours, *, clock: Clock, seed: int = 0, gap: float = 0.0, begun: Decision | None = None
) -> Planned:
    """The cheapest plan found, with a proven bound over all plans of the same columns. ``begun``: a plan that is known.

    Raises
    ------
    NoFeasibleLayout
        No plan meets the demand; the message names the first hour that cannot be met alone, or says that the
        changes between hours are what cannot be. Or none was found, and none is proven (``proven`` is false).
    NoLayoutInTime
        The time limit came first.
    """
    model = HoursModel(asked)
    first = first_plan(asked, clock=clock, seed=seed) if asked.choices > SMALL else None
    if begun is not None:
        first = cheaper(First(None, 0.0) if first is None else first, begun, judge(asked, begun))
    if first is not None and first.found is not None:
        model.begin_with(*first.found)
    solver, status = clock.run(
        model.cp, seed=seed, limit_s=_LIMIT_S, linearize=True, accept_gap=gap
    )
    if status == cp_model.INFEASIBLE:
        if first is not None and first.found is not None:
            raise VerificationError("the solver finds no plan where the judge accepts one")
        raise NoFeasibleLayout(_why(asked, clock, seed))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # a small question that had no time may still be answered
        return _begun(first or first_plan(asked, clock=clock, seed=seed), clock)
    bound, claimed = (
        own * model.usd for own in (solver.best_objective_bound, solver.objective_value)
    )
    bound = max(bound, 0.0 if first is None else first.bound_usd)
    model.settle(round(solver.objective_value), solver)
    tidy, status = clock.run(model.cp, seed=seed, limit_s=_TIDY_S)
    plan = model.read(tidy if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else solver)
    judged = judge(asked, plan)
    if judged.violations:
        raise VerificationError(f"the judge rejects the plan: {'; '.join(judged.violations[:3])}")
    if judged.usd > claimed * (1 + ROUNDING) + model.rounding_usd:
        raise VerificationError(
            f"the judge finds ${judged.usd:,.4f} for a plan, the solver claimed ${claimed:,.4f}"
        )
    return Planned(plan, judged, max(0.0, min(bound, judged.usd)))


def _begun(first: First, clock: Clock) -> Planned:
    """The plan that was there before the search, where the search has none."""
    if first.found is not None:
        plan, judged = first.found
        return Planned(plan, judged, min(first.bound_usd, judged.usd))
    if clock.over:
        raise clock.late("a plan")
    raise NoFeasibleLayout(
        "no plan was found in the work that one search may take; none is proven not to exist",
        proven=False,
    )


def any_layouts(
    asked: Hours,
    most: Sequence[Sequence[float]],
    *,
    loads: bool,
    drains: bool,
    few: Few | None = None,
    left: Few | None = None,
) -> Hours:
    """The question of plans whose unit of kind ``k`` carries at most ``most[model][k]`` requests/s in any layout.

    ``few``: by model and kind, requests/s that none, one, two ... units carry at most; ``left``: of these after any loss of one.

    A unit runs one model in an hour. ``loads``, ``drains``: every layout takes some time to load, to finish; the hour that
    is paid for it then is. What is longer than an hour, and units that may not be exchanged within one, are left out.
    """
    columns = []
    for m, name in enumerate(asked.models):
        for k, kind in enumerate(asked.kinds):
            if most[m][k] <= 0:
                continue
            # what is not known is as much as is asked for
            each = most[m][k] if isfinite(most[m][k]) else max(asked.demand[m])
            carried = _at_most(kind.units, each, () if few is None else few[m, k])
            columns.append(
                Column(
                    f"{name} on {kind.name}",
                    m,
                    k,
                    1,
                    carried,
                    start_s=_SOME_S * loads,
                    drain_s=_SOME_S * drains,
                    least_hours=min((one.least_hours for one in asked.columns), default=1),
                    after_loss=() if left is None else _left_at_most(carried, left[m, k]),
                )
            )
    return replace(asked, columns=tuple(columns))


def _left_at_most(carried: Sequence[float], left: Sequence[float]) -> tuple[float, ...]:
    """Requests/s of none, one, two ... units at most once one is lost: no more than one fewer carries; it never falls."""
    fewer = (0.0, *carried[:-1])
    table = [min(own, left[n]) if n < len(left) else own for n, own in enumerate(fewer)]
    return tuple(accumulate(table, max))


def _at_most(units: int, each: float, few: Sequence[float]) -> tuple[float, ...]:
    """Requests/s of none, one, two ... units at most; it never falls."""
    table = [n * each if n >= len(few) else min(n * each, few[n]) for n in range(units + 1)]
    return tuple(accumulate(table, max))


def bound_usd(asked: Hours, *, clock: Clock, seed: int = 0) -> float:
    """Money of any plan of such a question, at least.

    Raises ``NoFeasibleLayout`` where even so much does not meet the demand.
    """
    model = HoursModel(asked)
    solver, status = clock.run(model.cp, seed=seed, limit_s=_LIMIT_S, linearize=True)
    if status == cp_model.INFEASIBLE:
        raise NoFeasibleLayout(
            "no plan meets the demand: even what units carry at most is too little"
        )
    found = max(0.0, solver.best_objective_bound * model.usd)
    if status == cp_model.OPTIMAL or asked.choices <= SMALL:
        return found
    # without it the bound is lower; the plan that stands is not lost for it
    with suppress(NoLayoutInTime):
        found = max(found, Linear(asked).solve(clock=clock, limit_s=_LIMIT_S).bound_usd)
    return found


def _why(asked: Hours, clock: Clock, seed: int) -> str:
    """What of a question without a plan cannot be met."""
    for hour in range(asked.hours):
        alone = replace(
            asked,
            demand=tuple((own[hour],) for own in asked.demand),
            kinds=tuple(
                replace(kind, on_demand_usd_per_hour=(kind.on_demand_usd_per_hour[hour],))
                for kind in asked.kinds
            ),
            columns=tuple(
                replace(one, start_s=0.0, drain_s=0.0, least_hours=1) for one in asked.columns
            ),
            usd_per_kwh=asked.usd_per_kwh[hour : hour + 1],
        )
        _, status = clock.run(HoursModel(alone).cp, seed=seed, limit_s=_LIMIT_S)
        if status == cp_model.INFEASIBLE:
            rates = ", ".join(
                f"{name} {own[hour]:,.4g}"
                for name, own in zip(asked.models, asked.demand, strict=True)
            )
            loss = f" after the loss of {asked.loss_words}" if asked.spare else ""
            cap = "" if asked.power_cap_w is None else " within the power limit"
            served = sum(own[hour] > 0 for own in asked.demand)
            units = sum(kind.units for kind in asked.kinds) - asked.units_lost[1]
            shared = (
                f"; a unit serves one model in an hour, and the losses leave {units} for {served} models (rackfit solve with "
                "models: places several on the chips of one)"
                if served > units
                else ""
            )
            there = ", ".join(f"{kind.units:,} {kind.name}" for kind in asked.kinds[:_TOLD])
            there += ", .." * (len(asked.kinds) > _TOLD)
            return f"hour {hour} ({rates} requests/s) is more than all units ({there}) carry{loss}{cap}{shared}"
    return (
        "each hour can be met alone, but no plan changes from hour to hour: units that load or finish requests, or "
        "that must stay on, are too many"
    )


def gap_over(usd: float, bound: float) -> float:
    """Money over a bound, less 1; infinite where there is no bound, as the time was over before one."""
    if bound <= 0.0:
        return 0.0 if usd <= 0.0 else float("inf")
    return max(0.0, usd / bound - 1.0)

"""Units through the hours of a day (CP-SAT): the cheapest plan of given columns, and its bound. The model is in
:mod:`solver.plan.model`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from costmodel.plan.hours import Decision, Hours
from costmodel.plan.judge import Judged, judge
from solver.clock import Clock
from solver.plan.first import First, cheaper, first_plan
from solver.plan.model import HoursModel
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, VerificationError

#: seconds of one solve at most, and of looking for a plan as cheap with fewer starts
LIMIT_S, _TIDY_S = 240.0, 10.0
#: of one by strategies in turns, and numbers of groups to choose from up to which they are worth it
_IN_TURNS_S, _FEW_ENOUGH = 400.0, 5_000
#: kinds of units that are named where they are too few
_TOLD = 5
#: numbers of groups to choose from, over all hours and columns, up to which CP-SAT needs no plan to begin with
SMALL = 1000


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
    asked: Hours,
    *,
    clock: Clock,
    seed: int = 0,
    gap: float = 0.0,
    begun: Decision | None = None,
    thorough: bool = False,
) -> Planned:
    """The cheapest plan found, with a proven bound over all plans of the same columns. ``begun``: a plan that is known.

    ``thorough``: what one strategy leaves open is searched by several.

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
    solver, status = clock.run(model.cp, seed=seed, limit_s=LIMIT_S, linearize=True, accept_gap=gap)
    bound = solver.best_objective_bound
    ended = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if thorough and not ended and asked.choices <= _FEW_ENOUGH and not clock.over:
        found = status == cp_model.FEASIBLE
        if found:
            known = model.read(solver)
            model.begin_with(known, judge(asked, known))
        again, status_again = clock.run(
            model.cp, seed=seed, limit_s=_IN_TURNS_S, accept_gap=gap, in_turns=True
        )
        if status_again in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            bound = max(bound, again.best_objective_bound)
            if not found or again.objective_value <= solver.objective_value:
                solver, status = again, status_again
        elif not found:
            status = status_again
    if status == cp_model.INFEASIBLE:
        if first is not None and first.found is not None:
            raise VerificationError("the solver finds no plan where the judge accepts one")
        raise NoFeasibleLayout(_why(asked, clock, seed))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # a small question that had no time may still be answered
        return _begun(first or first_plan(asked, clock=clock, seed=seed), clock)
    bound, claimed = (own * model.usd for own in (bound, solver.objective_value))
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
        _, status = clock.run(HoursModel(alone).cp, seed=seed, limit_s=LIMIT_S)
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
                f"; a unit serves one model in an hour unless models can share it (share: true), and the losses leave {units} "
                f"for {served} models"
                if served > units and not asked.together
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

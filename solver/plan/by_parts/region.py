"""``plan_region``: plans of many clusters, models and hours, by parts, with a bound from the linear relaxation.

1. Equal clusters are one pool of units. 2. The linear relaxation over pools, models and hours says which fractions of groups
serve, and what no plan costs less than. 3. One model after another gets whole groups near its fractions. 4. Each pool's
groups are dealt to its clusters. 5. The judge of plans prices and checks every hour of every cluster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.plan.hours import Decision, Hours
from costmodel.plan.judge import judge
from solver.clock import Clock
from solver.plan.by_parts.by_model import decision, whole_groups
from solver.plan.by_parts.linear import Linear
from solver.plan.by_parts.pools import Pool, pooled
from solver.plan.by_parts.sites import dealt
from solver.plan.first import whole_reserved
from solver.plan.hours import Planned, plan_hours
from solver.verify import ROUNDING
from topology.errors import NoFeasibleLayout, VerificationError

#: numbers of groups to choose from, over all hours and columns of pools, up to which one CP-SAT model holds all
WHOLE = 20_000
#: seconds of a linear relaxation at most
_LIMIT_S = 3600.0


def plan_region(
    asked: Hours,
    *,
    clock: Clock,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda said: None,
) -> Planned:
    """A plan of given columns with a proven bound over all of them; the bound is seldom reached.

    Raises
    ------
    NoFeasibleLayout
        Even fractions of groups do not meet the demand (proven), or no room was found for whole ones (not proven).
    NoLayoutInTime
        The time limit came first.
    """
    together, pools = pooled(asked)
    if together.choices <= WHOLE:
        on_progress(f"{len(pools)} pools as a whole")
        exact = plan_hours(together, clock=clock, seed=seed)
        try:
            found = _judged(asked, pools, together, exact.plan, exact.bound_usd)
        except NoFeasibleLayout:
            found = None
        if asked.choices <= WHOLE and (found is None or found.gap > ROUNDING):
            # clusters one by one: what no dealing of the pool's best plan reaches
            return plan_hours(asked, clock=clock, seed=seed)
        if found is not None:
            return found
    on_progress(f"relaxation of {len(pools)} pools")
    relaxed = Linear(together).solve(clock=clock, limit_s=_LIMIT_S)
    on_progress("whole units, model by model")
    reserved = whole_reserved(together, relaxed.reserved)
    groups = whole_groups(together, relaxed.groups, reserved, clock=clock, seed=seed)
    on_progress("clusters of each pool")
    return _judged(asked, pools, together, decision(groups, reserved), relaxed.bound_usd)


def _judged(
    asked: Hours, pools: list[Pool], together: Hours, plan: Decision, bound_usd: float
) -> Planned:
    """A plan of pools dealt to their clusters, with the judge's word."""
    groups = np.array(plan.groups, np.int64)
    dealt_out = decision(*dealt(asked, pools, together, groups, plan.reserved))
    judged = judge(asked, dealt_out)
    if judged.violations and asked.power_cap_w is not None:
        # units that load where none finishes draw power that the pool did not count
        raise NoFeasibleLayout(f"dealt to clusters, {judged.violations[0]}", proven=False)
    if judged.violations:
        raise VerificationError(f"the judge rejects the plan: {'; '.join(judged.violations[:3])}")
    if bound_usd > judged.usd * (1 + ROUNDING):
        raise VerificationError(
            f"the bound ${bound_usd:,.4f} is above a plan that costs ${judged.usd:,.4f}"
        )
    return Planned(dealt_out, judged, min(bound_usd, judged.usd))


def region_bound_usd(asked: Hours, *, clock: Clock) -> float:
    """Money of any plan of such a question, at least. Raises what :func:`plan_region` raises."""
    return Linear(pooled(asked)[0]).solve(clock=clock, limit_s=_LIMIT_S).bound_usd

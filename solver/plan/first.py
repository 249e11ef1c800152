"""A plan to begin with, and a bound, of a question that one CP-SAT model may be too large for.

The linear relaxation gives the bound and the fractions, and whole groups are made of them model by model
(:mod:`solver.plan.by_parts.by_model`). Where that finds no room, the groups that carry the highest rate of every model at once
serve in every hour: nothing starts and nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from costmodel.plan.hours import Decision, Hours
from costmodel.plan.judge import Judged, judge
from costmodel.tolerance import exceeds
from solver.clock import Clock
from solver.plan.by_parts.by_model import decision, whole_groups
from solver.plan.by_parts.linear import Array, Linear, Relaxed
from solver.plan.by_parts.pools import Pool, pooled
from solver.plan.by_parts.sites import dealt
from solver.plan.model import HoursModel
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: seconds of the linear relaxation, and of the choice of one hour's groups, at most
_LINEAR_S, _HOUR_S = 60.0, 20.0
#: US dollars per hour that a free unit counts for where carried rates are divided by prices
_FREE = 1e-9


@dataclass(frozen=True)
class First:
    """The cheaper plan of those made, with the judge's word; ``None`` where none was. No plan costs less than ``bound_usd``."""

    found: tuple[Decision, Judged] | None
    bound_usd: float


def cheaper(first: First, plan: Decision, judged: Judged) -> First:
    """The same with another plan, if that breaks no rule and costs less."""
    if judged.violations or (first.found is not None and first.found[1].usd <= judged.usd):
        return first
    return replace(first, found=(plan, judged))


def first_plan(asked: Hours, *, clock: Clock, seed: int) -> First:
    """A plan of given columns without a search over all hours at once.

    None where columns share units: the relaxation tells little of them, and :func:`solver.plan.survivors.plan_kept` begins with a plan
    of those apart.
    """
    if asked.together:
        return First(None, 0.0)
    together, pools = pooled(asked)
    relaxed: Relaxed | None = None
    # whether there is a plan is for the exact model to say
    with suppress(NoFeasibleLayout, NoLayoutInTime):
        relaxed = Linear(together).solve(clock=clock, limit_s=_LINEAR_S)
    plans = [_cheapest_first(asked), *_same(asked, clock, seed)]
    if relaxed is not None:
        plans += _rounded(asked, pools, together, relaxed, clock, seed)
    judged = [(plan, judge(asked, plan)) for plan in plans]
    met = [one for one in judged if not one[1].violations]
    found = min(met, key=lambda one: one[1].usd, default=None)
    return First(found, 0.0 if relaxed is None else relaxed.bound_usd)


def _rounded(
    asked: Hours, pools: list[Pool], together: Hours, relaxed: Relaxed, clock: Clock, seed: int
) -> Iterator[Decision]:
    """Whole groups near the fractions, dealt to the clusters of each pool, where they find room; they may break rules."""
    reserved = whole_reserved(together, relaxed.reserved)
    with suppress(NoFeasibleLayout, NoLayoutInTime):
        groups = whole_groups(together, relaxed.groups, reserved, clock=clock, seed=seed)
        yield decision(*dealt(asked, pools, together, groups, reserved))


def whole_reserved(asked: Hours, units: Array) -> tuple[int, ...]:
    """Whole reserved units nearest to fractions of them, within what may be reserved."""
    return tuple(
        int(np.clip(round(own), *kind.reserved))
        for own, kind in zip(units, asked.kinds, strict=True)
    )


def _same(asked: Hours, clock: Clock, seed: int) -> Iterator[Decision]:
    """The cheapest groups that carry every model's highest rate, in each hour."""
    price = tuple(float(np.mean(kind.on_demand_usd_per_hour)) for kind in asked.kinds)
    one_hour = replace(
        asked,
        demand=tuple((max(own),) for own in asked.demand),
        kinds=tuple(
            replace(kind, on_demand_usd_per_hour=(own,))
            for kind, own in zip(asked.kinds, price, strict=True)
        ),
        columns=tuple(
            replace(one, start_s=0.0, drain_s=0.0, least_hours=1) for one in asked.columns
        ),
        usd_per_kwh=(float(np.mean(asked.usd_per_kwh)),) if asked.usd_per_kwh else (),
    )
    model = HoursModel(one_hour)
    solver, status = clock.run(model.cp, seed=seed, limit_s=_HOUR_S, linearize=True)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plan = model.read(solver)
        yield replace(plan, groups=plan.groups * asked.hours)


def _cheapest_first(asked: Hours) -> Decision:
    """The same groups in each hour, one after another, those first that carry most for their money; it takes no time to speak of.

    Where units end before the highest rates are carried, the plan breaks rules.
    """
    groups = [0] * len(asked.columns)
    room = [kind.units for kind in asked.kinds]
    usd = [float(np.mean(kind.on_demand_usd_per_hour)) for kind in asked.kinds]
    for model, own in enumerate(asked.of_model):
        wanted, losses = max(asked.demand[model]), asked.losses[model]

        def more(index: int) -> float:
            table = asked.columns[index].requests_per_s
            return table[groups[index] + 1] - table[groups[index]]

        def left(own: list[int] = own, losses: list[dict[int, int]] = losses) -> float:
            return min(
                sum(asked.columns[c].left(groups[c], lost[c]) for c in own) for lost in losses
            )

        while wanted > 0 and exceeds(wanted, left()):
            fits = [
                c
                for c in own
                if groups[c] + 1 < len(asked.columns[c].requests_per_s)
                and asked.columns[c].group <= room[asked.columns[c].kind]
            ]
            if not fits:
                break
            best = max(
                fits,
                key=lambda c: more(c) / (asked.columns[c].group * max(usd[asked.columns[c].kind], _FREE)),
            )  # fmt: skip
            groups[best] += 1
            room[asked.columns[best].kind] -= asked.columns[best].group
    reserved = tuple(kind.reserved[0] for kind in asked.kinds)
    return Decision(reserved, (tuple(groups),) * asked.hours)

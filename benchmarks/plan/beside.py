"""What people do without a plan: the best constant fleet, and an autoscaler with thresholds tuned on that day.

Both have the layouts, prices, losses and start-ups of the plan, are judged by the judge of plans, and meet every hour. The
autoscaler sees the hour before: above one share of what its groups carry after a loss it adds groups, below another it takes
one away. Both shares, the groups that it adds, and how many groups of the cheapest layout come before those on other units are
chosen by a grid: the cheapest that meets every hour of the day counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from costmodel.plan.hours import Decision, Hours
from costmodel.plan.judge import judge
from solver.clock import Clock
from solver.plan.hours import plan_hours
from topology.errors import NoFeasibleLayout

Array = NDArray[np.int64]

#: shares of the carried rate above which groups are added and below which one is taken away, and groups added at once
ABOVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
BELOW = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
ADDED = (1, 2, 3, 4, 6, 8)
#: days after which the autoscaler's hours repeat
_DAYS = 3


@dataclass(frozen=True)
class Beside:
    """Money of all hours, and what it is of; ``None`` where nothing meets every hour."""

    name: str
    usd: float | None
    said: str = ""


def constant(asked: Hours, seed: int = 0) -> Beside:
    """The cheapest fleet that serves all hours alike."""
    hours = asked.hours
    same = replace(
        asked,
        demand=tuple((max(own),) for own in asked.demand),
        kinds=tuple(
            replace(kind, on_demand_usd_per_hour=(sum(kind.on_demand_usd_per_hour) / hours,))
            for kind in asked.kinds
        ),
        columns=tuple(
            replace(one, start_s=0.0, drain_s=0.0, least_hours=1) for one in asked.columns
        ),
        usd_per_kwh=(sum(asked.usd_per_kwh) / hours,) if asked.usd_per_kwh else (),
    )
    try:
        found = plan_hours(same, clock=Clock(), seed=seed)
    except NoFeasibleLayout as error:
        return Beside("constant fleet", None, str(error))
    plan = Decision(found.plan.reserved, found.plan.groups * hours)
    judged = judge(asked, plan)
    assert not judged.violations
    return Beside("constant fleet", judged.usd, f"groups {found.plan.groups[0]}")


def autoscaled(asked: Hours) -> Beside:
    """The cheapest of the grid: thresholds, and of each model a ladder of groups."""
    # what shares units with other models is not added for one of them
    asked = replace(asked, columns=tuple(one for one in asked.columns if not one.shared))
    ladders = [_ladders(asked, model) for model in range(len(asked.models))]
    best = Beside("autoscaler", None, "no setting of the grid meets every hour")
    for above, below, added in product(ABOVE, BELOW, ADDED):
        if below >= above:
            continue
        climbed = [
            [_climbed(asked, model, ladder, above, below, added) for ladder in own]
            for model, own in enumerate(ladders)
        ]
        for ways in product(*climbed):
            rows = np.sum(ways, axis=0).tolist()
            plan = _cheapest(asked, tuple(tuple(row) for row in rows))
            if plan is None:
                continue
            usd = judge(asked, plan).usd
            if best.usd is None or usd < best.usd:
                said = f"above {above:g}, below {below:g}, adds {added}"
                best = Beside("autoscaler", usd, f"{said}; at most {np.max(rows, axis=0)}")
    return best


def _usd(asked: Hours, column: int) -> float:
    """Money of an hour per request per second."""
    own = asked.columns[column]
    price = asked.kinds[own.kind].reserved_usd_per_hour * own.group
    return price / own.requests_per_s[1]


def _ladders(asked: Hours, model: int) -> list[Array]:
    """Ways to add groups one by one, ``[steps, columns]`` each: of those that carry most for their money up to some number,
    then of one layout on units of another kind.
    """
    first = min(asked.of_model[model], key=lambda own: _usd(asked, own))
    most = [len(one.requests_per_s) - 1 for one in asked.columns]
    kind = asked.columns[first].kind
    found = [_ladder(asked, (first, most[first]))]
    for second in asked.of_model[model]:
        if asked.columns[second].kind != kind:
            found += [
                _ladder(asked, (first, number), (second, most[second]))
                for number in range(most[first] + 1)
            ]
    return found


def _ladder(asked: Hours, *parts: tuple[int, int]) -> Array:
    """Columns with numbers of groups, one after the other."""
    order = [column for column, number in parts for _ in range(number)]
    steps = np.zeros((len(order) + 1, len(asked.columns)), dtype=int)
    for step, column in enumerate(order, 1):
        steps[step] = steps[step - 1]
        steps[step, column] += 1
    return steps


def _climbed(
    asked: Hours, model: int, ladder: Array, above: float, below: float, added: int
) -> Array:
    """Groups by hour once the days repeat, ``[hours, columns]``."""
    own = asked.of_model[model]
    carried = [
        min(
            sum(asked.columns[c].left(int(row[c]), lost[c]) for c in own)
            for lost in asked.losses[model]
        )
        for row in ladder
    ]
    # an operator allows what the busiest hour takes
    most = next((n for n, own in enumerate(carried) if own >= max(asked.demand[model])), -1)
    most = at = most % len(ladder)
    found = []
    for turn in range(_DAYS * asked.hours):
        before = asked.demand[model][(turn - 1) % asked.hours]
        if before > above * carried[at]:
            at = min(most, at + added)
        elif before < below * carried[at]:
            at -= 1
        found.append(ladder[at])
    return np.array(found[-asked.hours :])


def _cheapest(asked: Hours, groups: tuple[tuple[int, ...], ...]) -> Decision | None:
    """The groups with the reserved units that make them cheapest; ``None`` where they break a rule."""
    least = tuple(kind.reserved[0] for kind in asked.kinds)
    if judge(asked, Decision(least, groups)).violations:
        return None
    plans = (
        Decision(reserved, groups)
        for reserved in product(*(range(k.reserved[0], k.reserved[1] + 1) for k in asked.kinds))
    )
    return min(plans, key=lambda plan: judge(asked, plan).usd)

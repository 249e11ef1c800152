"""A plan that replays confirm: where groups that a loss leaves miss their targets, they count for less, and the plan is made again.

The plan proposes, the replay judges. Of each number of groups that missed, the highest rate that replays meet is looked for
by halving; that is what they count for from then on, and fewer groups for no more. Bounds stay those of the uncut question:
where groups count for less, no plan costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from costmodel.plan.hours import Column
from solver.clock import Clock
from solver.plan.day import DayPlan, planned_again
from solver.plan.replays import HourReplay, Left, Replays, to_replay
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: times that a plan is made again, and halvings between rates that replays meet and rates that they do not
_AGAIN, _HALVINGS = 40, 6


@dataclass(frozen=True)
class Cut:
    """So many groups of a column count for ``requests_per_s``, which a replay met; at ``missed`` requests/s one did not.

    ``after_loss``: once one of them has lost a unit, of which it keeps a part.
    """

    column: str
    groups: int
    requests_per_s: float
    missed: float
    after_loss: bool = False


@dataclass(frozen=True)
class Confirmed:
    """A plan with its replays after every loss.

    ``cuts``: what replays took off; ``first_usd``: money of the plan before. ``reason``: why no further plan was made though
    replays miss (empty where all meet, or the time was over).
    """

    plan: DayPlan
    replays: tuple[HourReplay, ...]
    cuts: tuple[Cut, ...]
    first_usd: float
    reason: str = ""

    @property
    def unknown(self) -> int:
        """Replays that the time did not allow."""
        return to_replay(self.plan) - len(self.replays)

    @property
    def missed(self) -> int:
        """Replays that miss a target."""
        return sum(not one.meets for one in self.replays)


def confirm(
    found: DayPlan,
    *,
    clock: Clock,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda said: None,
) -> Confirmed:
    """The plan, or the cheapest found whose replays meet the targets in every hour after every loss.

    Where none is found, the one with the fewest misses.
    """
    replays = Replays(clock, seed)
    first = found.planned
    best = now = Confirmed(found, replays.of(found), (), first.judged.usd)
    for _ in range(_AGAIN):
        if not now.missed or clock.over:
            break
        on_progress(f"{now.missed} of {len(now.replays)} replays miss a target")
        columns, cuts = _cut(now, replays)
        try:
            plan = planned_again(now.plan, columns, clock=clock, seed=seed)
        except (NoFeasibleLayout, NoLayoutInTime) as error:
            return replace(best, reason=str(error))
        # no plan of the columns as they were costs less, whatever they count for now
        bound = min(first.bound_usd, plan.planned.judged.usd)
        plan = replace(plan, planned=replace(plan.planned, bound_usd=bound))
        now = Confirmed(plan, replays.of(plan), (*now.cuts, *cuts), now.first_usd)
        if now.missed + now.unknown < best.missed + best.unknown:
            best = now
    return best


def _cut(now: Confirmed, replays: Replays) -> tuple[tuple[Column, ...], tuple[Cut, ...]]:
    """Columns that count for what replays meet, where they missed; columns with one layout alike."""
    plan = now.plan
    place = {column.name: c for c, column in enumerate(plan.hours.columns)}
    lowest: dict[tuple[int, int, int], float] = {}
    for one in now.replays:
        if not one.meets:
            key = place[one.column], one.groups, one.part
            lowest[key] = min(one.requests_per_s, lowest.get(key, one.requests_per_s))
    tables = [list(column.requests_per_s) for column in plan.hours.columns]
    kept = [list(column.after_loss) for column in plan.hours.columns]
    cuts = []
    for (column, groups, part), missed in lowest.items():
        rate = _meets_at(plan, column, (groups, part), missed, replays)
        cuts.append(Cut(plan.hours.columns[column].name, groups, rate, missed, part >= 0))
        for c, table in enumerate(kept if part >= 0 else tables):
            if plan.layouts[c] is plan.layouts[column]:
                # fewer groups carry no more
                table[: groups + 1] = [min(own, rate) for own in table[: groups + 1]]
    columns = tuple(
        replace(column, requests_per_s=tuple(table), after_loss=tuple(left))
        for column, table, left in zip(plan.hours.columns, tables, kept, strict=True)
    )
    return columns, tuple(cuts)


def _meets_at(plan: DayPlan, column: int, groups: Left, missed: float, replays: Replays) -> float:
    """The highest rate found below one that missed at which so many groups meet the targets."""
    low, high = replays.met_below(plan, column, groups, missed), missed
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        met = replays.met(plan, column, groups, rate)
        if met is None:
            break
        low, high = (rate, high) if met[2] else (low, rate)
    return low

"""Every hour of a plan replayed after every loss: what a model's requests meet on the groups that are left.

Requests are those of the model's traffic; without, they have the workload's lengths and come evenly, as the steady state has
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from costmodel.question.instance import Instance
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.clock import Clock
from solver.plan.day import DayPlan
from solver.plan.groups import chips_off, copies
from solver.plan.units import asked_of
from solver.traffic.asked import Asked

#: seconds of even arrivals that are replayed, and requests at most
_STEADY_S, _MOST = 300.0, 20_000


@dataclass(frozen=True)
class HourReplay:
    """Groups of one column that are left in an hour after a loss, at their share of the model's highest rate.

    ``lost``: units of any column that are gone. ``ttft_p99_s``, ``tpot_p99_s``: what was met; ``meets`` both targets.
    """

    hour: int
    model: str
    column: str
    groups: int
    lost: int
    requests_per_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    meets: bool


def replay_hours(found: DayPlan, *, clock: Clock, seed: int = 0) -> tuple[HourReplay, ...]:
    """Replays of all hours and losses, as many as the clock allows.

    Requests go to columns in the share of what they carry. Hours, groups and rates that are alike are replayed once.
    """
    known: dict[tuple[int, int, float], tuple[float, float, bool]] = {}
    tables: Tables = {}
    all_found: list[HourReplay] = []
    for m, model in enumerate(found.asked.models):
        asked = None if model.traffic is None else asked_of(model, seed)
        for hour, left in _left(found, m):
            carried = {c: found.hours.columns[c].requests_per_s[n] for c, n in left.items()}
            for c, n in left.items():
                rate = found.hours.demand[m][hour] * carried[c] / sum(carried.values())
                key = c, n, round(rate, 9)
                if key not in known:
                    if clock.over:
                        return tuple(all_found)
                    known[key] = _met(found, asked, c, n, rate, seed, tables)
                own = found.hours.columns[c]
                all_found.append(
                    HourReplay(hour, model.called, own.name, n, found.hours.spare, rate, *known[key])
                )  # fmt: skip
    return tuple(all_found)


def _left(found: DayPlan, model: int) -> list[tuple[int, dict[int, int]]]:
    """Hours in which a model is asked for, with the groups that each different loss leaves."""
    listed = []
    for hour, groups in enumerate(found.planned.plan.groups):
        if not found.hours.demand[model][hour]:
            continue
        seen = []
        for lost in found.hours.losses[model]:
            left = {c: groups[c] - gone for c, gone in lost.items() if groups[c] > gone}
            hit = all(groups[c] >= gone for c, gone in lost.items())
            if hit and left not in seen:
                seen.append(left)
                listed.append((hour, left))
    return listed


def _met(
    found: DayPlan,
    asked: Asked | None,
    column: int,
    groups: int,
    rate: float,
    seed: int,
    tables: Tables,
) -> tuple[float, float, bool]:
    """99th percentiles of TTFT and TPOT, and whether the targets are met."""
    units = found.asked.units[found.hours.columns[column].kind]
    off, _ = chips_off(units, found.asked.power_overhead)
    instance, layout = copies(found.layouts[column], groups, units.cluster, off)
    if asked is None:
        count = min(_MOST, ceil(rate * _STEADY_S))
        even = Arrivals(process="constant", rate=rate)
        requests, targets = steady(instance.workload, even, count, seed), _steady_targets(instance)
    else:
        requests = replace(asked, requests=asked.requests.at_rate(rate)).runs(seed)[1]
        targets = asked.targets
    met = replay(instance, layout, requests, Course.of(instance), tables)
    return met.ttft_s.p99, met.tpot_s.p99, judged(met, targets).meets


def _steady_targets(instance: Instance) -> Targets:
    return Targets(instance.slo.ttft, instance.slo.tpot)

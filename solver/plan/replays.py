"""Every hour of a plan replayed after every loss: what requests of a model with traffic meet on the groups that are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.clock import Clock
from solver.plan.day import DayPlan
from solver.plan.groups import chips_off, copies
from solver.plan.units import asked_of
from solver.traffic.asked import Asked


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
    """Replays of all hours and losses of the models that have traffic, as many as the clock allows.

    Requests go to columns in the share of what they carry. Hours, groups and rates that are alike are replayed once.
    """
    known: dict[tuple[int, int, float], tuple[float, float, bool]] = {}
    tables: Tables = {}
    all_found: list[HourReplay] = []
    for m, model in enumerate(found.asked.models):
        if model.traffic is None:
            continue
        asked = asked_of(model, seed)
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
    found: DayPlan, asked: Asked, column: int, groups: int, rate: float, seed: int, tables: Tables
) -> tuple[float, float, bool]:
    """99th percentiles of TTFT and TPOT, and whether the targets are met."""
    units = found.asked.units[found.hours.columns[column].kind]
    off, _ = chips_off(units, found.asked.power_overhead)
    instance, layout = copies(found.layouts[column], groups, units.cluster, off)
    requests = replace(asked, requests=asked.requests.at_rate(rate)).runs(seed)[1]
    met = replay(instance, layout, requests, Course.of(instance), tables)
    return met.ttft_s.p99, met.tpot_s.p99, judged(met, asked.targets).meets

"""What one or a few whole units run for a model: layouts found by searches, and what no layout of a unit exceeds.

Where a model has traffic, a layout counts for the rate at which its replays meet the percentiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.clock import Clock
from solver.place.assemble import assemble
from solver.plan.groups import Start, UnitLayout, on_units, start_s
from solver.plan.most import asked_of, at_any_rate, most_of_a_unit, most_of_few
from solver.rounds import Search
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import Fleets
from topology import load_cluster
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: chips of a group that is searched, at most; a larger group has to carry so much more per unit
_GROUP_CHIPS, _MORE = 144, 1.02
#: capacity of prefill over that of decode, in layouts that are replayed
_AHEAD = (1.0, 1.25, 1.6)
#: times the rate at which mixed replicas are too small for any
_NEVER = 1e6
#: part of the steady layout's time to a first token within which others compute one
_QUICK = 0.1
#: part of what the steady layout carries at which no further one is tried
_ENOUGH = 0.97
#: halvings between rates that meet the percentiles and rates that do not, from one of these shares of the steady rate on
_HALVINGS, _LIKELY, _LEAST = 5, 0.85, 0.25
#: requests of a trace that is replayed as it is, at most
_WHOLE_TRACE = 20_000


@dataclass(frozen=True)
class Offer:
    """One model on one kind: layouts to choose from, requests/s that no layout exceeds per unit, and why there is none.

    ``covers``: what that bound holds for. ``most_of_few``: requests/s that none, one, two ... units carry at most, as
    far as that is known.
    """

    layouts: tuple[UnitLayout, ...]
    most_requests_per_s: float
    covers: tuple[str, ...]
    reason: str = ""
    most_of_few: tuple[float, ...] = (0.0,)


def offer(
    model: PlanModel,
    units: PlanUnits,
    off: int,
    start: Start,
    *,
    clock: Clock,
    gap: float,
    seed: int,
) -> Offer:
    """Layouts of a model on one, two, four units of a kind, and the bound per unit."""
    try:
        most, covers = most_of_a_unit(model, units, off, clock, gap, seed)
    except NoFeasibleLayout as error:
        return Offer((), 0.0, (), str(error))
    found: list[UnitLayout] = []
    group, reason = 1, ""
    size = len(load_cluster(units.cluster).chips)
    while group <= units.count and (group == 1 or group * size <= _GROUP_CHIPS or not found):
        try:
            one = _layout(model, units, group, off, start, clock, gap, seed)
        except NoFeasibleLayout as error:
            one, reason = None, str(error)
        best = max((own.requests_per_s / own.group for own in found), default=0.0)
        if one is not None and one.requests_per_s / group > best * _MORE:
            found.append(one)
            if most <= one.requests_per_s / group * _MORE:
                break  # no larger group carries so much more
        elif found:
            break
        group *= 2
    few = most_of_few(model, units, off, clock, seed)
    return Offer(tuple(found), most, covers, "" if found else reason, few)


def _layout(
    model: PlanModel,
    units: PlanUnits,
    group: int,
    off: int,
    start: Start,
    clock: Clock,
    gap: float,
    seed: int,
) -> UnitLayout | None:
    cluster, failed = on_units(units.cluster, group, off)
    scenario = model.scenario(cluster, failed)
    if model.traffic is not None:
        return _for_traffic(scenario, asked_of(model, seed), group, start, clock, gap, seed)
    instance = resolve_instance(scenario)
    # what no layout exceeds is known: :func:`most_of_a_unit`
    found = search(instance, clock=clock, gap=gap, seed=seed, brief=True)
    instance = found.instance or instance
    served = found.evaluation.requests_per_s or 0.0
    longest = instance.workload.output_tokens * (found.evaluation.tpot_s or 0.0)
    return UnitLayout(
        instance, found.layout, group, served, served,
        start_s(instance, found.evaluation, found.layout, start), longest,
    )  # fmt: skip


def _for_traffic(
    scenario: Scenario, asked: Asked, group: int, start: Start, clock: Clock, gap: float, seed: int
) -> UnitLayout | None:
    """The layout whose replays meet the percentiles at the highest rate; ``None`` where none does at any."""
    instance = at_any_rate(questions(scenario, asked).spread, "whole")
    plain = Search(instance, clock, gap, seed, None)
    found = plain.run()
    assert found is not None
    most = found.evaluation.requests_per_s or 0.0
    best: UnitLayout | None = None
    tables: Tables = {}
    seen: list[Layout] = []
    for layout in _candidates(plain, asked, found.evaluation.ttft_s or 0.0, seed):
        if layout in seen:
            continue
        seen.append(layout)
        evaluation = evaluate(instance, layout)
        steady = evaluation.requests_per_s or 0.0
        if evaluation.violations or (best is not None and steady <= best.requests_per_s):
            continue
        rate = _meets_at(instance, layout, asked, steady, seed, tables)
        if rate > (best.requests_per_s if best is not None else 0.0):
            longest = float(asked.requests.output_tokens.max()) * (evaluation.tpot_s or 0.0)
            begins = start_s(instance, evaluation, layout, start)
            best = UnitLayout(instance, layout, group, steady, rate, begins, longest)
        if clock.over or (best is not None and best.requests_per_s >= _ENOUGH * most):
            break
    if best is None and clock.over:
        raise NoLayoutInTime("the time limit came before a layout whose replay meets the targets")
    return best


def _candidates(plain: Search, asked: Asked, ttft_s: float, seed: int) -> Iterator[Layout]:
    """The steady layout, those with more prefill beside as much decode, and those that compute prompts more quickly.

    ``ttft_s``: what a first token takes in the steady layout.
    """
    usual = Fleets(plain, asked.steady, asked.targets, seed)
    yield from _ahead(plain.instance, usual)
    # long prompts between decode passes are late for many: pools apart
    yield from _ahead(plain.instance, usual, mixed=_NEVER)
    quick = usual.under(plain.instance.slo.model_copy(update={"ttft": _QUICK * ttft_s}), 1)
    if quick is not None:
        yield from _ahead(plain.instance, quick)


def _ahead(instance: Instance, fleets: Fleets, mixed: float = 1.0) -> Iterator[Layout]:
    """Layouts of such replicas, each with more prefill beside as much decode than the one before.

    ``mixed``: times the rate for which mixed replicas are asked.
    """
    for ahead in _AHEAD:
        fleet = fleets.least({"prefill": ahead, "decode": 1.0, "mixed": mixed})
        if fleet is None:
            return
        layout = assemble(instance, fleet, fleets.search.placed)
        yield layout
        if all(one.role == "mixed" for one in layout.replicas):
            return


def _meets_at(
    instance: Instance, layout: Layout, asked: Asked, steady: float, seed: int, tables: Tables
) -> float:
    """The highest rate found at which every replay meets the targets; 0 where none does."""
    course = Course.of(instance)

    def meets(rate: float) -> bool:
        at = replace(asked, requests=asked.requests.at_rate(rate))
        runs = at.runs(seed)
        if len(runs[0]) > _WHOLE_TRACE:
            runs = runs[1:]
        return all(
            judged(replay(instance, layout, one, course, tables), asked.targets).meets
            for one in runs[:2]
        )

    low, high = _LIKELY * steady, steady
    if not meets(low):
        low, high = _LEAST * steady, low
        if not meets(low):
            return 0.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        if meets(rate):
            low = rate
        else:
            high = rate
    return low

"""What one or a few whole units run for a model: layouts found by searches, and what no layout of a unit exceeds.

Where a model has traffic, a layout counts for the rate at which its replays meet the percentiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costmodel.evaluate import SECONDS_PER_HOUR, Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.plan.question import PlanModel, PlanUnits
from costmodel.question.engine import ANY
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.bounds.relaxed import relaxed_bound
from solver.clock import Clock
from solver.known import Known
from solver.place.assemble import assemble
from solver.plan.groups import UnitLayout, on_units
from solver.rounds import Search
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import Fleets
from solver.traffic.late import least_usd, rates_with_late
from solver.traffic.windows import least_share
from topology import TierKind, load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: chips of a group that is searched, at most; a larger group has to carry so much more per unit
_GROUP_CHIPS, _MORE = 144, 1.02
#: capacity of prefill over that of decode, in layouts that are replayed
_AHEAD = (1.0, 1.25, 1.6)
#: part of the steady layout's time to a first token within which others compute one
_QUICK = 0.1
#: part of what the steady layout carries at which no further one is tried
_ENOUGH = 0.97
#: halvings between rates that meet the percentiles and rates that do not, from one of these shares of the steady rate on
_HALVINGS, _LIKELY, _LEAST = 5, 0.85, 0.25
#: chips on which the bound of a unit is a search's; with more, fractions of replicas say as much and are quick
_WHOLE_CHIPS = 256
#: that bound is so many times tighter than the gap of searches: it is quick, and whole plans rest on it
_TIGHTER = 4.0
#: requests of a trace that is replayed as it is, at most
_WHOLE_TRACE = 20_000


@dataclass(frozen=True)
class Offer:
    """One model on one kind: layouts to choose from, requests/s that no layout exceeds per unit, and why there is none.

    ``covers``: what that bound holds for.
    """

    layouts: tuple[UnitLayout, ...]
    most_requests_per_s: float
    covers: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class Start:
    """Where weights are read from, and seconds that a start takes beside it."""

    tier: TierKind
    extra_s: float


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
        most, covers = _most(model, units, off, clock, gap, seed)
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
    return Offer(tuple(found), most, covers, "" if found else reason)


def _most(
    model: PlanModel, units: PlanUnits, off: int, clock: Clock, gap: float, seed: int
) -> tuple[float, tuple[str, ...]]:
    """Requests/s of a unit that no layout on any number of units exceeds, and what that covers."""
    cluster, failed = on_units(units.cluster, units.count, off)
    scenario = model.scenario(cluster, failed)
    share, exempt = 1.0, 0.0
    asked = None if model.traffic is None else asked_of(model, seed)
    if asked is None:
        instance = resolve_instance(scenario.model_copy(update={"pay": "used"}))
    else:
        own = questions(scenario, asked)
        exempt = own.exempt
        share = least_share(own.every, asked.requests, exempt)
        instance = _at_any_rate(own.every, "used")
    bound, covers = _least_usd(instance, clock, gap, seed)
    if asked is not None:
        known = Known(instance, clock, 0.0, seed, None)
        bound = max(bound, least_usd(known, rates_with_late(known, asked.requests, exempt)))
    bound *= share
    if bound <= 0.0:
        raise NoLayoutInTime("the time limit came before a bound")
    prices = [chip.chip.usd_per_hour for chip in instance.cluster.usable]
    factor = instance.scenario.prices.chip_price_factor
    hourly = sum(prices) * factor / units.count
    tokens = instance.workload.output_tokens
    return hourly / SECONDS_PER_HOUR / bound * 1e6 / tokens, covers


def _least_usd(
    instance: Instance, clock: Clock, gap: float, seed: int
) -> tuple[float, tuple[str, ...]]:
    """Dollars per million output tokens that no layout costs less than, and what that covers."""
    several = instance.scenario.engine == ANY or instance.workload.hold_s is not None
    if not several and len(instance.cluster.usable) > _WHOLE_CHIPS:
        relaxed = relaxed_bound(instance, clock=clock, gap=gap / _TIGHTER, seed=seed)
        return relaxed.bound_usd_per_m_output_tokens, relaxed.covers
    # of few chips whole fleets say more than fractions; engines and places of KV are several questions in one
    found = search(instance, clock=clock, gap=gap, seed=seed)
    return found.certificate.bound_usd_per_m_output_tokens, found.certificate.covers


def asked_of(model: PlanModel, seed: int) -> Asked:
    """The traffic of a model at its own rate."""
    assert model.traffic is not None
    requests = load_traffic(model.traffic, seed=seed).whole_prompts()
    if not requests.duration_s:
        raise InstanceError(Problem(model.traffic, "all requests come at once: they have no rate"))
    return Asked(requests, Targets(model.slo.ttft, model.slo.tpot))


def _at_any_rate(instance: Instance, pay: str) -> Instance:
    return resolve_instance(
        instance.scenario.model_copy(update={"rate": None, "pay": pay, "slo": instance.slo})
    )


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
    # what no layout exceeds is known: :func:`_most`
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
    instance = _at_any_rate(questions(scenario, asked).spread, "whole")
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
    quick = usual.under(plain.instance.slo.model_copy(update={"ttft": _QUICK * ttft_s}), 1)
    if quick is not None:
        yield from _ahead(plain.instance, quick)


def _ahead(instance: Instance, fleets: Fleets) -> Iterator[Layout]:
    """Layouts of such replicas, each with more prefill beside as much decode than the one before."""
    for ahead in _AHEAD:
        fleet = fleets.least({"prefill": ahead, "decode": 1.0, "mixed": 1.0})
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


def start_s(instance: Instance, evaluation: Evaluation, layout: Layout, start: Start) -> float:
    """Seconds until the chip with most weights per speed of its tier has read them, and what a start takes beside it."""
    longest = 0.0
    for replica, price in zip(layout.replicas, evaluation.priced.replicas, strict=True):
        for stage, own in zip(replica.stages, price.stages, strict=True):
            weights = sum(
                (held for name, held in own.memory.items() if name in ("weights", "experts")),
                start=0.0 * own.used_bytes,
            )
            for chip, held in zip(stage.chips, weights.tolist(), strict=True):
                tier = instance.cluster.chip(chip).chip.tier(start.tier)
                if tier is None:
                    message = f"{instance.cluster.chip(chip).chip.name} has no {start.tier} tier"
                    raise InstanceError(Problem("load_from", message))
                longest = max(longest, held / tier.read_bytes_per_s)
    return longest + start.extra_s

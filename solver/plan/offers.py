"""What each kind of unit runs for each model of a plan, as columns to choose from. Equal searches are made once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import joblib

from costmodel.plan.hours import Column, Kind
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits, lost_of, rates_of
from costmodel.question.engine import ANY
from costmodel.question.instance import resolve_instance
from solver.clock import Clock
from solver.engine_choice import questions
from solver.plan.groups import Start, UnitLayout, chips_off
from solver.plan.units import Offer, offer
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem, noted

#: by model and kind of unit
Offers = dict[tuple[int, int], Offer]
#: models for each process, at least, where one process makes all searches of a model: with few it may be the last by far
_MODELS_PER_JOB = 4
#: one search: of a model, on units with so many chips off
Search = tuple[PlanModel, PlanUnits, int]


def offers_for(
    asked: PlanQuestion,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Callable[[str], None] = lambda said: None,
) -> Offers:
    """What each kind of unit runs for each model; the rates are not read but for their faults.

    Units of one cluster name with as many chips off are searched once, at their largest count; a smaller number of them is
    taken as a part of the largest. ``jobs`` searches run at a time, by joblib's backend. A kind on which a model cannot be asked
    about (its engine does not run there) runs nothing for it, and the offer says why.

    Raises ``InstanceError`` for models that cannot be asked about on any kind, before the first search.
    """
    off = kinds_of(asked, len(rates_of(asked)[0]))[1]
    start = Start(asked.load_from, asked.load_extra)
    start.check(asked.units)
    largest: dict[tuple[str, int], PlanUnits] = {}
    for units, own in zip(asked.units, off, strict=True):
        known = largest.get((units.cluster, own))
        if known is None or known.count < units.count:
            largest[units.cluster, own] = units
    refused = _refused(asked, list(largest.values()))
    found: dict[tuple[str, str, int], Offer] = {
        (*key, own): Offer((), 0.0, (), why)
        for key, why in refused.items()
        for cluster, own in largest
        if cluster == key[1]
    }
    searches: list[Search] = [
        (model, units, own)
        for model in asked.models
        for (_, own), units in largest.items()
        if (model.called, units.cluster) not in refused
    ]
    for (model, units, own), one in _searched(searches, start, clock, gap, seed, jobs, on_progress):
        found[model.called, units.cluster, own] = one
    return {
        (m, k): _up_to(found[model.called, units.cluster, off[k]], units.count)
        for m, model in enumerate(asked.models)
        for k, units in enumerate(asked.units)
    }


def _refused(asked: PlanQuestion, kinds: Sequence[PlanUnits]) -> dict[tuple[str, str], str]:
    """Why a model cannot be asked about on a kind of unit, by its name and the kind's cluster."""
    found: dict[tuple[str, str], str] = {}
    problems: list[Problem] = []
    clusters = list(dict.fromkeys(units.cluster for units in kinds))
    for model in asked.models:
        own: list[Problem] = []
        for cluster in clusters:
            before = len(own)
            with noted(own):
                instance = resolve_instance(model.scenario(cluster, ()))
                if model.engine == ANY:
                    questions(instance)
            if len(own) > before:
                found[model.called, cluster] = "; ".join(map(str, own[before:]))
            elif model.engine is None:
                break  # what else may be wrong is so on every kind
        if all((model.called, cluster) in found for cluster in clusters):
            problems += (Problem(f"{model.called}: {p.place}", p.message) for p in own)
    if problems:
        raise InstanceError(dict.fromkeys(problems))
    return found


def _searched(
    searches: list[Search],
    start: Start,
    clock: Clock,
    gap: float,
    seed: int,
    jobs: int,
    on_progress: Callable[[str], None],
) -> Iterator[tuple[Search, Offer]]:
    """Every search with its answer, as they come."""
    if jobs == 1:
        for model, units, off in searches:
            on_progress(f"{model.called} on {units.cluster}")
            yield (
                (model, units, off),
                offer(model, units, off, start, clock=clock, gap=gap, seed=seed),
            )
        return
    # the wall clock is what processes have in common
    until = None if clock.limit_s is None else time.time() + clock.remaining_s
    own = _together(searches, jobs)
    calls = (joblib.delayed(_offered)(some, start, until, gap, seed) for some in own)
    # Ray's backend gives all answers at the end
    each = joblib.parallel.get_active_backend()[0].supports_return_generator
    parallel = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator" if each else "list")
    for some, answers in zip(own, parallel(calls), strict=True):
        if clock.stopped:
            raise NoLayoutInTime("stopped before the first plan")
        for one, answer in zip(some, answers, strict=True):
            on_progress(f"{one[0].called} on {one[1].cluster}")
            yield one, answer


def _together(searches: list[Search], jobs: int) -> list[list[Search]]:
    """Searches that one process makes: all of a model, which share where its experts lie, if there are many models; else one."""
    by_model: dict[str, list[Search]] = {}
    for one in searches:
        by_model.setdefault(one[0].called, []).append(one)
    many = len(by_model) >= _MODELS_PER_JOB * jobs
    return [*by_model.values()] if many else [[one] for one in searches]


def _offered(
    some: list[Search], start: Start, until: float | None, gap: float, seed: int
) -> list[Offer]:
    """Searches in a process of their own, until so many seconds of the wall clock."""
    found = []
    for model, units, off in some:
        clock = Clock(None if until is None else max(0.0, until - time.time()))
        found.append(offer(model, units, off, start, clock=clock, gap=gap, seed=seed))
    return found


def _up_to(one: Offer, units: int) -> Offer:
    """What there is room for on so many units."""
    fits = tuple(own for own in one.layouts if own.group <= units)
    reason = one.reason or ("" if fits else f"takes more than {units} units")
    return replace(one, layouts=fits, reason=reason)


def by_hour(value: float | tuple[float, ...], number: int) -> tuple[float, ...]:
    """One value for each hour."""
    return value if isinstance(value, tuple) else (value,) * number


def kinds_of(asked: PlanQuestion, number: int) -> tuple[tuple[Kind, ...], list[int]]:
    """Units with prices and power, and how many chips of each are off."""
    kinds, off = [], []
    for units, size in zip(asked.units, lost_of(asked)[1], strict=True):
        left_off, watts = chips_off(units, asked.power_overhead)
        price = sum(placed.chip.usd_per_hour for placed in load_cluster(units.cluster).chips)
        reserved = price if units.usd_per_hour is None else units.usd_per_hour
        rented = units.on_demand_usd_per_hour
        off.append(left_off)
        kinds.append(
            Kind(
                units.called,
                units.count,
                units.reserved_range,
                reserved,
                by_hour(reserved if rented is None else rented, number),
                watts,
                size,
            )
        )
    return tuple(kinds), off


def fits_somewhere(asked: PlanQuestion, offers: Offers) -> None:
    """Raise ``NoFeasibleLayout`` for models that no unit runs."""
    said = []
    for m, model in enumerate(asked.models):
        own = [offers[m, k] for k in range(len(asked.units))]
        if not any(one.layouts for one in own):
            reasons = (
                f"  on {units.called}: {one.why}"
                for units, one in zip(asked.units, own, strict=True)
            )
            said.append("\n".join((f"{model.called} runs on no unit", *reasons)))
    if said:
        raise NoFeasibleLayout("\n".join(said))


def columns_of(
    asked: PlanQuestion, offers: Offers, number: int
) -> tuple[tuple[Column, ...], tuple[UnitLayout, ...]]:
    """Columns of so many hours, each with its layout. Raises ``InstanceError`` where one takes longer to load or finish."""
    columns, layouts = [], []
    for (m, k), found in offers.items():
        for one in found.layouts:
            most = asked.units[k].count // one.group
            units = f"{one.group} x {asked.units[k].called}" + ", any one lost" * bool(one.kept)
            column = Column(
                f"{asked.models[m].called} on {units}", m, k, one.group,
                tuple(n * one.requests_per_s for n in range(most + 1)),
                one.start_s, one.drain_s, asked.least_hours, one.after_loss(most),
            )  # fmt: skip
            if max(column.loading_hours, column.draining_hours) > number:
                message = (
                    f"{column.name} takes {one.start_s:,.0f} s to load and {one.drain_s:,.0f} s to finish, longer "
                    f"than the {number} hours of the plan"
                )
                raise InstanceError(Problem(asked.name, message))
            columns.append(column)
            layouts.append(one)
    return tuple(columns), tuple(layouts)

"""The engine as a choice: the search of each engine that is kept, and the cheapest answer with one certificate.

No layout that any of the engines runs costs less than the least of their bounds. Each is searched to the gap
asked for, so that what it costs alone is known and the whole takes no longer than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.question.engine_files import (
    engine_names,
    engine_problems,
    engine_versions,
    load_engine,
)
from costmodel.question.instance import Instance
from solver.answer import Alone, Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock
from solver.rounds import Search
from solver.verify import better
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: searches one engine's question
SearchOne = Callable[[Instance, Callable[[Progress], None] | None], SearchResult]


def questions(instance: Instance) -> tuple[dict[str, Instance], list[Alone]]:
    """The question for the newest version of each engine, and engines that refuse it whatever the layout.

    Raises ``InstanceError`` where all of them do.
    """
    chips = {placed.chip.name: placed.chip for placed in instance.cluster.usable}.values()
    asked: dict[str, Instance] = {}
    refused: list[Alone] = []
    for name in engine_names():
        version = f"{name}@{engine_versions(name)[0]}"
        problems = engine_problems(version, instance.scenario.layer_slots, instance.model, chips)
        if problems:
            reason = "; ".join(problem.message for problem in problems)
            refused.append(Alone(version, load_engine(version).label, None, float("inf"), reason))
            continue
        scenario = instance.scenario.model_copy(update={"engine": version})
        asked[version] = replace(
            instance, scenario=scenario, profile=instance.profile.of_engine(name)
        )
    if not asked:
        raise InstanceError([Problem("engine", one.reason) for one in refused])
    return asked, refused


def cheapest_engine(
    instance: Instance,
    search_one: SearchOne,
    *,
    clock: Clock,
    gap: float,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
) -> SearchResult:
    """The answer of the engine that serves cheapest. Raises as :func:`solver.search.search`."""
    asked, alone = questions(instance)
    best: SearchResult | None = None
    late: NoLayoutInTime | None = None
    trajectory: list[Progress] = []
    for name, question in asked.items():
        label = load_engine(name).label

        def relay(progress: Progress, label: str = label, best: SearchResult | None = best) -> None:
            known = None if best is None else best.evaluation.usd_per_m_output_tokens
            costs = [cost for cost in (known, progress.incumbent) if cost is not None]
            relayed = Progress(
                progress.elapsed_s,
                min(costs, default=None),
                None,
                None,
                f"{label}: {progress.doing}",
            )
            trajectory.append(relayed)
            if on_progress is not None:
                on_progress(relayed)

        started = clock.elapsed_s
        found, bound, reason = None, 0.0, ""
        try:
            found = search_one(question, relay)
            bound = found.certificate.bound_usd_per_m_output_tokens
        except NoFeasibleLayout as failure:
            reason = str(failure)
            bound = float("inf") if failure.proven else _first_bound(question, clock, gap, seed)
        except NoLayoutInTime as failure:
            late, reason = failure, str(failure)
            bound = _first_bound(question, clock, gap, seed)
        cost = None if found is None else found.evaluation.usd_per_m_output_tokens
        alone.append(Alone(name, label, cost, bound, reason, clock.elapsed_s - started))
        if found is not None and better(
            found.evaluation, None if best is None else best.evaluation
        ):
            best = replace(found, instance=question)
    if best is None:
        if late is not None:
            raise late
        raise NoFeasibleLayout(
            ". ".join(f"{one.label}: {one.reason}" for one in alone),
            proven=all(one.bound_usd_per_m_output_tokens == float("inf") for one in alone),
        )
    return _answer(best, tuple(alone), clock, gap, trajectory)


def _first_bound(question: Instance, clock: Clock, gap: float, seed: int) -> float:
    """A bound of one engine's layouts before anything is placed; 0 where KV may lie in several places."""
    if question.scenario.kv_tiers or question.workload.hold_s is not None:
        raise NoLayoutInTime("the time limit came before every engine was bounded")
    return Search(question, clock, gap, seed, None).first_bound_usd()


def _answer(
    best: SearchResult,
    alone: tuple[Alone, ...],
    clock: Clock,
    gap: float,
    trajectory: list[Progress],
) -> SearchResult:
    """The best engine's answer with the bound over all of them."""
    cost = best.evaluation.usd_per_m_output_tokens
    assert cost is not None
    bound = min(cost, *(one.bound_usd_per_m_output_tokens for one in alone))
    found = cost / bound - 1.0
    proven = found <= max(gap, 1e-6)
    words = ", ".join(one.label for one in alone)
    own = best.certificate
    return replace(
        best,
        status="optimal" if proven else "feasible",
        certificate=Certificate(bound, found, (f"each of {words}, with:", *own.covers)),
        wall_s=clock.elapsed_s,
        proof_s=clock.elapsed_s if proven else None,
        trajectory=tuple(trajectory),
        engines=alone,
    )

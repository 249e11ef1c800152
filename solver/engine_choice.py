"""The engine as a choice: the search of each engine that is kept, and the cheapest answer with one certificate.

No layout that any of the engines runs costs less than the least of their bounds. Each is searched to the gap
asked for, so that what it costs alone is known and the whole takes no longer than one after the other. A runner-up is
looked for where it may become the answer: for the cheapest engine, and for those whose bound is below its cost.
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

#: the best layout so far, from any thread while a search runs
Snapshot = Callable[[], SearchResult | None]
#: told where the best layout so far is asked for
Keep = Callable[[Snapshot], None]
#: an answer, and how to look for its runner-up, which may turn out better
Searched = tuple[SearchResult, Callable[[], SearchResult]]
#: searches one engine's question
SearchOne = Callable[[Instance, Callable[[Progress], None] | None, Keep], Searched]


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
    first_bound: Callable[[Instance], float] | None = None,
) -> SearchResult:
    """The answer of the engine that serves cheapest. Raises as :func:`solver.search.search`.

    ``first_bound``: dollars per million output tokens that no layout of one engine's question costs less than, for an
    engine of which none was found.
    """
    bounded = first_bound or (lambda question: _first_bound(question, clock, gap, seed))
    asked, alone = questions(instance)
    found: dict[str, SearchResult] = {}
    finishes: dict[str, Callable[[], SearchResult]] = {}
    late: NoLayoutInTime | None = None
    trajectory: list[Progress] = []
    for name, question in asked.items():
        label = load_engine(name).label

        def relay(progress: Progress, label: str = label) -> None:
            known = found[_best(found)].evaluation.usd_per_m_output_tokens if found else None
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

        def keep(snapshot: Snapshot, name: str = name) -> None:
            clock.kept = lambda: _kept(asked, found, name, snapshot())

        started = clock.elapsed_s
        bound, reason = 0.0, ""
        try:
            found[name], finishes[name] = search_one(question, relay, keep)
            bound = found[name].certificate.bound_usd_per_m_output_tokens
        except NoFeasibleLayout as failure:
            reason = str(failure)
            bound = float("inf") if failure.proven else bounded(question)
        except NoLayoutInTime as failure:
            late, reason = failure, str(failure)
            bound = bounded(question)
        cost = found[name].evaluation.usd_per_m_output_tokens if name in found else None
        alone.append(Alone(name, label, cost, bound, reason, clock.elapsed_s - started))
    if not found:
        if late is not None:
            raise late
        raise NoFeasibleLayout(
            ". ".join(f"{one.label}: {one.reason}" for one in alone),
            proven=all(one.bound_usd_per_m_output_tokens == float("inf") for one in alone),
        )

    def answer() -> SearchResult:
        best = _asked(found[_best(found)], asked[_best(found)])
        return _answer(best, tuple(_told(one, found) for one in alone), clock, gap, trajectory)

    clock.kept = answer
    _finish(found, finishes)
    return answer()


def _told(alone: Alone, found: dict[str, SearchResult]) -> Alone:
    """What an engine costs, once its runner-up was looked for."""
    if alone.engine not in found:
        return alone
    one = found[alone.engine]
    return replace(
        alone,
        usd_per_m_output_tokens=one.evaluation.usd_per_m_output_tokens,
        bound_usd_per_m_output_tokens=one.certificate.bound_usd_per_m_output_tokens,
    )


def _best(found: dict[str, SearchResult]) -> str:
    """The engine whose answer is best; the first of equals."""
    best = next(iter(found))
    for name, one in found.items():
        if better(one.evaluation, found[best].evaluation):
            best = name
    return best


def _finish(
    found: dict[str, SearchResult], finishes: dict[str, Callable[[], SearchResult]]
) -> None:
    """Look for every runner-up that may be better than the best answer; ``found`` holds what came of it."""
    left = set(found)
    while True:
        best = _best(found)
        cost = found[best].evaluation.usd_per_m_output_tokens
        assert cost is not None
        may = [
            name
            for name in sorted(left)
            if name == best or found[name].certificate.bound_usd_per_m_output_tokens < cost
        ]
        if not may:
            return
        name = best if best in may else may[0]
        found[name] = finishes[name]()
        left.remove(name)


def _kept(
    asked: dict[str, Instance],
    before: dict[str, SearchResult],
    name: str,
    now: SearchResult | None,
) -> SearchResult | None:
    """The best answer while one engine is searched; the proof is of its own engine's layouts."""
    found = before if now is None else {**before, name: now}
    if not found:
        return None
    best = _best(found)
    certificate = found[best].certificate
    alone = f"{load_engine(best).label} alone: the search of the engines did not end"
    return replace(
        _asked(found[best], asked[best]),
        certificate=replace(certificate, covers=(alone, *certificate.covers)),
    )


def _asked(found: SearchResult, question: Instance) -> SearchResult:
    """An answer with its question: the engine's, or what was chosen within that."""
    return replace(found, instance=found.instance or question)


def _first_bound(question: Instance, clock: Clock, gap: float, seed: int) -> float:
    """A bound of one engine's layouts before anything is placed; not known where that is one of many searches."""
    several = question.scenario.kv_tiers or question.scenario.choices is not None
    if several or question.workload.hold_s is not None:
        raise clock.late("every engine was bounded")
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

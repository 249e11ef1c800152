"""The search for an instance's best layout: its rounds, one search for each choice and place of KV, and the runner-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from threading import Lock

import numpy as np

from costmodel.question.engine import ANY
from costmodel.question.instance import Instance
from costmodel.question.workload import Slo
from solver.answer import Progress, SearchResult
from solver.choices import ChoiceSearch, retold
from solver.clock import Clock, check_seed
from solver.engine_choice import Keep, Searched, Snapshot, cheapest_engine
from solver.known import Groundwork, groundwork
from solver.kv_search import PlanSearch
from solver.rounds import Search
from solver.runner_up import with_runner_up
from topology.errors import (
    InstanceError,
    Problem,
    on_command_line,
)

#: questions whose groundwork is kept: two, each with the bounds of what was measured and without
_MOST_KEPT = 4
#: by the question that it was made for, the last one used last
_kept: list[tuple[Instance, Groundwork]] = []
_changing = Lock()


def search(
    instance: Instance,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    runner_up: bool = False,
    workers: int = 1,
    on_answer: Callable[[SearchResult], None] | None = None,
    brief: bool = False,
) -> SearchResult:
    """Best verified layout of an instance, with a proven bound, and its runner-up if asked for.

    ``workers``: threads that place and price shapes. The same seed gives the same answer, with any number of
    them, unless the clock ends the search. ``on_answer``: called with the answer before its runner-up is looked
    for, where the engine is no choice. ``brief``: for a good layout whose proof does not matter; where the usual
    rounds leave a gap, few more are made (one question without tiers of KV and choices).

    Raises ``NoFeasibleLayout`` (with an explanation) where nothing fits, ``NoLayoutInTime`` where
    the clock ran out before the first verified layout, ``VerificationError`` on a bug,
    ``InstanceError`` for options that are not searched together.
    """
    check_seed(seed)

    def keep(snapshot: Snapshot) -> None:
        clock.kept = snapshot

    def one(
        question: Instance, progress: Callable[[Progress], None] | None, keep: Keep = keep
    ) -> Searched:
        found, engine, whole = searched(question, clock, gap, seed, progress, keep, workers, brief)
        if not runner_up or engine is None:
            return found, lambda: found

        def finished() -> SearchResult:
            last = with_runner_up(engine, found, proven=whole)
            return retold(last) if last.choices else last

        return found, finished

    if instance.scenario.engine == ANY:
        return cheapest_engine(
            instance, one, clock=clock, gap=gap, seed=seed, on_progress=on_progress
        )
    found, finish = one(instance, on_progress)
    if on_answer is not None:
        on_answer(found)
    return finish()


def searched(
    instance: Instance,
    clock: Clock,
    gap: float,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
    keep: Keep,
    workers: int,
    brief: bool = False,
) -> tuple[SearchResult, Search | None, bool]:
    """The answer without a runner-up, the search that can look for one, and whether that covered all there is."""
    if instance.scenario.choices is not None:
        choices = ChoiceSearch(
            instance, clock=clock, gap=gap, seed=seed, on_progress=on_progress, workers=workers,
            check=_check,
        )  # fmt: skip
        keep(choices.snapshot)
        return choices.run(), choices.best_search, False
    _check(instance)
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        plans = PlanSearch(
            instance, clock=clock, gap=gap, seed=seed, on_progress=on_progress, workers=workers
        )
        keep(plans.snapshot)
        return plans.run(), plans.best_search, False
    ground = kept_groundwork(instance)
    engine = Search(instance, clock, gap, seed, on_progress, workers=workers, ground=ground)
    keep(engine.snapshot)
    answer = engine.run(brief=brief)
    assert answer is not None
    # a runner-up is looked for among shapes of one group
    return answer, None if instance.scenario.apart else engine, True


def _check(instance: Instance) -> None:
    """Raise ``InstanceError`` where options do not combine in a search."""
    if instance.slo.of_replays:
        message = (
            "says that the targets are 99th percentiles under traffic, and this search has no traffic: leave it out, "
            + on_command_line("or ask with --ttft-p99 and --tpot-p99", "or ask with traffic")
        )
        raise InstanceError(Problem("slo.of_replays", message))
    _check_overlap(instance)
    if instance.scenario.apart:
        # entered where it is asked for, and nowhere else
        from solver.apart.asked import check_apart

        check_apart(instance)


def _check_overlap(instance: Instance) -> None:
    """Raise ``InstanceError`` where passes run in two halves and no bound covers that."""
    message = None
    if not instance.scenario.two_batch_overlap:
        return
    if instance.profile.combination != "per_op":
        message = (
            f"is searched where times of operations add up (per_op); profile {instance.profile.name} combines them as "
            f"{instance.profile.combination}: leave it out, then evaluate with it"
        )
    elif instance.engine is not None:
        message = (
            f"is searched without an engine: which exchanges of {instance.engine.label} run in halves is not known; "
            "leave out one of them"
        )
    if message is not None:
        raise InstanceError(Problem("two_batch_overlap", message))


def kept_groundwork(instance: Instance) -> Groundwork:
    """That of an earlier question which differs in its targets at most, else made anew; kept for later ones."""
    with _changing:
        earlier = list(_kept)
    for entry in earlier:
        if _differ_in_targets(entry[0], instance):
            break
    else:
        alike = (ground for other, ground in earlier if other.cluster is instance.cluster)
        entry = instance, groundwork(instance, next((one.pricer.sets for one in alike), None))
    with _changing:
        others = [other for other in _kept if other is not entry]
        _kept[:] = [*others[1 - _MOST_KEPT :], entry]
    return entry[1]


def _differ_in_targets(one: Instance, other: Instance) -> bool:
    """Whether two questions are the same but for their targets."""
    free = [each.scenario.model_copy(update={"slo": Slo()}) for each in (one, other)]
    apart = ("scenario", "cluster", "expert_loads")
    return (
        free[0] == free[1]
        and all(
            getattr(one, field.name) == getattr(other, field.name)
            for field in fields(Instance)
            if field.name not in apart
        )
        and np.array_equal(one.expert_loads, other.expert_loads)
        and one.cluster.digest == other.cluster.digest
    )

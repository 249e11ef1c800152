"""The search for an instance's best layout: its rounds, one search for each place of KV, and the runner-up."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.question.engine import ANY
from costmodel.question.instance import Instance
from solver.answer import Progress, SearchResult
from solver.clock import Clock, check_seed
from solver.engine_choice import cheapest_engine
from solver.kv_search import PlanSearch
from solver.rounds import Search
from solver.runner_up import with_runner_up
from topology.errors import InstanceError, Problem


def search(
    instance: Instance,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    runner_up: bool = False,
    workers: int = 1,
) -> SearchResult:
    """Best verified layout of an instance, with a proven bound, and its runner-up if asked for.

    ``workers``: threads that place and price shapes. The same seed gives the same answer, with any number of
    them, unless the clock ends the search.

    Raises ``NoFeasibleLayout`` (with an explanation) where nothing fits, ``NoLayoutInTime`` where
    the clock ran out before the first verified layout, ``VerificationError`` on a bug,
    ``InstanceError`` for an option that is evaluated but not searched.
    """
    check_seed(seed)
    if instance.scenario.engine == ANY:
        return cheapest_engine(
            instance,
            lambda one, progress: search(
                one, clock=clock, gap=gap, seed=seed, on_progress=progress, runner_up=runner_up,
                workers=workers,
            ),
            clock=clock, gap=gap, seed=seed, on_progress=on_progress,
        )  # fmt: skip
    if instance.scenario.two_batch_overlap:
        message = (
            "is evaluated, not searched: no bound covers it; leave it out, then evaluate with it"
        )
        raise InstanceError(Problem("two_batch_overlap", message))
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        plans = PlanSearch(
            instance, clock=clock, gap=gap, seed=seed, on_progress=on_progress, workers=workers
        )
        clock.kept = plans.snapshot
        found, engine, whole = plans.run(), plans.best_search, False
    else:
        engine, whole = Search(instance, clock, gap, seed, on_progress, workers=workers), True
        clock.kept = engine.snapshot
        answer = engine.run()
        assert answer is not None
        found = answer
    if runner_up and engine is not None:
        return with_runner_up(engine, found, proven=whole)
    return found

"""The Python API: solve, evaluate, place. What the command line does, typed and without printing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TypeVar

from costmodel.evaluate import Evaluation
from costmodel.evaluate import evaluate as _evaluate
from costmodel.layout.layout import Layout
from costmodel.question.choices.resolved import resolve_choosing
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario, load_scenario
from costmodel.together.question import Together, load_together, resolve_together
from costmodel.worlds.across import across
from costmodel.worlds.ensemble import worlds_of
from rackfit.documents.result import Result
from solver.answer import Progress, SearchResult
from solver.clock import Clock, check_time_limit
from solver.search import search
from solver.together.divided import Divided
from solver.together.for_traffic import divide_for_traffic
from solver.together.search import search_together
from solver.traffic.asked import Asked
from solver.traffic.engines import search_for
from solver.worlds.search import search_worlds
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

T = TypeVar("T")


def make_instance(
    question: Instance | Scenario | str | Path, *, choosing: bool = False
) -> Instance:
    """An instance from a scenario, the name of a shipped scenario, or the path of one.

    ``choosing``: whether the scenario may leave options to the search.
    """
    if isinstance(question, Instance):
        return question
    scenario = question if isinstance(question, Scenario) else load_scenario(str(question))
    chooses = choosing and scenario.choices is not None
    return resolve_choosing(scenario) if chooses else resolve_instance(scenario)


def solve(
    question: Instance | Scenario | str | Path,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.01,
    workers: int | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    on_answer: Callable[[Result], None] | None = None,
    beside: bool = True,
    clock: Clock | None = None,
    traffic: Asked | None = None,
    confidence: float | None = None,
) -> Result:
    """Find the cheapest layout and prove how far from optimal it can be.

    Parameters
    ----------
    question
        An :class:`Instance`, a :class:`Scenario`, or the name or path of a scenario.
    time_limit_s
        Seconds after which the best verified layout is returned (``None``: until proven).
    gap
        Relative gap at which the search stops (0.01 = within 1 % of optimal, proven).
    workers
        Threads that place and price shapes (default: all cores). The answer does not depend on it.
    seed
        Same question and seed, same answer.
    on_progress
        Called with elapsed time, incumbent, bound and gap after each round.
    on_answer
        Called with the answer and its proof before what stands beside it is looked for (for a question of one
        engine or none, without traffic).
    beside
        Whether the runner-up and the least cost within what was measured are looked for, too.
    clock
        Time of the search, for a caller that ends it from another thread (``clock.stop()``); it replaces
        ``time_limit_s``.
    traffic
        Requests over time and percentiles that replays of the answer must meet; they replace the question's
        lengths, rate and targets.
    confidence
        Least cost in this share of the parameter sets that measurements allow, instead of at the fitted ones
        (0.5 to 0.95).

    Returns
    -------
    Result
        Layout, evaluation and certificate; ``as_dict()`` is the published JSON document.

    Raises
    ------
    InstanceError
        The question is malformed; lists every problem.
    NoFeasibleLayout
        Nothing fits; the message names the limit and what would fit.
    NoLayoutInTime
        The time limit came before the first verified layout.
    """
    threads = _threads(gap, time_limit_s, workers)
    timed = clock if clock is not None else Clock(time_limit_s)
    if confidence is not None and traffic is not None:
        raise InstanceError(Problem("confidence", "is of one steady moment; not with traffic"))
    instance = make_instance(question, choosing=True)
    asked = traffic

    def proven(found: SearchResult) -> None:
        assert on_answer is not None
        on_answer(Result(found.instance or instance, found, seed=seed, workers=threads))

    def work() -> SearchResult:
        if asked is not None:
            return search_for(
                instance, asked, clock=timed, gap=gap, seed=seed, on_progress=on_progress,
                workers=threads,
            )  # fmt: skip
        if confidence is not None:
            return search_worlds(
                instance, confidence, clock=timed, gap=gap, seed=seed, on_progress=on_progress,
                workers=threads,
            )  # fmt: skip
        return search(
            instance, clock=timed, gap=gap, seed=seed, on_progress=on_progress, runner_up=beside,
            workers=threads, on_answer=None if on_answer is None else proven,
        )  # fmt: skip

    found = _interruptible(work, timed)
    answered = found.instance or instance
    within = None
    if asked is None and beside:
        found = _over_worlds(answered, found)
        within = _within_measured(answered, found, timed, gap=gap, seed=seed, workers=threads)
    return Result(
        answered, found, seed=seed, workers=threads, within_measured_usd_per_m_output_tokens=within
    )


def solve_together(
    question: Together | str | Path,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.01,
    workers: int | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    clock: Clock | None = None,
) -> Divided:
    """Layouts of several models on one cluster, each on chips of its own, with one proven bound on all of them.

    ``question``: a scenario with ``models``, or its name or path. Options as of :func:`solve`. Raises as :func:`solve`
    does; where nothing fits, the message says why by model.
    """
    threads = _threads(gap, time_limit_s, workers)
    timed = clock if clock is not None else Clock(time_limit_s)
    asked = question if isinstance(question, Together) else load_together(str(question))
    models = resolve_together(asked)
    return _interruptible(
        lambda: (divide_for_traffic if models.for_traffic else search_together)(
            models, clock=timed, gap=gap, seed=seed, workers=threads, on_progress=on_progress
        ),
        timed,
    )


def _threads(gap: float, time_limit_s: float | None, workers: int | None) -> int:
    """Threads to use. Raises ``InstanceError`` for an option of a search that is out of range."""
    if not 0 <= gap < 1:
        raise InstanceError(Problem("gap", f"must be at least 0 and below 1, got {gap:g}"))
    check_time_limit(time_limit_s)
    if workers is not None and not 1 <= workers <= 1024:
        raise InstanceError(Problem("workers", f"must be 1 to 1024, got {workers}"))
    return workers or os.cpu_count() or 1


def _over_worlds(instance: Instance, found: SearchResult) -> SearchResult:
    """The answer with its costs in every parameter set, beside its runner-up's."""
    if found.worlds is not None:
        return found
    others = [] if found.runner_up is None else [found.runner_up.layout]
    return replace(found, worlds=across(worlds_of(instance), [found.layout, *others]))


def _within_measured(
    instance: Instance, found: SearchResult, clock: Clock, *, gap: float, seed: int, workers: int
) -> float | None:
    """Least cost within what was measured: that of the answer where it keeps there, else of a search of its own."""
    kept = replace(
        instance,
        scenario=instance.scenario.model_copy(update={"within_measured": True, "apart": False}),
    )
    if not _evaluate(kept, found.layout).violations:
        return found.evaluation.usd_per_m_output_tokens
    if clock.over:
        return None
    own = clock.follower()
    try:
        nearer = _interruptible(
            lambda: search(kept, clock=own, gap=gap, seed=seed, workers=workers), clock
        )
    except (NoFeasibleLayout, NoLayoutInTime):
        return None
    return nearer.evaluation.usd_per_m_output_tokens


def _interruptible(work: Callable[[], T], clock: Clock) -> T:
    """Run the search so that Ctrl-C ends it with the best verified layout instead of a traceback."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # handed to the main thread below
            failure.append(error)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if clock.stopped:
            raise KeyboardInterrupt  # asked twice: leave at once
        clock.stop()

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        thread = threading.Thread(
            target=copy_context().run, args=(run,), name="rackfit-search", daemon=True
        )
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    finally:
        signal.signal(signal.SIGINT, previous)
    if failure:
        raise failure[0]
    return outcome[0]


def evaluate(question: Instance | Scenario | str | Path, layout: Layout) -> Evaluation:
    """Price any layout of an instance and list every rule it breaks. Never sees the solver."""
    return _evaluate(make_instance(question), layout)

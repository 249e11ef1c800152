"""The search for traffic under the question's engine, or under each that is kept where the engine is a choice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from costmodel.question.engine import ANY
from costmodel.question.instance import Instance
from solver.answer import Progress, SearchResult
from solver.clock import Clock
from solver.engine_choice import Keep, Searched, cheapest_engine
from solver.engine_choice import questions as by_engine
from solver.rounds import Search
from solver.traffic.asked import Asked, questions
from solver.traffic.prefixes import search_prefixes
from solver.traffic.search import search_traffic
from solver.traffic.ways import chunks_of, of_chunk


def search_for(
    instance: Instance,
    asked: Asked,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    workers: int = 1,
) -> SearchResult:
    """The cheapest layout for some traffic, of the engine that serves it cheapest where the question leaves that open.

    Each engine gets an equal part of the time that is left. Raises as :func:`solver.traffic.search.search_traffic`.
    """
    whole = search_traffic if asked.prefixes == "off" else search_prefixes
    find = partial(whole, asked=asked, gap=gap, seed=seed, workers=workers)
    if instance.scenario.engine != ANY:
        return find(instance.scenario, clock=clock, on_progress=on_progress)
    left = len(by_engine(instance)[0])

    def one(
        question: Instance, progress: Callable[[Progress], None] | None, keep: Keep
    ) -> Searched:
        nonlocal left
        own = clock.follower(1.0 / left)
        left -= 1
        keep(lambda: own.kept())
        found = find(question.scenario, clock=own, on_progress=progress)
        return found, lambda: found

    def bound(question: Instance) -> float:
        every = (
            questions(of_chunk(question.scenario, chunk), asked)
            for chunk in chunks_of(question.scenario, asked, fine=True)
        )
        return min(
            Search(own.every, clock, gap, seed, None).first_bound_usd() * own.share for own in every
        )

    return cheapest_engine(
        instance, one, clock=clock, gap=gap, seed=seed, on_progress=on_progress, first_bound=bound
    )

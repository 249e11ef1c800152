"""The layout of some units whose replays meet the percentiles of traffic at the highest rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Tables
from costmodel.replay.replay import Course
from solver.clock import Clock
from solver.place.assemble import assemble
from solver.plan.bounds.most import at_any_rate
from solver.rounds import Search
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import Fleets
from solver.traffic.judge import meets_targets
from solver.traffic.ways import chunks_of, of_chunk, order_open, shortest_first
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: capacity of prefill over that of decode, in layouts that are replayed
_AHEAD = (1.0, 1.25, 1.6)
#: times the rate at which mixed replicas are too small for any
_NEVER = 1e6
#: part of the steady layout's time to a first token within which others compute one
_QUICK = 0.1
#: part of what the steady layout carries at which no further one is tried
_ENOUGH = 0.97
#: so much more has to be carried before long prompts are put off
_WORTH = 1.01
#: halvings between rates that meet the percentiles and rates that do not, from one of these shares of the steady rate on
_HALVINGS, _LIKELY, _LEAST = 5, 0.85, 0.25
#: requests of a trace that is replayed as it is, at most
_WHOLE_TRACE = 20_000


@dataclass(frozen=True)
class AtRate:
    """A layout, what it carries in a steady state, and the rate at which its replays meet the percentiles."""

    instance: Instance
    layout: Layout
    evaluation: Evaluation
    steady_requests_per_s: float
    requests_per_s: float


def best_for_traffic(
    scenario: Scenario, asked: Asked, *, clock: Clock, gap: float, seed: int, likely: int = 0
) -> AtRate | None:
    """The layout whose replays meet the percentiles at the highest rate; ``None`` where none does at any.

    With each of the tokens that a pass may take (:func:`solver.traffic.ways.chunks_of`), the ``likely`` number first: what is no
    better than a good layout is soon told. Raises ``NoFeasibleLayout`` where
    none carries any rate in a steady state, ``NoLayoutInTime``.
    """
    best: AtRate | None = None
    errors: list[NoFeasibleLayout] = []
    chunks = sorted(chunks_of(scenario, asked), key=lambda chunk: chunk != likely)
    for chunk in chunks:
        try:
            best = _better(of_chunk(scenario, chunk), asked, best, clock, gap, seed)
        except NoFeasibleLayout as error:
            errors.append(error)
        except NoLayoutInTime:
            if best is None:
                raise
        if clock.over:
            break
    if len(errors) == len(chunks):
        raise min(errors, key=lambda error: error.proven)
    if best is None and clock.over:
        raise clock.late("a layout whose replay meets the targets")
    return best


def _better(
    scenario: Scenario, asked: Asked, best: AtRate | None, clock: Clock, gap: float, seed: int
) -> AtRate | None:
    """The best of a question, or the one that is known where none has a higher rate."""
    instance = at_any_rate(questions(scenario, asked).spread, "whole")
    plain = Search(instance, clock, gap, seed, None)
    found = plain.run()
    assert found is not None
    most = found.evaluation.requests_per_s or 0.0
    tables = Tables(asked.requests.longest)
    seen: list[Layout] = []
    ways = [(instance, 1.0)]
    if order_open(instance, asked):
        ways.append((shortest_first(instance), _WORTH))
    for layout in _candidates(plain, asked, found.evaluation.ttft_s or 0.0, seed, tables):
        if best is not None and best.requests_per_s >= _ENOUGH * most:
            break
        if layout in seen:
            continue
        seen.append(layout)
        evaluation = evaluate(instance, layout)
        steady = evaluation.requests_per_s or 0.0
        if evaluation.violations or (best is not None and steady <= best.requests_per_s):
            continue
        for own, more in ways:
            known = best.requests_per_s * more if best is not None else 0.0
            if known >= steady:  # replays may be too short to see that it carries no more
                continue
            rate = highest_rate(own, [layout], asked, steady, seed, tables, known)
            if rate > known:
                best = AtRate(own, layout, evaluation, steady, rate)
        if clock.over:
            break
    return best


def _candidates(
    plain: Search, asked: Asked, ttft_s: float, seed: int, tables: Tables
) -> Iterator[Layout]:
    """The steady layout, those with more prefill beside as much decode, and those that compute prompts more quickly.

    ``ttft_s``: what a first token takes in the steady layout. ``tables``: of passes, added to.
    """
    usual = Fleets(plain, asked.steady, asked.targets, seed, tables=tables)
    yield from _ahead(plain.instance, usual)
    # long prompts between decode passes are late for many: pools apart
    yield from _ahead(plain.instance, usual, mixed=_NEVER)
    quick = usual.under(plain.instance.slo.model_copy(update={"ttft": _QUICK * ttft_s}))
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


def highest_rate(
    instance: Instance,
    layouts: Sequence[Layout],
    asked: Asked,
    steady: float,
    seed: int,
    tables: Tables,
    known: float,
) -> float:
    """The highest rate found at which every replay of each layout meets the targets; 0 where none above what is ``known`` of others does.

    ``steady``: the least that any of them carries in a steady state. The first is looked at closely, so it should be the one that is likely to be
    the slowest.
    """
    course = Course.of(instance)

    @lru_cache(maxsize=1)
    def runs_at(rate: float) -> list[Requests]:
        runs = replace(asked, requests=asked.requests.at_rate(rate)).runs(seed)
        return (runs[1:] if len(runs[0]) > _WHOLE_TRACE else runs)[:2]

    def meets(layout: Layout, rate: float) -> bool:
        return all(
            meets_targets(instance, layout, one, asked.targets, course, tables)
            for one in runs_at(rate)
        )

    least = max(_LEAST * steady, known)
    slowest, *others = layouts
    rate = _highest(partial(meets, slowest), least, steady)
    # hardly ever is another slower than the first: replays of the rest confirm what that one says
    while rate:
        late = next((one for one in others if not meets(one, rate)), None)
        if late is None:
            break
        others = [slowest, *(one for one in others if one is not late)]
        slowest = late
        rate = _highest(partial(meets, late), least, rate)
    return rate


def _highest(meets: Callable[[float], bool], least: float, most: float) -> float:
    """The highest rate found from ``least`` to below ``most`` that meets the targets; 0 where none does."""
    low, high = max(_LIKELY * most, least), most
    if not meets(low):
        low, high = least, low
        if low >= high or not meets(low):
            return 0.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        if meets(rate):
            low = rate
        else:
            high = rate
    return low

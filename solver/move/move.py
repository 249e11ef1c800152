"""From a running layout to another, or to the best that moves few bytes: re-solve, choose chips, order, judge.

The search for the new question (:mod:`solver.search`) gives the best layout and the bound that all are measured by.
Among it and what :mod:`solver.move.choose` makes of the replicas that run, the one is taken that moves fewest bytes
within a share of the best cost, or costs least within a budget of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.engine import ANY
from costmodel.question.instance import Instance
from solver.answer import Progress, SearchResult
from solver.clock import Clock
from solver.move.between import check_same_cluster, through
from solver.move.made import made_of
from solver.move.onto_chips import nearest_chips
from solver.move.running import standing
from solver.move.steps import Asked, Steps, Walk
from solver.search import searched
from solver.verify import ROUNDING
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: part of the time that the search for the best layout may take
_SEARCH = 0.6
#: how many times as long each start may take to judge on the way to one layout as on that to another
_AS_LONG = 1.5


@dataclass(frozen=True)
class Candidate:
    """A layout that the move may go to, and the walk there."""

    name: str
    walk: Walk
    steps: Steps

    @property
    def layout(self) -> Layout:
        """The layout, on the chips that it is to take."""
        return self.walk.after

    @property
    def evaluation(self) -> Evaluation:
        """The evaluator's word on it."""
        return self.walk.judged

    @property
    def moved_bytes(self) -> float:
        """Bytes of the weights that chips have to load for it."""
        return self.walk.moved_bytes

    @property
    def least_requests_per_s(self) -> float:
        """What is served at the worst moment on the way."""
        return self.steps.least_requests_per_s

    @property
    def cost(self) -> float:
        """Dollars per million output tokens."""
        return _cost(self.evaluation)


@dataclass(frozen=True)
class Move:
    """A move: where to, in which steps, beside a plain restart; ``search`` where the target was looked for.

    ``candidates``: the layouts it was chosen from. ``restart``: bytes and seconds of stopping everything.
    """

    instance: Instance
    through: Instance
    target: Candidate
    steps: Steps
    restart: tuple[float, float | None]
    asked: Asked
    candidates: tuple[Candidate, ...] = ()
    search: SearchResult | None = None

    @property
    def seconds(self) -> float | None:
        """Of all steps, one after the other."""
        taken = [step.seconds for step in self.steps.steps]
        known = [one for one in taken if one is not None]
        return sum(known) if len(known) == len(taken) else None


@dataclass(frozen=True)
class Budget:
    """At most ``most_bytes`` moved at the least cost, or (``None``) fewest within ``within`` of the best cost.

    Of layouts that keep to it, those come first on whose way no request that is asked for goes unserved.
    """

    most_bytes: float | None = None
    within: float = 0.01


def move_to(
    before: tuple[Instance, Layout],
    target: tuple[Instance, Layout],
    asked: Asked,
    *,
    during: float | None = None,
    as_placed: bool = False,
) -> Move:
    """The move to a given layout; on chips that hold most of it already, unless it stays ``as_placed``."""
    instance, layout = target
    check_same_cluster(before[0], before[1], instance)
    judged = evaluate(instance, layout)
    if not judged.priced.replicas:
        listed = "; ".join(str(violation) for violation in judged.violations[:3])
        raise InstanceError(Problem("the target layout", f"cannot be priced: {listed}"))
    if not as_placed:
        nearer = nearest_chips(instance, before[1], layout)
        again = evaluate(instance, nearer)
        if len(again.violations) <= len(judged.violations) and _cost(again) <= _cost(judged) * (
            1 + ROUNDING
        ):
            layout = nearer
    between = through(before[0], instance, during)
    walk = Walk(instance, between, (before[1], layout), asked)
    return _moved(Candidate("target", walk, walk.steps))


def move_within(
    before: tuple[Instance, Layout],
    instance: Instance,
    asked: Asked,
    budget: Budget,
    *,
    clock: Clock,
    during: float | None = None,
    gap: float = 0.01,
    seed: int = 0,
    workers: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
) -> Move:
    """The move to the layout of a new question that the budget asks for.

    Where the time ends before all ways were judged, what still runs is a candidate if it meets the targets; without a
    bound if the search had no layout. Raises ``NoFeasibleLayout`` where nothing fits, or nothing that was found keeps to the budget of bytes;
    ``NoLayoutInTime`` where the time ended before either.
    """
    check_same_cluster(before[0], before[1], instance)
    if instance.scenario.engine == ANY:
        raise InstanceError(Problem("engine", "any is no choice here: name the engine that runs"))
    running = before[1]
    between = through(before[0], instance, during)

    def walk_to(layout: Layout) -> Walk:
        return Walk(instance, between, (running, layout), asked)

    found: list[Candidate] = []
    least = float("inf")
    answer: SearchResult | None = None

    def chosen() -> Move | None:
        # where time was short, what still runs is a choice like any other
        every = found if found and not clock.over else [*found, *still]
        if not every:
            return None
        taken = _taken(every, budget, least, between.scenario.rate or 0.0, clock)
        return replace(_moved(taken), candidates=tuple(every), search=answer)

    # judged first: whoever stops the search does not wait for it
    still: list[Candidate] = []
    left = tuple(running.replicas[at] for at in standing(instance, running))
    kept = running.model_copy(update={"replicas": left})
    if evaluate(instance, kept).feasible:
        walk = walk_to(kept)
        still.append(Candidate("what still runs", walk, walk.steps))
    clock.kept = chosen
    # the way there takes time, too
    try:
        best, engine, _ = searched(
            instance, clock.follower(_SEARCH), gap, seed, on_progress, lambda _: None, workers
        )
    except NoLayoutInTime:
        move = chosen()
        if move is None:
            raise
        return move
    answer = best
    walk = walk_to(nearest_chips(instance, running, best.layout))
    if walk.judged.violations:
        walk = walk_to(best.layout)
    ways = [("best", walk)]
    least = min(_cost(best.evaluation), _cost(walk.judged))
    if engine is not None and not clock.over:
        made = made_of(running, engine, budget.most_bytes, budget.within, least, clock, seed)
        ways += [(name, walk_to(layout)) for name, layout in made]
    _judge(ways, budget, clock, found)
    move = chosen()
    assert move is not None  # the first way is judged whatever the time
    return move


def _judge(
    ways: Sequence[tuple[str, Walk]], budget: Budget, clock: Clock, found: list[Candidate]
) -> None:
    """Add ways whose states were all judged to ``found``, as far as the time allows.

    The way that is soonest judged comes first; with a budget of bytes, the one that moves fewest.
    """
    feasible = [
        (name, walk) for at, (name, walk) in enumerate(ways) if not at or walk.judged.feasible
    ]
    bytes_count = budget.most_bytes is not None
    feasible.sort(key=lambda way: way[1].moved_bytes if bytes_count else len(way[1].new))
    each_s = 0.0
    for name, walk in feasible:
        if found and clock.remaining_s <= _AS_LONG * each_s * (1 + len(walk.new)):
            continue
        began = clock.elapsed_s
        found.append(Candidate(name, walk, walk.steps))
        each_s = (clock.elapsed_s - began) / (1 + len(walk.new))


def _taken(
    found: Sequence[Candidate], budget: Budget, best: float, rate: float, clock: Clock
) -> Candidate:
    """The candidate that the budget asks for."""
    if budget.most_bytes is None:
        most = max(best, min(one.cost for one in found)) * (1 + budget.within) * (1 + ROUNDING)
        # where the time ended before a way to a layout so cheap was judged, the cheapest
        allowed = [one for one in found if one.cost <= most] or [
            min(found, key=lambda one: one.cost)
        ]
    else:
        allowed = [one for one in found if one.moved_bytes <= budget.most_bytes]
    if not allowed:
        assert budget.most_bytes is not None
        bytes_said = f"{budget.most_bytes / 1e9:,.1f} GB"
        if clock.over:
            raise clock.late(f"a layout that moves at most {bytes_said} was found")
        least = min(one.moved_bytes for one in found)
        raise NoFeasibleLayout(
            f"no layout was found that moves at most {bytes_said}; one that moves {least / 1e9:,.1f} GB was",
            proven=False,
        )

    def rank(one: Candidate) -> tuple[float, float, float]:
        short = round(max(0.0, rate - one.least_requests_per_s), 6)
        pair = (one.moved_bytes, one.cost)
        return short, *(pair if budget.most_bytes is None else pair[::-1])

    return min(allowed, key=rank)


def _moved(target: Candidate) -> Move:
    walk = target.walk
    return Move(walk.instance, walk.through, target, target.steps, walk.plain_restart, walk.asked)


def _cost(evaluation: Evaluation) -> float:
    found = evaluation.usd_per_m_output_tokens
    return float("inf") if found is None else found

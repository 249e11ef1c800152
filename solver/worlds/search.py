r"""The layout whose cost at a confidence is least: the cost that it does not exceed in this share of the worlds.

A layout that breaks a rule in a world (misses a target, a rate or what links carry) costs infinitely much there: it has
to keep to the question in that share of the worlds, and at the fitted parameters. Batches and replicas are the layout's and the same in every world;
rates are each world's own, where prefill and decode meet at the smaller.

*Candidates.* The answer at the fitted parameters says how dear each world is. The optimum of the world at the quantile, then
where that is not proven best that of the worst of each constant over all worlds up to it, and those of the dearer worlds are
judged in all worlds by the evaluator; then, as long as there is time and a gap, those of every world.

*Bound.* ``c_w(x) >= b_w`` for every layout ``x`` and world ``w``, with ``b_w`` the proven bound of a search of that world,
so that the quantile of ``c_w(x)`` is at least that of ``b_w``: of ``n`` worlds the ``k`` dearest decide it, and the least of
their ``k`` bounds is at most the ``(n - k + 1)``-th of all. Several worlds have one bound in common: that of the question
with the best of each constant, whose passes take no longer in any of them; where links between domains bind, quicker
passes may send more than these carry, and every world is bounded by itself. So it is where that leaves a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.question.engine import ANY
from costmodel.question.instance import Instance
from costmodel.question.scenario import without_apart
from costmodel.worlds.across import Across, Costs, costs_of, least_of
from costmodel.worlds.ensemble import PROFILE, place_of, quickest, slowest, worlds_of
from solver.answer import Progress, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock
from solver.fleet.asked import links_between
from solver.rounds import Search
from solver.search import search
from solver.verify import ROUNDING
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem

#: searches that share out the worlds that decide the quantile
_GROUPS = 3
#: part of the time that the first search has, unless it has no layout then: others need some
_FIRST = 0.4
#: the widest confidence that worlds can tell
MOST = 0.95


@dataclass(frozen=True)
class _Candidate:
    """A layout found, with its costs in every world."""

    found: SearchResult
    costs: Costs


class WorldsSearch:
    """The searches for one layout in all worlds."""

    def __init__(
        self,
        instance: Instance,
        worlds: Sequence[Instance],
        confidence: float,
        *,
        clock: Clock,
        gap: float,
        seed: int,
        on_progress: Callable[[Progress], None] | None = None,
        workers: int = 1,
    ):
        self.instance = instance
        self.worlds = worlds
        self.confidence = confidence
        self.clock = clock
        self.gap = gap
        self.seed = seed
        self.on_progress = on_progress
        self.workers = workers
        self.candidates: list[_Candidate] = []
        self.bound = 0.0
        clock.kept = lambda: self.answer() if self.best is not None and self.bound > 0 else None

    @property
    def best(self) -> _Candidate | None:
        """The candidate with the least finite cost at the confidence, the first of equals."""
        kept = [one for one in self.candidates if one.costs.at(self.confidence) < float("inf")]
        return min(kept, key=lambda one: one.costs.at(self.confidence), default=None)

    def run(self) -> SearchResult:
        """Search and judge. Raises as :func:`solver.search.search`."""
        self.look(self.instance, required=True)
        worlds = self.ranked()
        place = place_of(self.confidence, len(worlds))
        groups = [
            quickest(each) if len(each) > 1 else each[0] for each in self.groups(worlds[place:])
        ]
        # where no time is left for a search, what bounds all layouts before any is placed
        bounds = [self.look(groups[0]) or self.bound_of(groups[0], 0.0)]
        bounds += [self.bound_of(group, bounds[0]) for group in groups[1:]]
        self.bound = min(bounds)
        self._possible()
        for question in (slowest(worlds[: place + 1]), *groups[1:]):
            if not self.proven:
                self.look(question)
        self.one_by_one(worlds, place)
        if self.best is None or self.bound <= 0:
            if self.clock.over:
                raise self.clock.late("a layout and a bound for this confidence")
            raise NoFeasibleLayout(
                f"no layout was found that meets the targets in {self.confidence:.0%} of the parameter sets",
                proven=False,
            )
        return self.answer()

    def one_by_one(self, worlds: Sequence[Instance], place: int) -> None:
        """Bound and search world by world while that is not proven: first those that decide, then cheaper ones, the dearest first."""
        bounds = [self.bound if at >= place else 0.0 for at in range(len(worlds))]
        for at in (*range(place, len(worlds)), *reversed(range(place))):
            if self.proven or self.clock.over:
                return
            best = self.best
            enough = float("inf") if best is None else best.costs.at(self.confidence)
            bounds[at] = max(bounds[at], self.bound_of(worlds[at], enough))
            self.bound = max(self.bound, sorted(bounds)[place])
            self._possible()

    def _possible(self) -> None:
        """Raise ``NoFeasibleLayout`` where so many worlds have no layout that the confidence has none."""
        if self.bound == float("inf"):
            raise NoFeasibleLayout(
                f"no layout meets the targets in {self.confidence:.0%} of the {len(self.worlds)} parameter sets; "
                "ask for a lower confidence or for less"
            )

    @property
    def proven(self) -> bool:
        """Whether the best is within the gap asked for."""
        best = self.best
        if best is None or self.bound <= 0:
            return False
        return best.costs.at(self.confidence) <= self.bound * (1.0 + max(self.gap, ROUNDING))

    def bound_of(self, question: Instance, enough: float) -> float:
        """A question's proven bound: that before anything is placed where it is enough, else its search's."""
        scenario = question.scenario
        if not (scenario.kv_tiers or question.workload.hold_s is not None):
            clock = self.clock.follower()
            first = Search(question, clock, self.gap, self.seed, None, workers=self.workers)
            found = first.first_bound_usd()
            if found >= enough or self.clock.over:
                return found
        return self.look(question)

    def look(self, question: Instance, *, required: bool = False) -> float:
        """Search a question and keep its layout as a candidate; its proven bound, 0 where nothing is proven.

        Raises what the search raises where it is ``required``.
        """
        if self.clock.over and not required:
            return 0.0
        own = question is self.instance
        ask = partial(
            search, question, gap=self.gap, seed=self.seed,
            on_progress=self.on_progress if own else None, workers=self.workers,
        )  # fmt: skip
        try:
            try:
                found = ask(clock=self.clock.follower(_FIRST if own else 1.0))
            except NoLayoutInTime:
                if self.clock.over or not own:
                    raise
                found = ask(clock=self.clock.follower())
        except NoFeasibleLayout as failure:
            if required:
                raise
            return float("inf") if failure.proven else 0.0
        except NoLayoutInTime:
            if required:
                raise
            return 0.0
        judged = evaluate(self.instance, found.layout)
        if not judged.violations:
            kept = replace(found, evaluation=judged)
            self.candidates.append(_Candidate(kept, costs_of(self.worlds, found.layout)))
        return found.certificate.bound_usd_per_m_output_tokens

    def ranked(self) -> list[Instance]:
        """The worlds from the cheapest to the dearest, by what the first candidate costs there."""
        served = self.candidates[0].costs.served
        return [self.worlds[place] for place in np.argsort(served, kind="stable")]

    def groups(self, worlds: Sequence[Instance]) -> list[list[Instance]]:
        """The worlds that decide, those alike in cost together; each alone where links between domains may bind."""
        several = len(worlds) if links_between(self.instance) is not None else _GROUPS
        parts = np.array_split(np.arange(len(worlds)), min(several, len(worlds)))
        return [[worlds[place] for place in part] for part in parts]

    def answer(self) -> SearchResult:
        """The best candidate with its certificate at the confidence."""
        best = self.best
        assert best is not None
        cost = best.costs.at(self.confidence)
        bound = min(self.bound, cost)
        gap = cost / bound - 1.0
        proven = gap <= max(self.gap, ROUNDING)
        first = self.candidates[0].costs.at(self.confidence)
        words = (
            f"the cost in {self.confidence:.0%} of {len(self.worlds)} parameter sets, infinite where a target is missed; "
            "in every parameter set:"
        )
        return replace(
            best.found,
            status="optimal" if proven else "feasible",
            certificate=Certificate(bound, gap, (words, *best.found.certificate.covers)),
            wall_s=self.clock.elapsed_s,
            proof_s=self.clock.elapsed_s if proven else None,
            worlds=Across(
                best.costs,
                least_of([one.costs for one in self.candidates]),
                self.confidence,
                cost,
                bound,
                first,
            ),
        )


def search_worlds(
    instance: Instance,
    confidence: float,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    workers: int = 1,
) -> SearchResult:
    """The layout with the least cost at a confidence. Raises as :func:`solver.search.search`, and ``InstanceError``
    for a confidence that worlds cannot tell, and for a profile whose uncertainty is not known."""
    without_apart(instance.scenario, "a search at a confidence")
    if not 0.5 <= confidence <= MOST:
        raise InstanceError(Problem("confidence", f"must be 0.5 to {MOST}, got {confidence:g}"))
    if instance.scenario.engine == ANY:
        message = "the engine must be named: each has parameters of its own"
        raise InstanceError(Problem("confidence", message))
    if instance.scenario.choices is not None:
        raise InstanceError(
            Problem("confidence", "leaves no choices: name one value of each option")
        )
    worlds = worlds_of(instance)
    if not worlds:
        raise InstanceError(
            Problem(
                "confidence",
                f"how far profile {instance.profile.name} may be off is not known; parameter sets are shipped for "
                f"{PROFILE}, as it is, and for its engines",
            )
        )
    found = WorldsSearch(
        instance, worlds, confidence, clock=clock, gap=gap, seed=seed, on_progress=on_progress,
        workers=workers,
    )  # fmt: skip
    return found.run()

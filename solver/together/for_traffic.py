"""The search for layouts of several models that have traffic: one model after another, on what the others leave.

1. Each model is searched alone on the whole cluster; what they cost at least adds up to a bound, as no chip serves two
models. 2. The dearest model keeps its layout, and the next ones are searched on the chips that are left; the same from the
cheapest on. 3. Layouts are judged together, and each was replayed with its own requests. The cheapest division is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.question.traffic.load import load_traffic, over_time
from costmodel.replay.targets import Targets
from costmodel.together.judge import Judged, judge
from costmodel.together.question import Models
from solver.answer import SearchResult
from solver.clock import Clock, check_seed
from solver.explain.explain import of_one_of_several
from solver.together.alone import OnProgress, told_under
from solver.together.divided import Divided, gap_of, money_alone
from solver.traffic.asked import Asked, questions
from solver.traffic.search import search_traffic
from solver.verify import ROUNDING
from topology.errors import (
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    Problem,
    VerificationError,
)
from topology.quantity import figure

#: how often models whose share of the time was too short are searched again
_AGAIN = 2


def traffic_of(models: Models, seed: int) -> tuple[Asked, ...]:
    """What is asked of each model. Raises ``InstanceError`` with what is wrong of all of them."""
    found, problems = [], list[Problem]()
    for at, one in enumerate(models.asked.models):
        assert one.traffic is not None
        try:
            loaded = load_traffic(one.traffic, rate=one.rate, seed=seed).whole_prompts()
            requests = over_time(loaded, f"models[{at}].traffic")
        except InstanceError as error:
            problems += error.problems
            continue
        targets = Targets(one.slo.ttft, one.slo.tpot, one.goodput)
        found.append(Asked(requests, targets, one.peak, models.asked.spare))
        try:
            questions(models.instances[at].scenario, found[-1])
        except InstanceError as error:
            problems += [
                Problem(f"models[{at}].{own.place}", own.message) for own in error.problems
            ]
    if problems:
        raise InstanceError(problems)
    return tuple(found)


def divide_for_traffic(
    models: Models,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> Divided:
    """The cheapest division of the chips found whose layouts meet the percentiles, with a proven bound.

    Raises ``NoFeasibleLayout`` with the reason by model, ``NoLayoutInTime``, ``InstanceError`` for traffic.
    """
    check_seed(seed)
    asked = traffic_of(models, seed)
    return _InTurn(models, asked, clock, gap, seed, workers, on_progress).run()


@dataclass(frozen=True)
class _Found:
    """An answer for each model, on chips of its own, and the judge's word on all."""

    models: Models
    answers: tuple[SearchResult, ...]
    judged: Judged


class _InTurn:
    """One model after another."""

    def __init__(
        self,
        models: Models,
        asked: Sequence[Asked],
        clock: Clock,
        gap: float,
        seed: int,
        workers: int,
        on_progress: OnProgress | None,
    ):
        self.models, self.asked, self.clock = models, asked, clock
        self.gap, self.seed, self.workers, self.on_progress = gap, seed, workers, on_progress
        self.rates = [one.peak_rate for one in asked]
        self.best: _Found | None = None
        #: searches to come, which share the time that is left: of all models alone, then beside others in either order
        self.to_come = len(asked) + 2 * (len(asked) - 1)
        self.alone = self._each_alone()
        self.least = [
            money_alone(self._at(self.alone), at, one) for at, one in enumerate(self.alone)
        ]
        #: what all models cost at least: no chip serves two
        self.bound = sum(self.least)
        clock.kept = self.snapshot

    def run(self) -> Divided:
        """The answer."""
        whole = self.models.whole_usd_per_hour
        if self.bound > whole * (1 + ROUNDING):
            raise NoFeasibleLayout(self._why(), proven=True)
        order = sorted(range(len(self.asked)), key=lambda at: -self.least[at])
        for turn in (order, order[::-1]):
            found = self._in_turn(turn)
            if found is not None and (
                self.best is None
                or found.judged.usd_per_hour < self.best.judged.usd_per_hour * (1 - ROUNDING)
            ):
                self.best = found
            if len(order) == 1 or self.clock.over or self._near():
                break
        answer = self.snapshot()
        if answer is not None:
            return answer
        if self.clock.over:
            raise self.clock.late("layouts of all models that meet the percentiles")
        raise NoFeasibleLayout(f"no division of the chips was found: {self._why()}", proven=False)

    def snapshot(self) -> Divided | None:
        """The best division so far."""
        best = self.best
        if best is None:
            return None
        if self.bound > best.judged.usd_per_hour * (1 + ROUNDING):
            raise VerificationError("layouts are better than the bound on all of them")
        replayed = tuple(one.traffic for one in best.answers if one.traffic is not None)
        return Divided(
            models=best.models,
            layouts=tuple(one.layout for one in best.answers),
            judged=best.judged,
            bound=min(self.bound, best.judged.usd_per_hour),
            target=self.gap,
            alone=tuple(self.alone),
            seed=self.seed,
            wall_s=self.clock.elapsed_s,
            replayed=replayed,
        )

    def _near(self) -> bool:
        best = self.best
        return best is not None and gap_of(best.models, best.judged, self.bound) <= self.gap

    def _each_alone(self) -> list[SearchResult]:
        """Each model on all chips; those whose share of the time was too short then share all of what is left."""
        found, reasons = dict[int, SearchResult](), list[tuple[str, NoFeasibleLayout]]()
        late, beside = dict[int, NoLayoutInTime](), self.to_come - len(self.asked)
        waiting = list(range(len(self.asked)))
        for _ in range(1 + _AGAIN):
            late = {}
            for at in waiting:
                try:
                    found[at] = self._searched(at, ())
                except NoFeasibleLayout as error:
                    reasons.append((self.models.names[at], error))
                except NoLayoutInTime as error:
                    late[at] = error
            if not late or reasons or self.clock.over:
                break
            waiting = list(late)
            self.to_come = len(late)
        if reasons:
            raise NoFeasibleLayout(
                "\n".join(f"{name}: {of_one_of_several(str(error))}" for name, error in reasons),
                proven=any(error.proven for _, error in reasons),
            )
        for at, slow in late.items():
            raise NoLayoutInTime(f"{self.models.names[at]}: {slow}") from None
        self.to_come = beside
        return [found[at] for at in range(len(self.asked))]

    def _searched(self, at: int, taken: Sequence[str]) -> SearchResult:
        """A search for one model where others have some chips."""
        scenario = self.models.beside(at, taken).scenario
        clock = self.clock.follower(1.0 / max(1, self.to_come))
        self.to_come -= 1
        return search_traffic(
            scenario, self.asked[at], clock=clock, gap=self.gap, seed=self.seed, workers=self.workers,
            on_progress=told_under(self.models.names[at], self.on_progress),
        )  # fmt: skip

    def _in_turn(self, turn: Sequence[int]) -> _Found | None:
        """Each model on what those before it leave; ``None`` where one finds no room, or the judge rejects them."""
        found = {turn[0]: self.alone[turn[0]]}
        for at in turn[1:]:
            taken = sorted(
                chip
                for answer in found.values()
                for replica in answer.layout.replicas
                for chip in replica.chips
            )
            if len(taken) >= len(self.models.instances[at].cluster.usable):
                return None
            try:
                found[at] = self._searched(at, taken)
            except (NoFeasibleLayout, NoLayoutInTime):
                return None
        answers = tuple(found[at] for at in range(len(self.asked)))
        models = self._at(answers)
        judged = judge(models, [one.layout for one in answers])
        return None if judged.violations else _Found(models, answers, judged)

    def _at(self, answers: Sequence[SearchResult]) -> Models:
        """The models at their peaks, with the questions of such answers on the whole cluster: no chips of others are taken."""
        instances = []
        for base, answer in zip(self.models.instances, answers, strict=True):
            own = answer.instance
            assert own is not None
            scenario = own.scenario.model_copy(update={"taken": base.scenario.taken})
            instances.append(replace(own, scenario=scenario, cluster=base.cluster))
        return self.models.at(self.rates, instances)

    def _why(self) -> str:
        needs = [
            f"{name} at least ${least:,.2f}/h for {figure(rate, 6)} requests/s"
            for name, least, rate in zip(self.models.names, self.least, self.rates, strict=True)
        ]
        cluster = self.models.instances[0].cluster
        return (
            f"each model fits alone, but not all together on {cluster.name}: of its {len(cluster.usable)} chips "
            f"(${self.models.whole_usd_per_hour:,.2f}/h) {', '.join(needs)}"
        )

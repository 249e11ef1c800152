"""A layout found for traffic, judged: it is replayed on every run, and after every loss on one that was drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Tables
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay_with
from costmodel.replay.targets import Judged, Patience, Targets
from solver.traffic.asked import Asked
from solver.traffic.losses import losses
from solver.verify import ROUNDING

#: part of those draws that a layout may miss where none was found that meets all which confirm it
_LEFT = 0.05


@dataclass(frozen=True)
class Verdict:
    """What replays say of a layout: ``met`` on the traffic as it is, and the verdict of each run up to the first miss.

    ``met`` is ``None`` where that run missed a target.
    """

    met: Met | None
    runs: tuple[Judged, ...]
    #: after which losses it was replayed
    after: int
    #: whether it was replayed on every fresh draw too
    confirmed: bool = False
    #: of how many draws by which nothing was chosen it meets how many, where it missed one that confirms
    draws: tuple[int, int] | None = None

    @property
    def meets(self) -> bool:
        """Whether every target was met in every run."""
        return all(one.meets for one in self.runs)

    @property
    def missed(self) -> tuple[str, ...]:
        """Roles that were too slow."""
        last = self.runs[-1]
        # a replay ends where too many requests missed either: what missed more is what was too slow
        both = last.both_missed and not (last.first_missed or last.tokens_missed)
        before, waited = last.late_first - last.waited, last.waited
        slow = last.slow_tokens + waited
        first = (last.first_missed and before >= waited) or (both and before >= slow)
        later = (last.first_missed and waited > before) or (both and slow >= before)
        tokens = last.tokens_missed or later
        found = ("prefill",) * first + ("decode",) * tokens
        return (*found, "mixed") if found else ()


class Judge:
    """Replays layouts of one question.

    ``like``: a judge of the same traffic, with which it shares what is learnt of draws. ``tables``: of passes, those of this question.
    """

    def __init__(
        self,
        instance: Instance,
        asked: Asked,
        seed: int,
        like: Judge | None = None,
        tables: Tables | None = None,
    ) -> None:
        self.instance, self.asked, self.seed = instance, asked, seed
        self.runs: list[Requests] = asked.runs(seed) if like is None else like.runs
        self._fresh: list[Requests] = asked.fresh(seed) if like is None else like._fresh
        self._like = like
        self.course = asked.course(instance, seed)
        self._known: dict[object, Verdict] = {}
        self._known_of = len(self.runs)
        self._tables = tables or Tables(asked.requests.longest)

    @cached_property
    def likely(self) -> list[Requests]:
        """Draws by which no layout is judged: their queues tell what those will ask for that an answer is confirmed on."""
        return self.asked.likely(self.seed) if self._like is None else self._like.likely

    @property
    def nothing(self) -> Verdict:
        """That of a layout by which no request meets its targets."""
        return Verdict(None, (Judged(1.0, 1.0, 0.0, self.asked.targets),), 0)

    def judge(self, layout: Layout) -> Verdict:
        """Replay a layout until a run misses a target."""
        if self._known_of != len(self.runs):  # a draw was added since
            self._known.clear()
            self._known_of = len(self.runs)
        key = self._key(layout)
        if key not in self._known:
            self._known[key] = self._judge(layout)
        return self._known[key]

    def confirm(self, layout: Layout, over: Callable[[], bool]) -> Verdict:
        """Replay a layout that met the targets on fresh draws too, until a run misses one or the time is ``over``.

        What was chosen by some draws is likely to do better on them than on others.
        """
        known = self.judge(layout)
        found = list(known.runs)
        tests = [(layout, requests) for requests in self._fresh]
        if self.asked.spare:  # what is left of it first: it is likelier to be too slow
            rests = losses(self.instance, layout, self.asked.spare)
            tests[:0] = [(rest, self._fresh[0]) for rest in rests]
        confirmed = True
        for tried, requests in tests:
            if not found[-1].meets:
                break
            if over():
                confirmed = False
                break
            self._replay(tried, [requests], found)
            if not found[-1].meets:
                self._learn(requests)
        told = replace(known, runs=tuple(found), confirmed=confirmed)
        self._known[self._key(layout)] = told
        return told

    def counted(self, layout: Layout, over: Callable[[], bool]) -> tuple[int, int] | None:
        """On how many of the draws by which nothing was chosen a layout meets the targets, and of how many.

        ``None``: on too few, or the time is ``over`` before that is known; after some loss it does not; or it carries less than the rate.
        """
        if self._overloaded(layout) is not None:
            return None
        draws = self.asked.counted(self.seed)
        tests = [(layout, requests) for requests in draws]
        if self.asked.spare:
            rests = losses(self.instance, layout, self.asked.spare)
            if not all(rest.replicas and self._overloaded(rest) is None for rest in rests):
                return None
            tests[:0] = [(rest, draws[0]) for rest in rests]
        missed = 0
        for tried, requests in tests:
            if over():
                return None
            targets = self.asked.targets
            missed += not meets_targets(
                self.instance, tried, requests, targets, self.course, self._tables
            )
            if missed and (tried is not layout or missed > _LEFT * len(draws)):
                return None
        return len(draws) - missed, len(draws)

    def _learn(self, requests: Requests) -> None:
        """Choose by a draw that an answer failed: the next ones meet it first, and are confirmed on another instead."""
        self.runs.insert(1, requests)
        self._fresh[:] = [one for one in self._fresh if one is not requests]
        self._fresh.append(self.asked.another(self.seed, len(self.runs)))

    def _key(self, layout: Layout) -> object:
        where = bool(self.asked.spare)  # then it matters which chips are together
        return tuple(sorted(repr((_built(one), where and one.chips)) for one in layout.replicas))

    def _judge(self, layout: Layout) -> Verdict:
        if (short := self._overloaded(layout)) is not None:
            return Verdict(None, (short,), 0)
        losing = bool(self.asked.spare)
        met, found = self._replay(layout, self.runs[:1] if losing else self.runs, [])
        after = 0
        if found[-1].meets and self.asked.spare:
            for rest in losses(self.instance, layout, self.asked.spare):
                after += 1
                if not rest.replicas:
                    return Verdict(met, (*found, *self.nothing.runs), after)
                if (short := self._overloaded(rest)) is not None:
                    return Verdict(met, (*found, short), after)
                self._replay(rest, self.runs[1:2], found)
                if not found[-1].meets:
                    break
        if found[-1].meets and losing:
            self._replay(layout, self.runs[1:], found)
        return Verdict(met, tuple(found), after)

    def _replay(
        self, layout: Layout, runs: Sequence[Requests], found: list[Judged]
    ) -> tuple[Met | None, list[Judged]]:
        """Replay up to the first run that misses a target, and that one up to where it does."""
        first: Met | None = None
        for number, requests in enumerate(runs):
            patience = Patience(self.asked.targets, len(requests))
            met = replay_with(self.instance, layout, requests, patience, self.course, self._tables)
            first = met if number == 0 else first
            found.append(patience.so_far)
            if met is None:
                break
        return first, found

    def _overloaded(self, layout: Layout) -> Judged | None:
        """The verdict where a layout carries less than the rate and replays are too short to see it; ``None``: they judge."""
        if self.course.under_way is None:
            return None
        priced = evaluate(self.instance, layout).priced
        rate = self.asked.peak_rate * (1 - ROUNDING)
        if priced.requests_per_s >= rate:
            return None
        need = rate - priced.mixed_per_s
        prefill, decode = priced.prefill_per_s < need, priced.decode_per_s < need
        none = not (prefill or decode)  # links hold the KV back
        slow = float(none or (decode and prefill) or self.asked.targets.ttft_p99_s is None)
        return Judged(1.0, slow, 0.0, self.asked.targets, float(decode and not prefill))


def meets_targets(
    instance: Instance,
    layout: Layout,
    requests: Requests,
    targets: Targets,
    course: Course,
    tables: Tables,
) -> bool:
    """Whether a replay meets the targets; it ends where one is missed."""
    patience = Patience(targets, len(requests))
    replay_with(instance, layout, requests, patience, course, tables)
    return patience.so_far.meets


def _built(replica: Replica) -> object:
    """Equal for replicas that are built alike."""
    stages = tuple((stage.layers, len(stage.chips)) for stage in replica.stages)
    return replica.role, replica.shape.model_dump(), stages

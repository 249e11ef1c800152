"""The order in which ways to serve some traffic are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf

from costmodel.question.scenario import Scenario
from solver.traffic.asked import Asked
from solver.traffic.few import Few
from solver.traffic.loads import hurries
from solver.traffic.ways import Looking, Way, chunks_of
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: part of the target that a first token takes without a queue, from which on fewer tokens in a pass are looked at first
_MUCH = 0.25
#: part of the time after which ways that are open are looked at, where nothing stands yet
_LATE = 0.4


class Turns:
    """Ways of one question: those that were opened, and which comes next.

    ``free``: those of which no steady answer meets the targets, for small fleets alone; where all are like that, one of ``ways`` is.
    Raises why nothing fits where none does in any way for certain.
    """

    def __init__(self, scenario: Scenario, asked: Asked, how: Looking) -> None:
        self.scenario, self.asked, self.how = scenario, asked, how
        self.chunks = list(chunks_of(scenario, asked, fine=True))
        self.several = len(self.chunks) > 1
        self.ways: list[Way] = []
        self.free: list[Way] = []
        self._small: dict[Way, Few] = {}
        self._promised: dict[tuple[Way, int], tuple[float, float]] = {}
        failed: list[NoFeasibleLayout] = []
        while self.chunks and not self.ways:
            try:
                self._open()
            except NoFeasibleLayout as error:
                failed.append(error)
        if not (self.ways or self.free):
            raise min(failed, key=lambda error: error.proven)
        if not self.ways:
            self.ways = [self.free.pop(0)]

    @property
    def every(self) -> list[Way]:
        """All ways that were opened, one with a steady answer first if there is any."""
        return [*self.ways, *self.free]

    def one_by_one(
        self,
        over: Callable[[], bool],
        best: Callable[[], Way | None],
        too_dear: Callable[[float], bool],
    ) -> Iterator[tuple[Way, float | Few]]:
        """Ways with the time to a first token that suits each, and with their own; then with others, the ``best`` one's first.

        In the place of a time: small fleets that a steady state rules out.

        The first way comes first, unless a first token takes much of the target; else that whose queues promise the cheapest
        fleet. No more ways are opened when it is ``over``, or late and none of them has an answer. Prompts are put off only where that promises
        a fleet that is not ``too_dear``.
        """
        if self.ways[0].failed is not None:
            yield from ((way, self._few(way)) for way in (*self.every, *self.every))
            yield from ((way, self._few(way)) for way in _shortest(self.every))
            return
        if self.how.fullest:
            yield from self._any(over)
            return
        left, first = list(self.ways), self.ways[0]
        if first.ttft_s <= _MUCH * (self.asked.targets.ttft_p99_s or inf):
            left = []
            yield from self._first_two(first)
        # small fleets take little time, and opening other ways takes much
        yield from ((way, self._few(way)) for way in self.every if way not in self._small)
        late_s = _LATE * (self.how.clock.limit_s or inf)
        left = [
            *left,
            *self._more(lambda: over() or (best() is None and self.how.clock.elapsed_s > late_s)),
        ]
        # what the shortest first promises after a loss takes long to tell
        shortest = _shortest(self.ways)
        for some in (left, shortest) if self.asked.spare else ([*left, *shortest],):
            while some:
                # a draw that an answer failed since changes what queues promise
                way = min(some, key=self._rank)
                some.remove(way)
                if way.order == "first-come" or not too_dear(self._promise(way)[0]):
                    yield from self._first_two(way)
        own = best()
        steady = [own] if own is not None and own.failed is None else []
        for way in dict.fromkeys((*steady, *self.ways)):
            for hurry in hurries(self.asked.targets, way.ttft_s)[1:]:
                if hurry < 1.0:
                    yield way, hurry
        yield from ((way, self._few(way)) for way in (*self.every, *_shortest(self.every)))

    def _any(self, over: Callable[[], bool]) -> Iterator[tuple[Way, float | Few]]:
        """Ways in the order of their tokens: the first, then those whose queues promise a fleet that the chips allow."""
        yield from self._first_two(self.ways[0])
        while self.chunks and not over():
            try:
                way = self._open()
            except (NoFeasibleLayout, NoLayoutInTime):
                continue
            if self._promise(way)[0] < inf:
                yield from self._first_two(way)
        for way in _shortest(self.ways):
            if self._promise(way)[0] < inf:
                yield from self._first_two(way)

    def _first_two(self, way: Way) -> Iterator[tuple[Way, float | Few]]:
        """A way with the time that suits it, its small fleets, and with the replicas of its steady answer, which are the cheapest."""
        apt = self._apt(way)
        yield way, apt
        if way is self.ways[0] and way not in self._small:
            yield way, self._few(way)
        if apt < 1.0:
            yield way, 1.0

    def _more(self, over: Callable[[], bool]) -> list[Way]:
        """Ways opened now, as long as each promises a cheaper fleet than the one before."""
        found: list[Way] = []
        before = self._promise(self.ways[0])
        while self.chunks and not over():
            with suppress(NoFeasibleLayout, NoLayoutInTime):
                found.append(self._open())
                promised = self._promise(found[-1])
                if promised > before:
                    break
                before = promised
        return found

    def _rank(self, way: Way) -> tuple[float, bool, bool, float]:
        """The cheapest promise first; among equals that with requests as they come, what keeps it with the replicas that it counts, and fewest parts of chips."""
        usd_per_hour, parts = self._promise(way)
        return round(usd_per_hour, 6), way.order == "shortest", self._apt(way) < 1.0, parts

    def _promise(self, way: Way) -> tuple[float, float]:
        """What a way promises by the draws known so far: US dollars per hour, and among equals parts of chips."""
        key = way, len(way.judge.runs)
        if key not in self._promised:
            self._promised[key] = way.promises()
        return self._promised[key]

    def _open(self) -> Way:
        """Look at one more way."""
        like = next(iter(self.every), None)
        way = Way.of(self.scenario, self.asked, self.chunks.pop(0), self.how, like)
        (self.ways if way.failed is None else self.free).append(way)
        if way.failed is not None:
            raise way.failed
        return way

    def _few(self, way: Way) -> Few:
        return self._small.setdefault(way, Few(way, self.how))

    def _apt(self, way: Way) -> float:
        return hurries(self.asked.targets, way.ttft_s)[0]


def _shortest(ways: list[Way]) -> list[Way]:
    """The same with the shortest prompt next, where that is to be chosen."""
    return [way.shortest for way in ways if way.shortest is not None]

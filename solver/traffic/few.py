"""Fleets of equal mixed replicas that replays find in time, though their steady state is not.

A steady state charges each answer with as many prompts as end, and each first token with a full pass that it just missed. With few
sequences, or at a low load, an answer meets the prompts of others only, and few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from math import ceil, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from costmodel.replay.capacity import alone_s
from solver.bounds.priced import Bounds
from solver.fleet.asked import Fleet, fleet_of
from solver.place.assemble import assemble
from solver.rounds import Search
from solver.shapes.shapes import ROLES
from solver.traffic.found import Found
from solver.traffic.ways import (
    FEW,
    Looking,
    Way,
    least_usd_per_hour,
    may_be_small,
    steady_search,
    without_targets,
)
from solver.verify import ROUNDING

_MIXED = ROLES.index("mixed")
#: replays of a first look
_FIRST = 16
#: standard deviations beyond the mean number of sequences that are under way
_SPREAD = 3.0
#: seconds for a fleet of one shape
_FLEET_S = 4.0


class Few:
    """Fleets of one way: so many replicas of one shape, with at most so many sequences on a rank."""

    def __init__(self, way: Way, how: Looking) -> None:
        self.way, self.how = way, how
        #: by place among the rows, seconds to the first token of a long prompt that waits for nothing
        self._alone_s: dict[int, float] = {}
        self._looks, self._left = 0, inf

    @cached_property
    def search(self) -> Search:
        """That of the same question without targets."""
        if self.way.failed is not None:
            return self.way.plain.search
        return steady_search(without_targets(self.way.own.spread), self.how)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Shapes of mixed replicas on chips that are alike."""
        shapes = self.search.shapes
        return np.flatnonzero((shapes.role == _MIXED) & (shapes.span < 0) & (shapes.chips <= FEW))

    @cached_property
    def bounds(self) -> Bounds:
        """What they serve at most, and with how many sequences they decode in time, whatever the order."""
        pricer = self.search.pricer.again(self.way.own.every)
        return pricer.bounds(self.search.shapes.take(self.rows), self.how.workers)

    def look(
        self,
        replayed: Callable[[Fleet], Found | None],
        confirm: Callable[[], None],
        too_dear: Callable[[float], bool],
        time: Callable[[], bool],
    ) -> None:
        """Replay fleets from the cheapest on, until one meets the targets, or costs as much as what does.

        Few the first time, as other replicas may do better. Again where that one failed a draw by which it was to be confirmed,
        and which then counts.
        """
        draws, runs = 0, self.way.judge.runs
        self._left, self._looks = (_FIRST if self._looks == 0 else inf), self._looks + 1
        while draws < len(runs) and time():
            draws = len(runs)
            for usd_per_hour, place, count in self._in_order():
                if not time() or self._left <= 0 or too_dear(usd_per_hour):
                    break
                if self._meets(place, count, replayed, time):
                    break
            confirm()

    def _in_order(self) -> Iterator[tuple[float, int, int]]:
        """Dollars per hour, a place among the rows and a number of replicas: the cheapest first, among equals what may carry most.

        Of replicas of so many chips and one tensor width, the shape that may serve most. None that costs less than the bound.
        """
        question = self.way.own.spread
        if not may_be_small(question, self.way.least):
            return
        rate, chips = question.scenario.rate, min(FEW, len(question.cluster.usable))
        assert rate is not None
        least = least_usd_per_hour(question, self.way.least)
        search, shapes = self.search, self.search.shapes
        most: dict[tuple[int, int, int], int] = {}
        for place in np.argsort(-self.bounds.requests_per_s, kind="stable").tolist():
            row = self.rows[place]
            key = int(shapes.pool_class[row]), int(shapes.chips[row]), int(shapes.tp[row])
            if self.bounds.requests_per_s[place] > 0:
                most.setdefault(key, place)
        found = []
        for (index, wide, _), place in most.items():
            upper = float(self.bounds.requests_per_s[place])
            usd = wide * min(search.classes[index].prices)
            for count in range(ceil(rate / upper * (1 - ROUNDING)), chips // wide + 1):
                if count * usd >= least:
                    found.append((count * usd, -count * upper, place, count))
        for usd, _, place, count in sorted(found):
            yield usd, place, count

    def _meets(
        self,
        place: int,
        count: int,
        replayed: Callable[[Fleet], Found | None],
        time: Callable[[], bool],
    ) -> bool:
        """Whether such replicas meet the targets with some number of sequences: more wait less for a place, and decode slower."""
        most = int(self.bounds.per_rank[place])
        ranks = int(self.search.shapes.attention_dp[self.rows[place]])
        sequences = min(most, self._under_way(count * ranks))
        low, high = 0, most + 1
        while high - low > 1 and self._left > 0 and time():
            fleet = self._fleet(int(self.rows[place]), count, sequences)
            if fleet is None:
                low, sequences = sequences, min(2 * sequences, most, high - 1)
                continue
            if self._late_alone(place, fleet):
                return False
            self._left -= 1
            found = replayed(fleet)
            if found is None or found.verdict.meets:
                return found is not None
            last = found.verdict.runs[-1]
            if last.slow_tokens >= last.late_first:
                high = sequences
            elif high > most and (low or sequences == most):
                return False  # twice as many are hardly ever under way
            else:
                low = sequences
            sequences = (low + high) // 2 if high <= most else min(2 * low, most)
        return False

    def _late_alone(self, place: int, fleet: Fleet) -> bool:
        """Whether a long prompt is late on such a replica that has nothing else to do."""
        plain, search = self.way.plain, self.search
        if place not in self._alone_s:
            one = fleet_of(fleet.stands[:1], search.classes)
            layout = assemble(search.instance, one, search.placed)
            self._alone_s[place] = alone_s(
                search.instance,
                layout,
                layout.replicas[0],
                plain.long_one,
                plain.course,
                plain.tables,
            )
        return self._alone_s[place] > (plain.targets.ttft_p99_s or inf)

    def _under_way(self, ranks: int) -> int:
        """Sequences on each of so many ranks, more than which are hardly ever under way at once where each lasts as long as it may."""
        asked = self.way.judge.asked
        if asked.targets.tpot_p99_s is None:
            return asked.requests.input_tokens.size
        lasts_s = asked.targets.tpot_p99_s * float(asked.requests.output_tokens.mean())
        mean = asked.peak_rate * lasts_s / ranks
        return ceil(mean + _SPREAD * sqrt(mean)) + 1

    def _fleet(self, row: int, count: int, sequences: int) -> Fleet | None:
        """So many replicas; ``None`` where the chips do not allow them, or they serve less than the rate."""
        search, placed = self.search, self.search.placed
        rate = search.question.rate
        assert rate is not None
        made = placed.realised[row] = placed.realiser.realise(row, sequences)
        if count * made.requests_per_s < rate * (1 - ROUNDING):
            return None
        rates = np.zeros(search.num_shapes)
        rates[row] = made.requests_per_s
        (item,) = search.items.best(rates)
        part = replace(item, requests_per_s=rate / count * (1 + ROUNDING))
        fleet = search.fleet([part], _FLEET_S).fleet
        if fleet is None or len(fleet.stands) != count:
            return None
        stands = [(placed.sending(item), pools) for _, pools in fleet.stands]
        return fleet_of(stands, search.classes, search.question.links)

"""The order in which replicas start and stop: at its worst moment as much is served as any such order allows.

A replica that starts needs its chips: those that stand there stop first. How far each bundle (:mod:`solver.move.bundles`) has come is
a situation; the search goes from situation to situation, the widest passage first (a bottleneck path), and bundles of one form that
have come as far count as one. Rates of replicas add up as the fleet's do; links are left to the evaluator.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from costmodel.tolerance import RELATIVE
from solver.move.bundles import (
    Array,
    Bundle,
    Counts,
    Form,
    Part,
    Rates,
    added,
    bundles_of,
    together,
)

#: starts looked at before the rest is ordered one by one
_MOST_LOOKED = 50_000
#: counts between those before and after some starts, up to which these are compared with them
_BETWEEN = 256


@dataclass(frozen=True)
class Exchange:
    """Old replicas that stop, then new ones that start."""

    stop: tuple[int, ...]
    start: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """Exchanges in turn. ``least``: requests/s at the worst moment; ``proven``: no order of them keeps more."""

    exchanges: tuple[Exchange, ...]
    least: float
    proven: bool


#: a form by its number, and how many replicas of each class have started in a bundle of it
Stage = tuple[int, Counts]
#: how many bundles have come so far, by stage
Situation = tuple[tuple[Stage, int], ...]


@dataclass(frozen=True)
class _Start:
    """A replica of one class starts in a bundle. ``during``: requests/s of all while it loads."""

    stage: Stage
    reached: Stage
    during: float


#: starts so far, the last one first
Path = tuple["Path", _Start] | None


def served(rates: Rates) -> float:
    """Requests per second of replicas together, as far as links carry it."""
    prefill, decode, mixed = rates
    return min(prefill, decode) + mixed


def _each_served(rates: Array) -> Array:
    """The same of each row ``[rows, roles]``."""
    return np.asarray(np.minimum(rates[:, 0], rates[:, 1]) + rates[:, 2])


class Orders:
    """Orders of one move. ``stays`` serve all the time, ``old`` stop, ``new`` start."""

    def __init__(self, stays: Sequence[Part], old: Sequence[Part], new: Sequence[Part]):
        self.stays, self.old, self.new = tuple(stays), tuple(old), tuple(new)
        on = {chip: at for at, part in enumerate(old) for chip in part.chips}
        #: by new replica, the old ones on its chips
        self.needs = [frozenset(on[chip] for chip in part.chips if chip in on) for part in new]
        #: old replicas whose chips no new one takes: they stop last
        self.last = sorted(set(range(len(old))).difference(*self.needs))
        self.bundles = bundles_of(old, new, self.needs)
        forms = list({id(one.form): one.form for one in self.bundles}.values())
        self._forms: list[Form] = forms
        self._number = {id(form): at for at, form in enumerate(forms)}
        self._all = together([*stays, *(old[at] for at in self.last)])
        self._known: dict[Stage, tuple[Rates, Array]] = {}

    def best(self, enough: float) -> Order:
        """The widest path, with neighbours in one exchange while that serves ``enough`` (0: as much as the path does).

        Where a part of the path serves less than enough, others do not join it at a further loss.
        """
        path, least, proven = self._path()
        exchanges = self._together(path, enough or least)
        if self.last:
            exchanges.append(Exchange(tuple(self.last), ()))
        return Order(tuple(exchanges), least, proven)

    def _path(self) -> tuple[list[int], float, bool]:
        """New replicas in the order of the widest path, what is served at its narrowest, and whether none is wider."""
        ticket, end = count(), served(together([*self.stays, *self.new]))
        begun = _situation(self._begun(one) for one in self.bundles)
        now = served(self._rates(begun))
        # some replica is the first to load
        widest = min([now, *(start.during for start in self._starts(begun)[:1])])
        straight = self._greedy(begun, None, widest, end)
        if straight[-1]:
            return straight
        heap: list[tuple[float, int, int, Situation, Path]] = [(-now, 0, next(ticket), begun, None)]
        seen: set[Situation] = set()
        while True:
            width, steps, _, situation, path = heapq.heappop(heap)
            if -steps == len(self.new):
                return self._replicas(path), min(-width, end), True
            if situation in seen:
                continue
            seen.add(situation)
            if next(ticket) > _MOST_LOOKED:
                here = self._greedy(situation, path, -width, end)
                return max(here, straight, key=lambda own: own[1])
            if sure := self._sure(situation, -width):
                for start in sure:
                    width = -min(-width, start.during)
                    situation, path = _moved(situation, start), (path, start)
                heapq.heappush(heap, (width, steps - len(sure), next(ticket), situation, path))
                continue
            for start in self._starts(situation):
                after = -min(-width, start.during), steps - 1, next(ticket)
                heapq.heappush(heap, (*after, _moved(situation, start), (path, start)))

    def _greedy(
        self, situation: Situation, path: Path, width: float, end: float
    ) -> tuple[list[int], float, bool]:
        """The rest one by one, always what leaves most running. No path is wider than ``width``, where the search stood."""
        least = width
        while starts := self._starts(situation):
            least = min(least, starts[0].during)
            situation, path = _moved(situation, starts[0]), (path, starts[0])
        least = min(least, end)
        return self._replicas(path), least, least >= min(width, end)

    def _begun(self, bundle: Bundle) -> Stage:
        return self._number[id(bundle.form)], (0,) * len(bundle.members)

    def _rates(self, situation: Situation) -> Rates:
        found = self._all
        for stage, number in situation:
            found = added(found, self._running(stage), number)
        return found

    def _running(self, stage: Stage) -> Rates:
        return self._at(stage)[0]

    def _at(self, stage: Stage) -> tuple[Rates, Array]:
        """What serves in a bundle, and what does while one more of a class loads."""
        if stage not in self._known:
            form = self._forms[stage[0]]
            self._known[stage] = form.running(stage[1]), form.loading(stage[1])
        return self._known[stage]

    def _sure(self, situation: Situation, width: float) -> list[_Start]:
        """Starts of one bundle that may as well come first; empty where none are seen.

        They keep the path at its width, and no role has less after all of them than after some. So an order that begins with
        them is as wide as the same order without: after each of its starts there is at least as much.
        """
        whole, least = self._rates(situation), width * (1 - RELATIVE)
        for stage, _ in situation:
            others = np.array(added(whole, self._running(stage), -1.0))
            number, begun = stage
            form, counts = self._forms[number], begun
            starts: list[_Start] = []
            while nexts := [at for at, most in enumerate(form.number) if counts[at] < most]:
                lasts = _each_served(others + form.loading(counts)[nexts])
                best = int(lasts.argmax())
                if lasts[best] < least:
                    break
                more = form.started(counts, nexts[best])
                stages = (number, form.look(counts)), (number, form.look(more))
                starts.append(_Start(*stages, float(lasts[best])))
                counts = more
                if form.between(begun, counts) > _BETWEEN:
                    break
                if form.never_less(begun, counts):
                    return starts
        return []

    def _starts(self, situation: Situation) -> list[_Start]:
        """What may start next, what leaves most running first."""
        whole, found = self._rates(situation), list[_Start]()
        for stage, _ in situation:
            number, counts = stage
            form, (running, loading) = self._forms[number], self._at(stage)
            others = np.array(added(whole, running, -1.0))
            during = _each_served(others + loading).tolist()
            for one, most in enumerate(form.number):
                if counts[one] < most:
                    reached = number, form.look(form.started(counts, one))
                    found.append(_Start(stage, reached, during[one]))
        return sorted(found, key=lambda start: -start.during)

    def _replicas(self, path: Path) -> list[int]:
        """The replicas that start along a path: bundles of one stage in their order."""
        starts: list[_Start] = []
        while path is not None:
            path, start = path
            starts.append(start)
        counts = [[0] * len(one.members) for one in self.bundles]
        standing: dict[Stage, list[int]] = {}
        for at, bundle in enumerate(self.bundles):
            standing.setdefault(self._begun(bundle), []).append(at)
        found: list[int] = []
        for start in reversed(starts):
            at = standing[start.stage].pop(0)
            bundle, own = self.bundles[at], counts[at]
            one = next(
                c
                for c, members in enumerate(bundle.members)
                if own[c] < len(members)
                and bundle.form.look(bundle.form.started(tuple(own), c)) == start.reached[1]
            )
            found.append(bundle.members[one][own[one]])
            own[one] += 1
            insort(standing.setdefault(start.reached, []), at)
        return found

    def _together(self, path: Sequence[int], wanted: float) -> list[Exchange]:
        """Neighbours of a path in one exchange while what runs meanwhile serves enough."""
        found: list[Exchange] = []
        running = together([*self.stays, *self.old])
        stopped: set[int] = set()
        at = 0
        while at < len(path):
            group, gone, least = list[int](), set[int](), wanted
            for one in path[at:]:
                leaves = self.needs[one] - stopped - gone
                left = added(running, together([self.old[o] for o in leaves]), -1.0)
                if group and served(left) < least * (1 - RELATIVE):
                    break
                least = min(least, served(left))
                running = left
                gone |= leaves
                group.append(one)
            at += len(group)
            stopped |= gone
            running = added(running, together([self.new[one] for one in group]))
            found.append(Exchange(tuple(sorted(gone)), tuple(group)))
        return found


def _situation(stages: Iterator[Stage]) -> Situation:
    found: dict[Stage, int] = {}
    for stage in stages:
        found[stage] = found.get(stage, 0) + 1
    return tuple(sorted(found.items()))


def _moved(situation: Situation, start: _Start) -> Situation:
    """The situation after one bundle came further."""
    found = dict(situation)
    found[start.stage] -= 1
    found[start.reached] = found.get(start.reached, 0) + 1
    return tuple(sorted((stage, number) for stage, number in found.items() if number))

"""The order in which replicas start and stop: at its worst moment as much is served as any such order allows.

A replica that starts needs its chips: those that stand there stop first. What runs is then a set of replicas; the
search goes from set to set, the widest passage first (a bottleneck path), and replicas that are alike count as one
kind. Rates of replicas add up as the fleet's do; links are left to the evaluator.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import count

from costmodel.layout.layout import Role

#: sets looked at before the rest is ordered one by one
_MOST_SETS = 20_000


@dataclass(frozen=True)
class Part:
    """A replica for the order: its role and requests/s, its chips, and what is alike."""

    role: Role
    requests_per_s: float
    chips: frozenset[str]
    kind: Hashable


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


def served(parts: Sequence[Part]) -> float:
    """Requests per second of replicas together, as far as links carry it."""
    rates: dict[str, float] = dict.fromkeys(("prefill", "decode", "mixed"), 0.0)
    for part in parts:
        rates[part.role] += part.requests_per_s
    return min(rates["prefill"], rates["decode"]) + rates["mixed"]


class Orders:
    """Orders of one move. ``stays`` serve all the time, ``old`` stop, ``new`` start."""

    def __init__(self, stays: Sequence[Part], old: Sequence[Part], new: Sequence[Part]):
        self.stays, self.old, self.new = tuple(stays), tuple(old), tuple(new)
        self.needs = [
            frozenset(at for at, other in enumerate(old) if other.chips & part.chips)
            for part in new
        ]

    def served(self, stopped: frozenset[int], started: frozenset[int]) -> float:
        """Requests per second of what runs."""
        old = [part for at, part in enumerate(self.old) if at not in stopped]
        return served([*self.stays, *old, *(self.new[at] for at in sorted(started))])

    def best(self, enough: float) -> Order:
        """The widest path, with neighbours in one exchange while that serves ``enough`` (0: as much as the path does).

        Where a part of the path serves less than enough, others do not join it at a further loss.
        """
        path, least, proven = self._path()
        last = [at for at in range(len(self.old)) if not any(at in need for need in self.needs)]
        exchanges = self._together(path, enough or least)
        if last:
            exchanges.append(Exchange(tuple(last), ()))
        return Order(tuple(exchanges), least, proven)

    def _stopped(self, started: frozenset[int]) -> frozenset[int]:
        return frozenset(at for one in started for at in self.needs[one])

    def _key(self, started: frozenset[int]) -> Hashable:
        """Equal for sets that look alike from here on."""
        rest = sorted(
            repr((
                self.new[at].kind,
                sorted(repr(self.old[o].kind) for o in self.needs[at]),
                sorted(o in self._stopped(started) for o in self.needs[at]),
            ))
            for at in range(len(self.new))
            if at not in started
        )  # fmt: skip
        return tuple(rest), round(self.served(self._stopped(started), started), 9)

    def _path(self) -> tuple[list[int], float, bool]:
        """New replicas in the order of the widest path, what is served at its narrowest, and whether none is wider."""
        nothing: frozenset[int] = frozenset()
        ticket = count()
        first = self.served(nothing, nothing)
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(-first, 0, next(ticket), ())]
        seen: set[Hashable] = set()
        while heap:
            width, _, _, path = heapq.heappop(heap)
            started = frozenset(path)
            if len(path) == len(self.new):
                return list(path), min(-width, self._end()), True
            key = self._key(started)
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > _MOST_SETS:
                return self._greedy(path, -width)
            tried: set[Hashable] = set()
            for at in range(len(self.new)):
                if at in started:
                    continue
                alike = self._key(started | {at})
                if alike in tried:
                    continue
                tried.add(alike)
                heapq.heappush(
                    heap,
                    (-min(-width, self._dip(started, at)), -len(path) - 1, next(ticket), (*path, at)),
                )  # fmt: skip
        return [], min(first, self._end()), True

    def _dip(self, started: frozenset[int], at: int) -> float:
        """Requests per second while a new replica loads: what stands on its chips has stopped."""
        return self.served(self._stopped(started) | self.needs[at], started)

    def _end(self) -> float:
        """Requests per second of the final layout."""
        return served([*self.stays, *self.new])

    def _greedy(self, path: tuple[int, ...], width: float) -> tuple[list[int], float, bool]:
        """The rest one by one: always what leaves most running."""
        order = list(path)
        while len(order) < len(self.new):
            started = frozenset(order)
            rest = [at for at in range(len(self.new)) if at not in started]
            best = max(rest, key=lambda at: (self._dip(started, at), -at))
            width = min(width, self._dip(started, best))
            order.append(best)
        return order, min(width, self._end()), False

    def _together(self, path: Sequence[int], wanted: float) -> list[Exchange]:
        """Neighbours of a path in one exchange while what runs meanwhile serves enough."""
        found: list[Exchange] = []
        started: frozenset[int] = frozenset()
        left = list(path)
        while left:
            group = [left.pop(0)]
            least = min(wanted, self._dip(started, group[0]))
            while left:
                stopped = self._stopped(started | {*group, left[0]})
                if self.served(stopped, started) < least * (1 - 1e-12):
                    break
                group.append(left.pop(0))
            gone = self._stopped(started | frozenset(group)) - self._stopped(started)
            found.append(Exchange(tuple(sorted(gone)), tuple(group)))
            started |= frozenset(group)
        return found

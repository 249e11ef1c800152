"""Why nothing fits: the smallest set of limits that conflict, and the nearest changes that repair it.

A limit is dropped by setting it to its loosest value. Dropping limits one at a time first gives the
limits ``E`` that each repair the instance alone: every conflicting set holds all of ``E``, so the
smallest conflicting set is ``E`` itself if it conflicts, else a smallest set around it. Every answer
"fits" is a layout that the evaluator has verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from costmodel.question.instance import Instance
from solver.answer import SearchResult
from solver.clock import Clock
from solver.explain.relax import Relaxable, limits_of
from solver.search import search
from topology.errors import NoFeasibleLayout

#: the first verified layout answers whether anything fits
_ANY_GAP = 1e6

#: relative width at which a bisection ends: below the 1 % that a change is checked against
_CLOSE = 1.009

#: repairs of one size that are worked out
_MOST_REPAIRS = 4


@dataclass(frozen=True)
class Change:
    """One limit's nearest feasible value: with ``value`` a layout was found, with ``fails_at`` none."""

    limit: Relaxable
    value: float
    fails_at: float

    def words(self) -> str:
        """The change as a phrase."""
        show, limit = self.limit.show, self.limit
        return (
            f"{limit.title}: {show(self.value)} instead of {show(limit.asked)} "
            f"({show(self.fails_at)} does not solve)"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "limit": self.limit.key,
            "title": self.limit.title,
            "unit": self.limit.unit,
            "asked": self.limit.asked,
            "solves_at": self.value,
            "fails_at": self.fails_at,
        }


@dataclass(frozen=True)
class Explanation:
    """Why an instance has no layout.

    ``conflicts``: smallest sets of limits that cannot hold together, found one after another (the
    second with the first dropped). ``repairs``: smallest sets of changes, each of which makes the
    instance solvable. ``proven``: the bound shows that nothing fits; else no layout was found.
    """

    reason: str
    proven: bool
    conflicts: tuple[tuple[Relaxable, ...], ...]
    repairs: tuple[tuple[Change, ...], ...]
    solves: int

    def as_dict(self) -> dict[str, object]:
        """Plain data: limits by key, values in the unit that stands beside them."""
        return {
            "reason": self.reason,
            "proven": self.proven,
            "conflicts": [[limit.key for limit in limits] for limits in self.conflicts],
            "repairs": [[change.as_dict() for change in repair] for repair in self.repairs],
            "solves": self.solves,
        }

    def words(self) -> list[str]:
        """The answer in lines of plain language."""
        lines = [self.reason if self.proven else f"{self.reason} (not proven impossible)"]
        if not self.conflicts:
            return [*lines, "No limit is to blame: even with all of them dropped nothing fits"]
        for number, limits in enumerate(self.conflicts):
            titles = " with ".join(_with_value(limit) for limit in limits)
            also = "Also in conflict" if number else "Smallest conflicting set of limits"
            lines.append(f"{also}: {titles}")
        for number, repair in enumerate(self.repairs):
            head = "or" if number else "What would fit:"
            lines.append(f"{head} {'; together with '.join(change.words() for change in repair)}")
        return lines


def _with_value(limit: Relaxable) -> str:
    return f"{limit.title} = {limit.show(limit.asked)}"


def explain_conflict(instance: Instance, *, clock: Clock, seed: int = 0) -> Explanation | None:
    """Why nothing fits, or ``None`` if something does. Raises ``NoLayoutInTime``."""
    return _Conflict(instance, clock, seed).explain()


class _Conflict:
    """Which sets of limits an instance can and cannot meet, remembered."""

    def __init__(self, instance: Instance, clock: Clock, seed: int):
        self.instance = instance
        self.clock = clock
        self.seed = seed
        self.solves = 0
        self.limits: tuple[Relaxable, ...] = ()
        self.known: dict[frozenset[str], bool] = {}

    def explain(self) -> Explanation | None:
        """The whole answer."""
        try:
            self.solve(self.instance)
        except NoFeasibleLayout as failure:
            reason, proven = str(failure), failure.proven
        else:
            return None
        self.limits = limits_of(self.instance, self._most_rate())
        every = frozenset(limit.key for limit in self.limits)
        self.known[every] = False
        conflicts: list[frozenset[str]] = []
        active = every
        while not self.meets(active):
            # most often one limit alone is to blame, and the dearest question need not be asked
            alone = any(self.meets(active - {limit.key}) for limit in self.limits)
            if not alone and not self.meets(frozenset()):
                return Explanation(reason, proven, (), (), self.solves)
            conflicts.append(self.smallest(active))
            active -= conflicts[-1]
        repairs = self.repairs(every, frozenset().union(*conflicts))
        named = tuple(tuple(x for x in self.limits if x.key in keys) for keys in conflicts)
        return Explanation(reason, proven, named, tuple(repairs), self.solves)

    def solve(self, instance: Instance) -> SearchResult:
        """Any verified layout. Raises ``NoFeasibleLayout``."""
        self.solves += 1
        return search(instance, clock=self.clock, gap=_ANY_GAP, seed=self.seed)

    def fits(self, instance: Instance) -> bool:
        """Whether a layout is found."""
        try:
            self.solve(instance)
        except NoFeasibleLayout:
            return False
        return True

    def meets(self, kept: frozenset[str]) -> bool:
        """Whether the limits kept can be met with all others dropped."""
        if kept not in self.known:
            if any(fits and kept <= keys for keys, fits in self.known.items()):
                self.known[kept] = True  # as more limits are
            elif any(not fits and keys <= kept for keys, fits in self.known.items()):
                self.known[kept] = False  # as fewer limits are not
            else:
                self.known[kept] = self.fits(self.without(kept))
        return self.known[kept]

    def without(self, kept: Iterable[str], fixed: Mapping[str, float] | None = None) -> Instance:
        """The instance with all limits dropped but those kept, and some at other values."""
        fixed = fixed or {}
        instance = self.instance
        for limit in self.limits:
            if limit.key in fixed:
                instance = limit.with_value(instance, fixed[limit.key])
            elif limit.key not in kept:
                instance = limit.dropped(instance)
        return instance

    def smallest(self, active: frozenset[str]) -> frozenset[str]:
        """A smallest set within ``active`` (which cannot be met) that cannot be met."""
        names = [limit.key for limit in self.limits if limit.key in active]
        needed = frozenset(name for name in names if self.meets(active - {name}))
        rest = [name for name in names if name not in needed]
        for size in range(len(rest)):
            for more in combinations(rest, size):
                kept = needed | frozenset(more)
                if kept and not self.meets(kept):
                    return kept
        return active

    def repairs(self, every: frozenset[str], union: frozenset[str]) -> list[tuple[Change, ...]]:
        """Smallest sets of limits whose change makes the instance solvable, with the values."""
        names = [limit.key for limit in self.limits if limit.key in union]
        for size in range(1, len(names) + 1):
            chosen = [c for c in combinations(names, size) if self.meets(every - set(c))]
            if chosen:
                return [self.change(every, names) for names in chosen[:_MOST_REPAIRS]]
        return []

    def change(self, every: frozenset[str], names: tuple[str, ...]) -> tuple[Change, ...]:
        """Nearest values of some limits, one after another: each with the later ones dropped."""
        fixed: dict[str, float] = {}
        changes = []
        for limit in self.limits:
            if limit.key in names:
                found = self.nearest(limit, every - set(names), fixed)
                fixed[limit.key] = found.value
                changes.append(found)
        return tuple(changes)

    def nearest(self, limit: Relaxable, kept: frozenset[str], fixed: Mapping[str, float]) -> Change:
        """Bisection between the value asked for (fails) and the loosest (fits)."""

        def fits(value: float) -> bool:
            return self.fits(self.without(kept, {**fixed, limit.key: value}))

        bad, good = self._bracket(limit, fits)
        while True:
            if limit.whole:
                middle = float((int(bad) + int(good)) // 2)
                done = abs(good - bad) <= 1
            else:
                middle = math.sqrt(bad * good)
                done = max(bad / good, good / bad) <= _CLOSE
            if done:
                edge = limit.tighter(good)
                if edge == bad or not fits(edge):
                    return Change(limit, good, edge)
                good = edge  # luck of a search: the edge is sharper than the bisection saw
            elif fits(middle):
                good = middle
            else:
                bad = middle

    @staticmethod
    def _bracket(limit: Relaxable, fits: Callable[[float], bool]) -> tuple[float, float]:
        """A value that fails and one that fits, by growing steps away from what was asked."""
        up = limit.loosest > limit.asked
        bad, factor = limit.asked, 1.1
        while True:
            value = limit.asked * factor if up else limit.asked / factor
            if limit.whole:
                value = max(math.ceil(value), bad + 1) if up else min(math.floor(value), bad - 1)
            if (value >= limit.loosest) if up else (value <= limit.loosest):
                return bad, limit.loosest
            if fits(value):
                return bad, value
            bad, factor = value, 1.0 + 4.0 * (factor - 1.0)

    def _most_rate(self) -> float | None:
        """Requests per second that the cluster serves when none are asked for."""
        if self.instance.scenario.rate is None:
            return None
        free = self.instance.scenario.model_copy(update={"rate": None, "pay": "whole"})
        try:
            found = self.solve(replace(self.instance, scenario=free))
        except NoFeasibleLayout:
            return None
        return found.evaluation.requests_per_s

"""Why nothing fits: the smallest set of limits that conflict, and the nearest changes that repair it.

A limit is dropped by setting it to its loosest value. Dropping limits one at a time first gives the
limits ``E`` that each repair the instance alone: every conflicting set holds all of ``E``, so the
smallest conflicting set is ``E`` itself if it conflicts, else a smallest set around it. Every answer
"fits" is a layout that the evaluator has verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations

from costmodel.question.instance import Instance
from solver.answer import SearchResult
from solver.clock import Clock
from solver.explain.explanation import Change, Explanation
from solver.explain.relax import Relaxable, limits_of
from solver.search import search
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: the first verified layout answers whether anything fits
_ANY_GAP = 1e6

#: relative width at which a bisection ends: below the 1 % that a change is checked against
_CLOSE = 1.009

#: repairs of one size that are worked out
_MOST_REPAIRS = 4


def explain_conflict(instance: Instance, *, clock: Clock, seed: int = 0) -> Explanation | None:
    """Why nothing fits, or ``None`` if something does. Raises ``NoLayoutInTime``."""
    return Conflict(instance, clock, seed).explain()


class Conflict:
    """Which sets of limits an instance can and cannot meet, remembered, and what of the answer is known so far."""

    def __init__(self, instance: Instance, clock: Clock, seed: int):
        self.instance = instance
        self.clock = clock
        self.seed = seed
        self.solves = 0
        self.limits: tuple[Relaxable, ...] = ()
        self.known: dict[frozenset[str], bool] = {}
        #: the first layout found, where something fits
        self.fitting: SearchResult | None = None
        self._failure: NoFeasibleLayout | None = None
        self._conflicts: list[frozenset[str]] = []
        #: sets of limits whose values are worked out, once all conflicts are known
        self._chosen: list[tuple[str, ...]] | None = None
        self._repairs: list[tuple[Change, ...]] = []
        #: of the set whose values are being worked out
        self._changes: list[Change] = []
        self._bracket: Change | None = None
        self._whole = False

    def explain(self) -> Explanation | None:
        """The answer, or as much of it as the clock allows; ``None`` if something fits. Raises ``NoLayoutInTime``."""
        try:
            self._look()
        except NoLayoutInTime:
            if self._failure is None:
                raise self.clock.late("it was known whether anything fits") from None
        return self.so_far()

    def _look(self) -> None:
        try:
            self.fitting = self.solve(self.instance)
        except NoFeasibleLayout as failure:
            self._failure = failure
        else:
            return
        self.limits = limits_of(self.instance, self._most_rate())
        every = frozenset(limit.key for limit in self.limits)
        self.known[every] = False
        active = every
        while not self.meets(active):
            # most often one limit alone is to blame, and the dearest question need not be asked
            alone = any(self.meets(active - {limit.key}) for limit in self.limits)
            if not alone and not self.meets(frozenset()):
                self._conflicts = []
                break
            self._conflicts.append(self.smallest(active))
            active -= self._conflicts[-1]
        self._chosen = self.repairing(every, frozenset().union(*self._conflicts))
        for names in self._chosen:
            self._repairs.append(self.change(every, names))
            self._changes = []
        self._whole = True

    def so_far(self) -> Explanation | None:
        """What is known now, from any thread; ``None`` until it is known that nothing fits."""
        failure = self._failure
        if failure is None:
            return None
        named = tuple(
            tuple(x for x in self.limits if x.key in keys) for keys in tuple(self._conflicts)
        )
        repairs, left = list(self._repairs), self._left()
        last = self._bracket
        if left and last is not None and self._chosen is not None:
            names = self._chosen[len(repairs)] if len(repairs) < len(self._chosen) else ()
            if len(self._changes) + 1 == len(names) and last.value != last.limit.loosest:
                repairs.append((*self._changes, last))
        return Explanation(
            str(failure), failure.proven, named, tuple(repairs), self.solves, tuple(left)
        )

    def _left(self) -> list[str]:
        """What has not been looked at yet."""
        if self._whole:
            return []
        if self._chosen is None:
            first = "whether more limits conflict" if self._conflicts else "which limits conflict"
            return [first, "what would fit"]
        title = {limit.key: limit.title for limit in self.limits}
        return [
            f"the nearest value of {' and '.join(title[name] for name in names)} that solves"
            for names in self._chosen[len(self._repairs) :]
        ]

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

    def repairing(self, every: frozenset[str], union: frozenset[str]) -> list[tuple[str, ...]]:
        """Smallest sets of limits whose change makes the instance solvable."""
        names = [limit.key for limit in self.limits if limit.key in union]
        for size in range(1, len(names) + 1):
            chosen = [c for c in combinations(names, size) if self.meets(every - set(c))]
            if chosen:
                return chosen[:_MOST_REPAIRS]
        return []

    def change(self, every: frozenset[str], names: tuple[str, ...]) -> tuple[Change, ...]:
        """Nearest values of some limits, one after another: each with the later ones dropped."""
        fixed: dict[str, float] = {}
        self._changes = []
        for limit in self.limits:
            if limit.key in names:
                found = self.nearest(limit, every - set(names), fixed)
                fixed[limit.key] = found.value
                self._bracket = None
                self._changes.append(found)
        return tuple(self._changes)

    def nearest(self, limit: Relaxable, kept: frozenset[str], fixed: Mapping[str, float]) -> Change:
        """Bisection between the value asked for (fails) and the loosest (fits)."""

        def fits(value: float) -> bool:
            return self.fits(self.without(kept, {**fixed, limit.key: value}))

        bad, good = self.bracket(limit, fits)
        while True:
            self._bracket = Change(limit, good, bad)
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
    def bracket(limit: Relaxable, fits: Callable[[float], bool]) -> tuple[float, float]:
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

"""Items: what a fleet is made of, with the most each could serve by what is known so far.

Shapes of one role that take the same chips compete; only the best of them can be in an optimal
fleet (of prefill shapes the best, and the best of those whose KV may leave the domain). A shape's upper bound
falls when its placement has been worked out (:meth:`Items.tighten`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.spans import Parts
from solver.verify import ROUNDING

_PREFILL = ROLES.index("prefill")
_NO_SLICES: Counter[int] = Counter()


@dataclass(frozen=True)
class Item:
    """One way to use ``slice_chips`` chips in each of ``slices`` pools of a class, or those of a span.

    ``requests_per_s`` an upper bound (or, in a fleet of realised shapes, what is achieved);
    ``shape`` the row of the shape table; ``span``: ``(pool class, chips)`` of each pool where these
    differ, else empty. ``leaves``: whether the KV of its prompts may go to another domain in time (of a
    prefill item). ``sent``, ``sent_far``: bytes/s that its passes send out of each of its domains and of their
    units, where known. ``kv_parts``: how many of its first parts hold KV, where not all do.
    """

    shape: int
    role: int
    pool_class: int
    slices: int
    slice_chips: int
    requests_per_s: float
    span: Parts = ()
    leaves: bool = True
    sent: tuple[float, ...] = ()
    sent_far: tuple[float, ...] = ()
    kv_parts: int = 0

    @property
    def holding(self) -> Parts:
        """Those of :attr:`parts` that hold KV."""
        return self.parts[: self.kv_parts] if self.kv_parts else self.parts

    def kv_share(self, part: tuple[int, int]) -> float:
        """Share of the KV that a slice ``(pool class, chips)`` takes at most, where not all parts hold some.

        All of it where slices that hold some cannot be told from others.
        """
        if part not in self.holding or part in self.parts[self.kv_parts :]:
            return float(part in self.holding)
        return part[1] / sum(chips for _, chips in self.holding)

    def place_of(self, part: tuple[int, int]) -> int:
        """Which of :attr:`sent` a slice ``(pool class, chips)`` sends; the least where several may be meant."""
        if not self.kv_parts:
            return next(at for at, (_, chips) in enumerate(self.parts) if chips == part[1])
        alike = [at for at, own in enumerate(self.parts) if own == part]
        return min(alike, key=lambda at: (self.sent[at], self.sent_far[at]))

    @property
    def wide(self) -> bool:
        """Whether a replica stands in several pools."""
        return len(self.parts) > 1

    @property
    def parts(self) -> Parts:
        """``(pool class, chips)`` of each pool it takes chips from."""
        return self.span or ((self.pool_class, self.slice_chips),) * self.slices

    @cached_property
    def chips(self) -> int:
        """Chips of one replica."""
        return sum(chips for _, chips in self.parts)

    def slices_in(self, pool_class: int) -> Counter[int]:
        """How many slices of each number of chips one replica has in pools of a class."""
        return self._slices.get(pool_class, _NO_SLICES)

    @cached_property
    def _slices(self) -> dict[int, Counter[int]]:
        found: dict[int, Counter[int]] = {}
        for index, chips in self.parts:
            found.setdefault(index, Counter())[chips] += 1
        return found


class Items:
    """Best item of each role and footprint, under upper bounds that only fall."""

    def __init__(
        self,
        shapes: ShapeTable,
        upper: NDArray[np.float64],
        classes: tuple[PoolClass, ...],
        leaving: NDArray[np.float64] | None = None,
    ):
        self.shapes = shapes
        self.classes = classes
        self.upper = upper.copy()
        #: the same for prefill shapes whose KV leaves their domain
        self.leaving = upper.copy() if leaving is None else np.minimum(upper, leaving)
        #: shapes that wait, with what they might serve; see :meth:`hold`
        self._waiting: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None = (
            None
        )
        #: whether a shape served more than its bound: on a set of chips that the bound had not looked at
        self.outdone = False
        keys = np.stack(
            [shapes.role, shapes.pool_class, shapes.slices, shapes.slice_chips, shapes.span]
        )
        alive = np.flatnonzero(self.upper > 0)
        self._groups: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._footprints: dict[Parts, NDArray[np.int64]] = {}
        if len(alive):
            _, inverse = np.unique(keys[:, alive], axis=1, return_inverse=True)
            order = np.argsort(inverse.ravel(), kind="stable")
            cuts = np.flatnonzero(np.diff(inverse.ravel()[order])) + 1
            for members in np.split(alive[order], cuts):
                self._groups[tuple(int(v) for v in keys[:, members[0]])] = members

    @property
    def waits(self) -> bool:
        """Whether some shapes wait."""
        return self._waiting is not None

    def hold(self, rows: NDArray[np.int64]) -> None:
        """Leave shapes out of every fleet until :meth:`release`; those that serve nothing stay out."""
        rows = rows[self.upper[rows] > 0]
        if len(rows):
            self._waiting = rows, self.upper[rows], self.leaving[rows]
            self.upper[rows] = self.leaving[rows] = 0.0

    def release(self) -> None:
        """Let the shapes that wait in."""
        assert self._waiting is not None
        rows, upper, leaving = self._waiting
        self.upper[rows], self.leaving[rows] = upper, leaving
        self._waiting = None

    def tighten(self, shape: int, upper: float, served: float) -> None:
        """Lower a shape's upper bound, not below what it was found to serve."""
        self.outdone |= served > self.upper[shape] * (1 + ROUNDING)
        self.upper[shape] = max(served, min(self.upper[shape], upper))
        self.leaving[shape] = min(self.leaving[shape], self.upper[shape])

    def siblings(self, shape: int) -> NDArray[np.int64]:
        """Shapes of the same role on the same chips, itself included, best bound first."""
        row = self.shapes.row(shape)
        key = (row["role"], row["pool_class"], row["slices"], row["slice_chips"], row["span"])
        members = self._groups[key]
        return members[np.argsort(-self.upper[members], kind="stable")]

    def best(
        self, rates: NDArray[np.float64] | None = None, leaving: NDArray[np.float64] | None = None
    ) -> list[Item]:
        """Items that some optimal fleet needs, under ``rates`` (default: the upper bounds).

        ``leaving``: rates of prefill shapes whose KV leaves their domain (default: none has less).
        """
        if rates is None:
            rates, leaving = self.upper, self.leaving
        elif leaving is None:
            leaving = rates
        found = [
            replace(item, leaves=bool(leaving[item.shape] >= item.requests_per_s))
            if item.role == _PREFILL
            else item
            for item in self._undominated(rates)
        ]
        if all(item.leaves for item in found):
            return found
        known = {item.shape for item in found if item.leaves}
        masked = np.where(self.shapes.role == _PREFILL, leaving, 0.0)
        found += [item for item in self._undominated(masked) if item.shape not in known]
        # the KV of a replica over several domains has to leave them
        return [item for item in found if item.leaves or not item.wide]

    def _undominated(self, values: NDArray[np.float64]) -> list[Item]:
        """Items that some optimal fleet needs.

        Left out is every item whose chips, pool by pool, serve at least as much when split among
        smaller items of its role: putting these in its place breaks no rule of the fleet.
        """
        found: list[Item] = []
        # best rate of each role, class and span on each number of chips per pool
        reach: dict[tuple[int, int, int], NDArray[np.float64]] = {}
        wide: list[Item] = []
        for key in sorted(self._groups):
            members = self._groups[key]
            best = int(members[np.argmax(values[members])])
            rate = float(values[best])
            if rate <= 0:
                continue
            role, pool_class, slices, slice_chips, spans = key
            if spans >= 0:
                parts, kv = self.shapes.spans[spans], self.shapes.kv_parts.get(spans, 0)
                wide.append(
                    Item(best, role, pool_class, slices, slice_chips, rate, parts, kv_parts=kv)
                )
                continue
            size = self.classes[pool_class].size
            span = (role, pool_class, slices)
            if span not in reach:
                reach[span] = self._from_narrower(reach, span, size)
            table = reach[span]
            if rate <= table[slice_chips] * (1 + 1e-12):
                continue
            found.append(Item(best, role, pool_class, slices, slice_chips, rate))
            table[slice_chips] = rate
            for chips in range(slice_chips, size + 1):
                # the new item beside anything on the chips that remain, or chips left idle
                beside = table[chips - slice_chips] + rate
                table[chips] = max(table[chips], beside, table[chips - 1])
        return found + self._useful_spans(wide, found, reach)

    def _useful_spans(
        self,
        spans: list[Item],
        even: list[Item],
        reach: dict[tuple[int, int, int], NDArray[np.float64]],
    ) -> list[Item]:
        """Spans that serve more than single pools do with the same chips, and than any item on fewer."""
        kept: list[Item] = []
        for role in {item.role for item in spans}:
            smaller = [item for item in even if item.role == role]
            count = len(smaller)
            own = [item for item in spans if item.role == role]
            prints = np.array([self._footprint(item.parts) for item in smaller + own])
            rates = np.array([item.requests_per_s for item in smaller + own])
            alive = np.arange(len(rates)) < count
            for place in sorted(
                range(count, len(rates)), key=lambda p: (own[p - count].chips, -rates[p])
            ):
                item = own[place - count]
                apart = sum(
                    float(reach[role, pool_class, 1][chips])
                    for pool_class, chips in item.parts
                    if (role, pool_class, 1) in reach
                )
                below = alive & (rates * (1 + 1e-12) >= item.requests_per_s)
                if item.requests_per_s > apart * (1 + 1e-12) and not np.any(
                    np.all(prints[below] <= prints[place], axis=1)
                ):
                    alive[place] = True
                    kept.append(item)
        return kept

    def _footprint(self, parts: Parts) -> NDArray[np.int64]:
        """Chips by class and pool, most first: a smaller footprint is so entry by entry."""
        if parts not in self._footprints:
            given: dict[int, list[int]] = {}
            for pool_class, chips in sorted(parts, key=lambda part: -part[1]):
                given.setdefault(pool_class, []).append(chips)
            self._footprints[parts] = np.concatenate(
                [
                    np.array(given.get(c.index, []) + [0] * len(c.pools))[: len(c.pools)]
                    for c in self.classes
                ]
            ).astype(np.int64)
        return self._footprints[parts]

    @staticmethod
    def _from_narrower(
        reach: dict[tuple[int, int, int], NDArray[np.float64]],
        span: tuple[int, int, int],
        size: int,
    ) -> NDArray[np.float64]:
        """What narrower spans of the role serve side by side on the same pools."""
        role, pool_class, slices = span
        table = np.zeros(size + 1)
        for narrow in range(1, slices):
            one = reach.get((role, pool_class, narrow))
            if one is None:
                continue
            times, rest = divmod(slices, narrow)
            other = reach.get((role, pool_class, rest)) if rest else None
            table = np.maximum(table, times * one + (other if other is not None else 0.0))
        return table

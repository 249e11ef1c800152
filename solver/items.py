"""Items: what a fleet is made of, with the most each could serve by what is known so far.

Shapes of one role that take the same chips compete; only the best of them can be in an optimal
fleet. A shape's upper bound falls when its placement has been worked out (:meth:`Items.tighten`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.pools import PoolClass
from solver.shapes import ShapeTable


@dataclass(frozen=True)
class Item:
    """One way to use ``slice_chips`` chips in each of ``slices`` pools of a class.

    ``requests_per_s`` an upper bound (or, in a fleet of realised shapes, what is achieved);
    ``shape`` the row of the shape table.
    """

    shape: int
    role: int
    pool_class: int
    slices: int
    slice_chips: int
    requests_per_s: float

    @property
    def chips(self) -> int:
        """Chips of one replica."""
        return self.slices * self.slice_chips


class Items:
    """Best item of each role and footprint, under upper bounds that only fall."""

    def __init__(
        self, shapes: ShapeTable, upper: NDArray[np.float64], classes: tuple[PoolClass, ...]
    ):
        self.shapes = shapes
        self.classes = classes
        self.upper = upper.copy()
        keys = np.stack([shapes.role, shapes.pool_class, shapes.slices, shapes.slice_chips])
        alive = np.flatnonzero(self.upper > 0)
        self._groups: dict[tuple[int, ...], NDArray[np.int64]] = {}
        if len(alive):
            _, inverse = np.unique(keys[:, alive], axis=1, return_inverse=True)
            order = np.argsort(inverse.ravel(), kind="stable")
            cuts = np.flatnonzero(np.diff(inverse.ravel()[order])) + 1
            for members in np.split(alive[order], cuts):
                self._groups[tuple(int(v) for v in keys[:, members[0]])] = members

    def tighten(self, shape: int, upper: float) -> None:
        """Lower a shape's upper bound."""
        self.upper[shape] = min(self.upper[shape], upper)

    def siblings(self, shape: int) -> NDArray[np.int64]:
        """Shapes of the same role on the same chips, itself included, best bound first."""
        row = self.shapes.row(shape)
        key = (row["role"], row["pool_class"], row["slices"], row["slice_chips"])
        members = self._groups[key]
        return members[np.argsort(-self.upper[members], kind="stable")]

    def best(self, rates: NDArray[np.float64] | None = None) -> list[Item]:
        """Items that some optimal fleet needs, under ``rates`` (default: the upper bounds).

        Left out is every item whose chips, pool by pool, serve at least as much when split among
        smaller items of its role: putting these in its place breaks no rule of the fleet.
        """
        values = self.upper if rates is None else rates
        found: list[Item] = []
        # best rate of each role, class and span on each number of chips per pool
        reach: dict[tuple[int, int, int], NDArray[np.float64]] = {}
        for key in sorted(self._groups, key=lambda k: (k[0], k[1], k[2], k[3])):
            members = self._groups[key]
            best = int(members[np.argmax(values[members])])
            rate = float(values[best])
            role, pool_class, slices, slice_chips = key
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
        return found

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

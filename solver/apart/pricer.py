"""Bounds of all shapes of a question: those of one group as ever, those of two groups after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from solver.apart.block import ApartBlock
from solver.apart.table import ApartTable
from solver.bounds.priced import Array, Bounds
from solver.bounds.pricing import Pricer
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ShapeTable

#: shapes priced at once
_BLOCK = 8192


class ApartPricer(Pricer):
    """Prices shapes of one group and of two; ``table`` says what the last rows of a shape table are."""

    table: ApartTable

    def __init__(
        self,
        instance: Instance,
        classes: Sequence[PoolClass],
        like: Pricer | None = None,
        table: ApartTable | None = None,
    ):
        super().__init__(instance, classes, like)
        given: ApartTable | None = like.table if isinstance(like, ApartPricer) else table
        assert given is not None
        self.table = given

    def first(self, shapes: ShapeTable) -> int:
        """The first row of two groups."""
        return len(shapes) - len(self.table)

    def bounds(self, shapes: ShapeTable, workers: int = 1) -> Bounds:
        """Upper bounds of all shapes."""
        first = self.first(shapes)
        plain = super().bounds(shapes.take(np.arange(first)), workers)
        found = [plain]
        kinds = np.array(
            [(one.attention[0], one.experts[0]) for one in self.table.footings], dtype=np.int64
        ).reshape(-1, 2)
        of_row = kinds[self.table.footing] if len(self.table) else np.zeros((0, 2), dtype=np.int64)
        rows = np.arange(len(self.table))
        order = np.lexsort((of_row[:, 1], of_row[:, 0]))
        cuts = np.flatnonzero(np.any(np.diff(of_row[order], axis=0) != 0, axis=1)) + 1
        own = _nothing(len(rows))
        for group in np.split(order, cuts) if len(order) else ():
            for start in range(0, len(group), _BLOCK):
                part = group[start : start + _BLOCK]
                bounded = self.two_groups(part).bounds()
                for name in Bounds.__dataclass_fields__:
                    getattr(own, name)[part] = getattr(bounded, name)
        found.append(own)
        return Bounds(
            *(
                np.concatenate([getattr(one, name) for one in found])
                for name in Bounds.__dataclass_fields__
            )
        )

    def two_groups(self, rows: NDArray[np.int64]) -> ApartBlock:
        """Some shapes of two groups, by their rows in ``table``, all on the same types of chip."""
        assert self.experts is not None
        return ApartBlock(self.instance, self.classes, self.experts, self.table.take(rows))

    def tightened(
        self,
        shapes: ShapeTable,
        row: int,
        layer_bounds: Array | None,
        most_per_rank: int,
        *,
        traded: bool = False,
        enough: float = 0.0,
    ) -> float:
        """A shape's rate bound with the load bounds that its placement proved (``traded``: of shapes of one group alone)."""
        own = row - self.first(shapes)
        if own < 0:
            return super().tightened(
                shapes, row, layer_bounds, most_per_rank, traded=traded, enough=enough
            )
        block = self.two_groups(np.array([own]))
        if layer_bounds is not None:
            assert self.experts is not None
            proven = self.experts.layer_loads(*block.pairs[0])
            block.by_layer = np.maximum(layer_bounds, proven)
        return float(block.bounds(most_per_rank).requests_per_s[0])

    def balanced(self, shapes: ShapeTable, row: int, most_per_rank: int) -> float:
        """Requests per second of a shape if every chip of experts got the same share of routed tokens."""
        own = row - self.first(shapes)
        if own < 0:
            return super().balanced(shapes, row, most_per_rank)
        block = self.two_groups(np.array([own]))
        layers = len(self.instance.operations.moe_layers)
        block.by_layer = np.full(layers, 1.0 / block.pairs[0][0])
        return float(block.bounds(most_per_rank).requests_per_s[0])


def _nothing(count: int) -> Bounds:
    zeros = [np.zeros(count) for _ in range(4)]
    return Bounds(
        np.zeros(count, dtype=np.int64), zeros[0], np.zeros(count, dtype=bool), *zeros[1:]
    )

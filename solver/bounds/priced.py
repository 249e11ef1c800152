"""What is priced together, and what bounding it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.communication import GroupRates
from costmodel.passes.operations import LayerKind
from costmodel.question.instance import Instance
from solver.bounds.experts.expert_bounds import ShapeExperts
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ShapeTable
from topology import Rate

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of shapes, one entry each.

    ``per_rank``: sequences (decode, mixed) or prompts (prefill) of the fullest attention rank, over all
    microbatches, in the largest batch that may hold; 0 where not even one sequence does. ``requests_per_s``: 0
    there too. ``fits``: whether one sequence fits in HBM at all; ``tpot_s``/``ttft_s`` of a single sequence
    tell :mod:`solver.explain.explain` how far a target is missed.
    """

    per_rank: Ints
    requests_per_s: Array
    fits: NDArray[np.bool_]
    short_bytes: Array
    least_tpot_s: Array
    least_ttft_s: Array

    def raise_to(self, rows: Ints, other: Bounds) -> None:
        """Bound also what ``other`` says of some of the shapes, in place."""
        for name in ("per_rank", "requests_per_s", "fits"):
            own = getattr(self, name)
            own[rows] = np.maximum(own[rows], getattr(other, name))
        for name in ("short_bytes", "least_tpot_s", "least_ttft_s"):
            own = getattr(self, name)
            own[rows] = np.minimum(own[rows], getattr(other, name))


@dataclass(frozen=True)
class Priced:
    """What is priced: shapes of one role on one class, for one question.

    ``layers``: kinds of layers with their numbers; ``experts``: bounds of their loads, ``None`` for a dense
    model; ``rates``: collective rates of ``shapes``, one row each; ``transfer``: the least hand-over of KV.
    """

    instance: Instance
    layers: Sequence[tuple[LayerKind, float]]
    experts: ShapeExperts | None
    shapes: ShapeTable
    rates: GroupRates
    role: int
    pool_class: PoolClass
    transfer: Rate

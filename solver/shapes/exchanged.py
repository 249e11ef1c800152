"""How tokens reach the experts of a shape under the engine that the question names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.passes.communication import Moved
from costmodel.question.exchange import Ranks
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import exchange_of, moved_by
from solver.shapes.shapes import ROLES
from topology import Chip


def moved_for(
    instance: Instance, chip: Chip, shape: Mapping[str, int], runs: Sequence[Sequence[int]]
) -> Moved:
    """What the evaluator finds for a replica of the shape.

    ``shape``: a row of a :class:`solver.shapes.shapes.ShapeTable`; ``runs``: its ranks in a row on one domain, stage
    by stage.
    """
    even = shape["slots"] % (shape["tp"] * shape["attention_dp"]) == 0
    ranks = Ranks(shape["attention_dp"], runs, even)
    return moved_by(instance, exchange_of(instance, chip, ROLES[shape["role"]], ranks))

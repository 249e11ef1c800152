"""A shape on the chips that it is tried on."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.passes.communication import GroupRates
from costmodel.question.instance import Instance
from solver.bounds.pricing import Pricer
from solver.place.build import stage_chips
from solver.shapes.pools import PoolClass, pick_chips
from solver.shapes.shapes import ShapeTable
from solver.shapes.spans import pools_of


@dataclass(frozen=True)
class Standing:
    """A shape on representative chips: ``chips[s]`` are those of stage ``s``, of one class.

    ``rates``: what its collectives reach; ``alike``: every stage reaches exactly these.
    """

    instance: Instance
    shape: dict[str, int]
    pool_class: PoolClass
    chips: list[list[str]]
    rates: GroupRates
    alike: bool


def standing(instance: Instance, shapes: ShapeTable, row: int, pricer: Pricer) -> Standing:
    """A row of the shape table on the first chips of its pools."""
    shape, parts = shapes.row(row), shapes.parts(row)
    pools = pools_of(parts, pricer.classes)
    chosen = [
        pick_chips(instance.cluster, pool.domain, pool.chips, count, leaving=len(parts) > 1)
        for pool, (_, count) in zip(pools, parts, strict=True)
    ]
    rates, alike = pricer.rates_of(shapes, row)
    home = pricer.classes[shape["pool_class"]]
    return Standing(instance, shape, home, stage_chips(shape, chosen), rates, alike)

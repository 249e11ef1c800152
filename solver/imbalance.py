"""A fleet as it would serve if every chip of a stage got the same share of the routed tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from solver.bounds.held_pricing import HeldPricer
from solver.fleet.asked import Fleet, Links, fleet_of
from solver.shapes.shapes import ShapeTable


def balanced_fleet(
    fleet: Fleet,
    pricer: HeldPricer,
    shapes: ShapeTable,
    per_rank: Mapping[int, int],
    links: Links | None,
) -> Fleet:
    """The same replicas with perfectly balanced experts, under the same expert load.

    Batches are the largest that each shape then allows, ``per_rank`` sequences at most. As many experts are
    touched as before: a question with uniform load is another one, and may be dearer or cheaper.
    """
    rates = {row: pricer.balanced(shapes, row, per_rank[row]) for row in fleet.shapes}
    stands = [
        (replace(item, requests_per_s=max(rates[item.shape], item.requests_per_s)), pools)
        for item, pools in fleet.stands
    ]
    return fleet_of(stands, pricer.classes, links)

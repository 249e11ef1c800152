"""Shapes take chips as they are sold; pools hold whole units, or a box that slices fit into side by side.

Units of one size fill a pool of whole units. Slices nest, each in the next: any of them whose chips are no more than
those of a box fit into it, so that the fleet model counts chips as ever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ShapeTable

OF = "replica"
HOLDS = "shapes take chips as they are sold, pools hold whole units or boxes, and sets of chips are chosen among these"


def allows(instance: Instance, shapes: ShapeTable) -> NDArray[np.bool_]:
    """Which shapes take numbers of chips that are sold, in one domain where slices are."""
    found = np.ones(len(shapes), dtype=np.bool_)
    if all(
        home.granularity.unit == 1 and home.granularity.spans for home in instance.cluster.domains
    ):
        return found
    own = [
        instance.cluster.domains[pool_class.domain].granularity
        for pool_class in pool_classes(instance.cluster)
    ]
    for row in range(len(shapes)):
        parts = shapes.parts(row)
        found[row] = all(
            own[index].allows(count) and (own[index].spans or len(parts) == 1)
            for index, count in parts
        )
    return found

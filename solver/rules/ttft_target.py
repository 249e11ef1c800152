r"""Prompts end in time where their KV stays in its domain, or also where it leaves it.

    ttft(one prompt) - least hand-over anywhere + hand-over to the nearest other domain <= target

for a prefill shape whose replicas may hand over to other domains; what they do not hand over has to be decoded
where they stand (:mod:`solver.rules.uplink_capacity`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.tolerance import exceeds
from solver.bounds.priced import Bounds
from solver.shapes.nearest import least_hand_over, nearest_other
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES, ShapeTable

OF = "replica"
HOLDS = (
    "the largest batch within TTFT bounds a shape; KV leaves a domain only where that is in time"
)


def leaving(
    instance: Instance, shapes: ShapeTable, bounds: Bounds, classes: Sequence[PoolClass]
) -> NDArray[np.float64]:
    """Rate bounds of shapes whose KV leaves its domain: 0 where that cannot be in time or at all."""
    rates = bounds.requests_per_s.copy()
    prefill = shapes.role == ROLES.index("prefill")
    for pool_class in classes:
        rows = np.flatnonzero(prefill & (shapes.pool_class == pool_class.index))
        far = nearest_other(instance.cluster, pool_class)
        if far is None:
            rates[rows] = 0.0
        elif instance.slo.ttft is not None:
            near = least_hand_over(instance.cluster, pool_class)
            moved = transfer_bytes_per_chip(instance, 1.0, 1.0) / (shapes.tp * shapes.pp)[rows]
            later = far.latency_s - near.latency_s + (far.s_per_byte - near.s_per_byte) * moved
            late = exceeds_each(bounds.least_ttft_s[rows] + later, instance.slo.ttft)
            rates[rows[late]] = 0.0
    return rates


def exceeds_each(values: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    """:func:`costmodel.tolerance.exceeds` of many values."""
    return np.array([exceeds(value, limit) for value in values.tolist()], dtype=bool)

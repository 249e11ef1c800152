r"""Prompts end in time where their KV stays in its domain, or also where it leaves it.

    ttft(one prompt) - hand-over inside the domain + hand-over to the nearest other domain <= target

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
from solver.shapes.group_rates import nearest_send
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES, ShapeTable
from topology import Cluster, Rate
from topology.errors import NoRoute

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
            near = nearest_send(instance.cluster, pool_class)
            moved = transfer_bytes_per_chip(instance, 1.0, 1.0) / (shapes.tp * shapes.pp)[rows]
            later = far.latency_s - near.latency_s + (far.s_per_byte - near.s_per_byte) * moved
            late = exceeds_each(bounds.least_ttft_s[rows] + later, instance.slo.ttft)
            rates[rows[late]] = 0.0
    return rates


def exceeds_each(values: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    """:func:`costmodel.tolerance.exceeds` of many values."""
    return np.array([exceeds(value, limit) for value in values.tolist()], dtype=bool)


def nearest_other(cluster: Cluster, pool_class: PoolClass) -> Rate | None:
    """The quickest hand-over from any pool of a class to another domain (``None``: there is none)."""
    found: dict[object, Rate] = {}
    for pool in pool_class.pools[:1] if cluster.network is None else pool_class.pools:
        if cluster.network is None:
            return None
        source = _quickest(cluster, pool.domain)
        for domain in cluster.domains:
            key = (
                cluster.network.nic_class(pool.domain), cluster.network.nic_class(domain.index),
                cluster.network.unit(pool.domain) == cluster.network.unit(domain.index),
            )  # fmt: skip
            if domain.index == pool.domain or not domain.usable or key in found:
                continue
            try:
                found[key] = cluster.rate("send", (source, _quickest(cluster, domain.index)))
            except NoRoute:
                continue
    if not found:
        return None
    return Rate(
        min(rate.latency_s for rate in found.values()),
        min(rate.s_per_byte for rate in found.values()),
        0.0,
        0.0,
        "none",
    )


def _quickest(cluster: Cluster, domain: int) -> str:
    """The working chip of a domain with the fastest NIC."""
    assert cluster.network is not None
    nics = cluster.network.nic_profile(domain)
    healthy = [placed for placed in cluster.domains[domain].chips if placed.healthy]
    return max(healthy, key=lambda placed: nics[placed.position]).id

r"""Prompts end in time where their KV stays in its domain, or also where it leaves it.

    ttft(one prompt) - hand-over inside the domain + hand-over to the nearest other domain <= target

for a prefill shape whose replicas may hand over to other domains; what they do not hand over has to be decoded
where they stand (:mod:`solver.rules.uplink_capacity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

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
    """The quickest hand-over from any pool of a class to another domain (``None``: there is none).

    Pairs of domains whose NICs are alike and that are both in one unit, or both not, take as long; one
    pair of each such kind that has a route is asked for.
    """
    if cluster.network is None:
        return None
    sources = _by_place(cluster, [pool.domain for pool in pool_class.pools])
    targets = _by_place(cluster, [domain.index for domain in cluster.domains if domain.usable])
    kinds = [
        _first_route(cluster, pairs)
        for near in sources.values()
        for far in targets.values()
        for pairs in (_in_one_unit(near, far), _in_two_units(near, far))
    ]
    found = [rate for rate in kinds if rate is not None]
    if not found:
        return None
    return Rate(
        min(rate.latency_s for rate in found),
        min(rate.s_per_byte for rate in found),
        0.0,
        0.0,
        "none",
    )


#: domains by unit
_Places = dict[int, list[int]]


def _by_place(cluster: Cluster, domains: Sequence[int]) -> dict[int, _Places]:
    """Domains by the class of their NICs and by unit."""
    assert cluster.network is not None
    found: dict[int, _Places] = {}
    for index in dict.fromkeys(domains):
        places = found.setdefault(cluster.network.nic_class(index), {})
        places.setdefault(cluster.network.unit(index), []).append(index)
    return found


def _in_one_unit(near: _Places, far: _Places) -> Iterator[tuple[int, int]]:
    for unit, members in near.items():
        for pair in product(members, far.get(unit, ())):
            if pair[0] != pair[1]:
                yield pair


def _in_two_units(near: _Places, far: _Places) -> Iterator[tuple[int, int]]:
    for unit, members in near.items():
        for other, others in far.items():
            if other != unit:
                yield from product(members, others)


def _first_route(cluster: Cluster, pairs: Iterable[tuple[int, int]]) -> Rate | None:
    for source, target in pairs:
        try:
            return cluster.rate("send", (_quickest(cluster, source), _quickest(cluster, target)))
        except NoRoute:
            continue
    return None


def _quickest(cluster: Cluster, domain: int) -> str:
    """The working chip of a domain with the fastest NIC."""
    assert cluster.network is not None
    nics = cluster.network.nic_profile(domain)
    healthy = [placed for placed in cluster.domains[domain].chips if placed.healthy]
    return max(healthy, key=lambda placed: nics[placed.position]).id

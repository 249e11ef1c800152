"""The quickest ways for the KV of prompts: inside a domain, and to another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from solver.shapes.least_rates import least_send
from solver.shapes.pools import PoolClass
from solver.shapes.stands import neighbours_matter
from topology import Cluster, Rate
from topology.errors import NoRoute


def least_hand_over(cluster: Cluster, pool_class: PoolClass) -> Rate:
    """No hand-over from a pool of a class takes less, wherever decode replicas stand.

    NICs may be faster than the links of a mesh, so that the nearest chip is not the one reached soonest.
    """
    ways = [nearest_send(cluster, pool_class), nearest_other(cluster, pool_class)]
    known = [one for one in ways if one is not None]
    return Rate(
        min(one.latency_s for one in known), min(one.s_per_byte for one in known), 0.0, 0.0, "none"
    )


def nearest_send(cluster: Cluster, pool_class: PoolClass) -> Rate:
    """Rate of a hand-over to the nearest chip that another replica can stand on."""
    if neighbours_matter(cluster, pool_class.domain):
        return least_send(cluster, pool_class.pools[0])
    if len(cluster.domains[pool_class.domain].usable) > 1:
        return cluster.rate_for("send", pool_class.domain, 2, 1)
    return Rate(0.0, 0.0, 0.0, 0.0, "none")


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

"""Pools: usable chips of one type in one domain, and classes of pools that cannot be told apart.

A replica takes its chips from one pool, or from several pools of one chip type.
Failed chips, mixed types and part-taken domains are nothing special: they only change the pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from topology import Chip, Cluster, PlacedChip

#: pools of one class, and chips in them together, up to which (either one) each pool gets variables of
#: its own in the fleet model
_FEW_POOLS, _FEW_CHIPS = 8, 512


@dataclass(frozen=True)
class Pool:
    """Usable chips of one type in one domain, cheapest first, else in the domain's own order.

    ``part``: which of the parts that failures leave unjoined, largest first (0: all of the domain, or the largest).
    """

    domain: int
    chip: Chip
    chips: tuple[str, ...]
    part: int = 0


@dataclass(frozen=True)
class PoolClass:
    """Pools that are alike. ``size`` chips each; ``prices`` of these, dollars per hour, cheapest first."""

    index: int
    chip: Chip
    size: int
    pools: tuple[Pool, ...]
    prices: tuple[float, ...]

    def usd_per_hour(self, chips: int) -> float:
        """What ``chips`` of a pool cost at least: the cheapest are taken first."""
        return sum(self.prices[:chips])

    @property
    def domain(self) -> int:
        """A domain that stands for all of them."""
        return self.pools[0].domain

    @property
    def cut_off(self) -> bool:
        """Whether failures cut the pools off from the largest part of their domains."""
        return self.pools[0].part > 0

    @property
    def few(self) -> bool:
        """Whether the fleet model tells each pool apart; many pools are filled by patterns."""
        return len(self.pools) <= _FEW_POOLS or len(self.pools) * self.size <= _FEW_CHIPS


def pool_classes(cluster: Cluster) -> tuple[PoolClass, ...]:
    """The pools of a cluster, classed by chip type, size, prices and the domain's signature."""
    grouped: dict[Hashable, list[Pool]] = {}
    prices: dict[Hashable, tuple[float, ...]] = {}
    for domain in cluster.domains:
        for part, joined in enumerate(domain.fabric.parts):
            by_type: dict[str, list[PlacedChip]] = {}
            for placed in domain.usable:
                if placed.position in joined:
                    by_type.setdefault(placed.chip.name, []).append(placed)
            for name, own in by_type.items():
                own.sort(key=lambda placed: placed.chip.usd_per_hour)
                pool = Pool(domain.index, own[0].chip, tuple(placed.id for placed in own), part)
                paid = tuple(placed.chip.usd_per_hour for placed in own)
                key = (name, len(own), domain.signature, part, paid)
                grouped.setdefault(key, []).append(pool)
                prices[key] = paid
    return tuple(
        PoolClass(index, own[0].chip, len(own[0].chips), tuple(_by_unit(cluster, own)), prices[key])
        for index, (key, own) in enumerate(grouped.items())
    )


def _by_unit(cluster: Cluster, pools: Sequence[Pool]) -> list[Pool]:
    """Pools by unit of the network, the unit with the most of them first: the first ones lie closest together."""
    network = cluster.network
    if network is None:
        return list(pools)
    beside = Counter(network.unit(pool.domain) for pool in pools)
    return sorted(
        pools, key=lambda pool: (-beside[unit := network.unit(pool.domain)], unit, pool.domain)
    )


def pick_chips(
    cluster: Cluster, domain: int, free: Sequence[str], count: int, *, leaving: bool = False
) -> list[str]:
    """``count`` of the ``free`` chips of a domain: the first ones, or a compact block on a torus.

    Where only NICs differ, a replica that is ``leaving`` the domain gets the fastest, others the slowest.
    """
    home = cluster.domains[domain]
    if home.interchangeable_chips:
        return list(free[:count])
    places = {cluster.chip(chip).position: chip for chip in free}  # in the order of ``free``
    if home.fabric.interchangeable_chips and cluster.network is not None:
        nics, sign = cluster.network.nic_profile(domain), -1.0 if leaving else 1.0
        chosen = sorted(places, key=lambda at: sign * nics[at])[:count]
        return [places[at] for at in sorted(chosen)]
    return [places[position] for position in home.fabric.pick(sorted(places), count)]

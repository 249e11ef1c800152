"""Pools: usable chips of one type in one domain, and classes of pools that cannot be told apart.

A replica takes its chips from one pool, or from several pools of one chip type. Where chips are sold in units, a pool
holds whole units, and where they are sold in slices, one box that any slices fit into which are no more than it.
Failed chips, mixed types and part-taken domains are nothing special: they only change the pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from topology import Chip, Cluster, Domain, PlacedChip

#: pools of one class, and chips in them together, up to which (either one) each pool gets variables of
#: its own in the fleet model
_FEW_POOLS, _FEW_CHIPS = 8, 512


@dataclass(frozen=True)
class Pool:
    """Usable chips of one type in one domain, cheapest unit first, else in the domain's own order.

    ``part``: which of the parts that failures leave unjoined or no slice holds together, largest first (0: all of the
    domain, or the largest).
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
        positions = [placed.position for placed in domain.usable]
        for part, joined in enumerate(domain.granularity.parts(positions)):
            for name, own in _by_type(domain, joined).items():
                pool = Pool(domain.index, own[0].chip, tuple(placed.id for placed in own), part)
                paid = tuple(placed.chip.usd_per_hour for placed in own)
                key = (name, len(own), domain.signature, part, paid)
                grouped.setdefault(key, []).append(pool)
                prices[key] = paid
    return tuple(
        PoolClass(index, own[0].chip, len(own[0].chips), tuple(_by_unit(cluster, own)), prices[key])
        for index, (key, own) in enumerate(grouped.items())
    )


def whole_usd_per_hour(cluster: Cluster, classes: Sequence[PoolClass]) -> float:
    """What all usable chips cost: those of the pools, and those that are not sold as a whole."""
    pooled = {chip for c in classes for pool in c.pools for chip in pool.chips}
    rest = (placed.chip.usd_per_hour for placed in cluster.usable if placed.id not in pooled)
    return sum(len(c.pools) * sum(c.prices) for c in classes) + sum(rest)


def _by_type(domain: Domain, positions: Sequence[int]) -> dict[str, list[PlacedChip]]:
    """Chips of each type, in units (of one type each): the cheapest first."""
    unit = domain.granularity.unit
    rows = [
        [domain.chips[position] for position in positions[at : at + unit]]
        for at in range(0, len(positions), unit)
    ]
    found: dict[str, list[list[PlacedChip]]] = {}
    for row in rows:
        found.setdefault(row[0].chip.name, []).append(row)

    def price(row: list[PlacedChip]) -> float:
        return sum(placed.chip.usd_per_hour for placed in row)

    return {
        name: [placed for row in sorted(own, key=price) for placed in row]
        for name, own in found.items()
    }


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

    Where only NICs differ, a replica that is ``leaving`` the domain gets the fastest, others the slowest. Chips that
    are sold together stay together.
    """
    home = cluster.domains[domain]
    if home.interchangeable_chips:
        return list(free[:count])
    places = {cluster.chip(chip).position: chip for chip in free}  # in the order of ``free``
    if home.fabric.interchangeable_chips and cluster.network is not None:
        nics, sign = cluster.network.nic_profile(domain), -1.0 if leaving else 1.0
        unit, order = home.granularity.unit, list(places)
        units = [order[at : at + unit] for at in range(0, len(order), unit)]
        units.sort(key=lambda row: sign * sum(nics[at] for at in row) / len(row))
        chosen = [at for row in units for at in row][:count]
        return [places[at] for at in sorted(chosen)]
    return [places[position] for position in home.fabric.pick(sorted(places), count)]

"""What hardware there is: chips, domains, scale-out graphs, routing, link loads.

>>> from topology import load_cluster
>>> cluster = load_cluster("gb200-nvl72@4")           # or a YAML file
>>> cluster.domains[0].usable[0].id                   # placed chips: id, chip, rack, health
'r0g0'
>>> rate = cluster.rate("all-reduce", ["r0g0", "r0g1"])
>>> rate.time(2**20) >= rate.bound(2**20)
True
>>> wide = cluster.rate_for("dispatch", 0, 64, 4, top_k=8)  # 64 chips in each of 4 racks, by count
>>> loads = cluster.loads("all-to-all", ["r0g0", "r1g0"])   # bytes on every link of cluster.graph
>>> moved = cluster.transfers([("r0g0", "r1g3", 1e9)])      # many messages at once
>>> as_measured = cluster.with_profile("calibrated")        # instead of link speed

A new chip or cluster is a YAML file in ``instances``, a new scale-up topology a file in
``builders``, a new network a file in ``scaleout``. Imports nothing of the other packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# loaded on first use: whoever needs an error's class or a name's type alone does not wait for graphs
if TYPE_CHECKING:
    from topology.chip import Chip, chip_names, load_chip
    from topology.cluster import Cluster
    from topology.domain import Domain, PlacedChip
    from topology.load import build_cluster, cluster_names, load_cluster
    from topology.rate import Rate
    from topology.tier import TIER_KINDS, Tier, TierKind, load_tier, tier_names

_HOME = {
    "TIER_KINDS": "tier",
    "Chip": "chip",
    "Cluster": "cluster",
    "Domain": "domain",
    "PlacedChip": "domain",
    "Rate": "rate",
    "Tier": "tier",
    "TierKind": "tier",
    "build_cluster": "load",
    "chip_names": "chip",
    "cluster_names": "load",
    "load_chip": "chip",
    "load_cluster": "load",
    "load_tier": "tier",
    "tier_names": "tier",
}

__all__ = [
    "TIER_KINDS",
    "Chip",
    "Cluster",
    "Domain",
    "PlacedChip",
    "Rate",
    "Tier",
    "TierKind",
    "build_cluster",
    "chip_names",
    "cluster_names",
    "load_chip",
    "load_cluster",
    "load_tier",
    "tier_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)

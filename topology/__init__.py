"""What hardware there is: chips, domains, scale-out graphs, routing, link loads."""

from topology.chip import Chip, chip_names, load_chip
from topology.cluster import Cluster
from topology.domain import Domain, PlacedChip
from topology.load import build_cluster, cluster_names, load_cluster
from topology.rate import Rate

__all__ = [
    "Chip",
    "Cluster",
    "Domain",
    "PlacedChip",
    "Rate",
    "build_cluster",
    "chip_names",
    "cluster_names",
    "load_chip",
    "load_cluster",
]

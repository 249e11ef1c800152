"""What a tree of switches leaves open of the scale-out."""

from __future__ import annotations

from rackfit.discovery.found import Found


def leaves_of(found: Found, switches: dict[str, list[str]]) -> None:
    """Say what has to be assumed where leaves hang on other switches: Slurm's trees hold no rates of links."""
    leaves = {leaf for host in found.hosts.values() for leaf in host.leaves}
    parents = {name for name, below in switches.items() if leaves & set(below)}
    if leaves and parents:
        found.assumed.append(
            f"{len(leaves)} leaf switches under {len(parents)} others: links above the leaves are taken as wide as "
            "those below"
        )

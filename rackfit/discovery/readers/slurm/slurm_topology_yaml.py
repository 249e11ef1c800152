"""Slurm's ``topology.yaml``: several topologies, each a tree of switches, blocks, or flat."""

from __future__ import annotations

from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from rackfit.discovery.readers.slurm.hostlist import expand
from rackfit.discovery.readers.slurm.switch_tree import leaves_of
from topology.errors import InstanceError

TITLE = "Slurm topology.yaml"


def recognises(document: Document) -> bool:
    """A list whose entries have the key ``topology``."""
    head = document.text[:100_000]
    if "topology:" not in head or ("tree:" not in head and "block:" not in head):
        return False
    try:
        data = document.data
    except InstanceError:
        return "cluster_default" in head  # so that its mistake is told
    return bool(_topologies(data))


def _topologies(data: Any) -> list[dict[str, Any]]:
    return [
        entry for entry in map(mapping, sequence(data)) if isinstance(entry.get("topology"), str)
    ]


def read(document: Document) -> Found:
    """Leaves of the tree and blocks; several topologies of one kind: the default one's, or the first's."""
    found = Found(whole=False)
    ordered = sorted(
        _topologies(document.data), key=lambda entry: entry.get("cluster_default") is not True
    )
    switches: dict[str, list[str]] = {}
    for entry in ordered:
        place = f"{document.place}: {entry['topology']}"
        for block in map(mapping, sequence(mapping(entry.get("block")).get("blocks"))):
            for name in expand(str(block.get("nodes") or ""), place):
                host = found.host(name, place)
                host.block = host.block or str(block.get("block"))
        for switch in map(mapping, sequence(mapping(entry.get("tree")).get("switches"))):
            for name in expand(str(switch.get("nodes") or ""), place):
                host = found.host(name, place)
                host.leaves = host.leaves or (str(switch.get("switch")),)
            children = expand(str(switch.get("children") or ""), place)
            switches.setdefault(str(switch.get("switch")), children)
    leaves_of(found, switches)
    return found

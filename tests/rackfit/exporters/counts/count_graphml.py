"""Nodes of the cluster graph that have a role."""

from __future__ import annotations

import networkx as nx

from tests.rackfit.exporters.counts.devices import Devices


def count(files: dict[str, str], devices: Devices) -> None:
    """Each node that is not idle."""
    for _, data in nx.parse_graphml(files["cluster.graphml"]).nodes(data=True):
        if data.get("role", "idle") != "idle":
            devices.add(data["role"], data["host"], data["gpu"])

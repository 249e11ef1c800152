"""The cluster's graph with what the layout puts on it, for programs that draw or analyse graphs."""

from __future__ import annotations

import networkx as nx

from costmodel.replica.fleet import uplink_bytes_per_s
from rackfit.documents.result import memory_by_chip
from rackfit.exporters.launch.deployment import Deployment


def annotated_graph(deployment: Deployment) -> nx.DiGraph[str]:
    """Chips carry host, role, replica, stage, rank and HBM bytes; switches what they are.

    A chip without a replica has role ``idle``, one that cannot be used is not in the graph. Every
    edge has ``bytes_per_s`` (one direction), ``latency_s`` and ``links``; the graph has the load of
    each domain's uplinks (``uplink_<domain>``, bytes/s, and ``uplink_<domain>_capacity``).
    """
    cluster = deployment.instance.cluster
    graph: nx.DiGraph[str] = nx.DiGraph(cluster.graph)
    used = memory_by_chip(deployment.instance, deployment.layout, deployment.evaluation)
    for chip, place in deployment.hosts.places.items():
        if chip in graph:
            graph.nodes[chip].update(host=place.host, gpu=place.gpu, rack=place.rack, role="idle")
    for server in deployment.servers:
        width = server.replica.shape.chips_per_stage
        for rank, place in enumerate(server.places):
            memory = used[place.chip]
            graph.nodes[place.chip].update(
                role=server.role,
                replica=server.name,
                stage=rank // width,
                rank=rank,
                hbm_bytes=sum(value for kind, value in memory.items() if kind != "capacity"),
                hbm_capacity_bytes=memory["capacity"],
            )
    for domain in cluster.domains:
        load = deployment.evaluation.priced.egress_bytes_per_s(domain.index)
        graph.graph[f"uplink_{domain.name}"] = load
        graph.graph[f"uplink_{domain.name}_capacity"] = uplink_bytes_per_s(cluster, domain.index)
    return graph

"""Cuts: how fast data can possibly be spread over a graph, by maximum flow.

The optimum of an all-gather on any graph is set by a cut (Edmonds' arborescence packing; Zhao et
al., "ForestColl", 2024), so that the bound is also what optimal splitting reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

_SOURCE = "*source"


def gather_seconds(graph: nx.DiGraph[str], members: Sequence[str]) -> float:
    """Least seconds per byte of tensor until every member has all shards, ``inf`` if cut off.

    For each sink the time must let the shards of the far side of every cut through; the binding
    cut is found by repeated minimum cuts (Dinkelbach's iteration).
    """
    count = len(members)
    if count < 2:
        return 0.0
    net = _capacities(graph, members)
    shard = 1.0 / count
    time = 0.0
    for sink in members:
        into = sum(data["capacity"] for _, _, data in net.in_edges(sink, data=True))
        if into <= 0:
            return float("inf")
        time = max(time, (count - 1) * shard / into)
    for sink in members:
        while True:
            binding = _binding_cut(net, members, sink, shard, time)
            if binding is None:
                break
            if binding == float("inf"):
                return binding
            time = binding
    return time


def broadcast_seconds(graph: nx.DiGraph[str], members: Sequence[str]) -> float:
    """Least seconds per byte from the first member to all others: the narrowest cut between."""
    net = _capacities(graph, members)
    slow = 0.0
    for sink in members[1:]:
        width = float(nx.maximum_flow_value(net, members[0], sink))
        slow = max(slow, 1.0 / width if width > 0 else float("inf"))
    return slow


def _capacities(graph: nx.DiGraph[str], members: Sequence[str]) -> nx.DiGraph[str]:
    inside = set(members)
    net: nx.DiGraph[str] = nx.DiGraph()
    net.add_nodes_from(members)
    for source, target, data in graph.edges(data=True):
        if source in inside and target in inside:
            net.add_edge(source, target, capacity=data["bytes_per_s"])
    return net


def _binding_cut(
    net: nx.DiGraph[str], members: Sequence[str], sink: str, shard: float, time: float
) -> float | None:
    scaled: nx.DiGraph[str] = nx.DiGraph()
    for source, target, data in net.edges(data=True):
        scaled.add_edge(source, target, capacity=data["capacity"] * time)
    for member in members:
        scaled.add_edge(_SOURCE, member, capacity=shard)
    value, (near, far) = nx.minimum_cut(scaled, _SOURCE, sink)
    if value >= 1.0 - 1e-9:
        return None
    outside = sum(shard for member in members if member in near)
    width = sum(
        data["capacity"]
        for source, target, data in net.edges(data=True)
        if source in near and target in far
    )
    return outside / width if width > 0 else float("inf")

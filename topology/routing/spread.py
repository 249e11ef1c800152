"""Shortest-path splitting: traffic takes every path with the fewest hops, in proportion to width.

This is what adaptive NVSwitch and ECMP fabrics with weights do. Chips forward only where the
caller says so. Also holds dimension order for tori. Knows nothing of collectives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import networkx as nx

from topology.errors import InstanceError, NoRoute, Problem

Edge = tuple[str, str]
Demand = tuple[str, str, float]


def spread(
    graph: nx.DiGraph[str],
    demands: Iterable[Demand],
    forwards: Callable[[str], bool] = lambda node: True,
) -> dict[Edge, float]:
    """Load of every directed edge when each demand is split over its shortest paths.

    At a node the flow splits over next hops on shortest paths in proportion to the narrower of
    the edge and what lies behind it. ``forwards`` tells which nodes may be passed through.
    Raises ``NoRoute`` where no path exists.
    """
    by_target: dict[str, dict[str, float]] = {}
    for source, target, amount in demands:
        if source != target and amount > 0:
            into = by_target.setdefault(target, {})
            into[source] = into.get(source, 0.0) + amount
    loads: dict[Edge, float] = {}
    for target, sources in by_target.items():
        _into(graph, target, sources, forwards, loads)
    return loads


def _into(
    graph: nx.DiGraph[str],
    target: str,
    sources: Mapping[str, float],
    forwards: Callable[[str], bool],
    loads: dict[Edge, float],
) -> None:
    hops = _hops_to(graph, target, sources, forwards)
    order = sorted(hops, key=hops.__getitem__)
    width: dict[str, float] = {target: math.inf}
    nexts: dict[str, list[tuple[str, float]]] = {}
    for node in order[1:]:
        options = [
            (after, min(edge["bytes_per_s"], width[after]))
            for after, edge in graph.adj[node].items()
            if hops.get(after, -1) == hops[node] - 1 and (after == target or forwards(after))
        ]
        nexts[node] = options
        width[node] = sum(share for _, share in options)
    flow = dict(sources)
    for node in reversed(order[1:]):
        amount = flow.get(node, 0.0)
        if amount > 0:
            for after, share in nexts[node]:
                part = amount * share / width[node]
                loads[node, after] = loads.get((node, after), 0.0) + part
                flow[after] = flow.get(after, 0.0) + part


def _hops_to(
    graph: nx.DiGraph[str],
    target: str,
    sources: Mapping[str, float],
    forwards: Callable[[str], bool],
) -> dict[str, int]:
    if target not in graph:
        raise InstanceError(Problem(target, "not a working node of the graph"))
    hops, waiting, missing = {target: 0}, deque([target]), set(sources)
    last = math.inf
    while waiting:
        node = waiting.popleft()
        if hops[node] > last:
            break
        missing.discard(node)
        if not missing:
            last = min(last, hops[node])
        if node == target or forwards(node):
            for before in graph.pred[node]:
                if before not in hops:
                    hops[before] = hops[node] + 1
                    waiting.append(before)
    if missing:
        raise NoRoute(Problem(sorted(missing)[0], f"no working path to {target}"))
    return hops


def slowest(graph: nx.DiGraph[str], loads: Mapping[Edge, float]) -> tuple[float, str]:
    """Seconds of the edge that takes longest for its load, and its name."""
    worst, name = 0.0, "none"
    for (source, target), load in loads.items():
        time = load / graph.edges[source, target]["bytes_per_s"]
        if time > worst:
            worst, name = time, f"{source}--{target}"
    return worst, name

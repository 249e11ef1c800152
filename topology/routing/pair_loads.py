"""Load of every link by every message between two chips at once, over shortest paths as in :mod:`topology.routing.spread`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.routing.spread import Edge

Array = NDArray[np.float64]

#: chips up to which the loads of all pairs are kept
MOST_CHIPS = 100


class PairLoads:
    """Loads of a graph of chips that all forward; ``of(group)`` adds up those of an exchange."""

    def __init__(self, graph: nx.DiGraph[str]):
        self.nodes: list[str] = list(graph)
        self.edges: list[Edge] = list(graph.edges)
        self._place = {node: index for index, node in enumerate(self.nodes)}
        self._link = {edge: index for index, edge in enumerate(self.edges)}
        self._loads = np.stack([self._towards(graph, target) for target in self.nodes])

    def _towards(self, graph: nx.DiGraph[str], target: str) -> Array:
        """``[sources, links]``: a byte from each chip to the target, split by the width of what lies ahead."""
        hops = nx.single_source_shortest_path_length(graph.reverse(copy=False), target)
        order = sorted(hops, key=hops.__getitem__)
        width = {target: math.inf}
        loads = np.zeros((len(self.nodes), len(self.edges)))
        ahead: dict[str, list[tuple[str, float]]] = {}
        for node in order[1:]:
            ahead[node] = [
                (after, min(edge["bytes_per_s"], width[after]))
                for after, edge in graph.adj[node].items()
                if hops.get(after, -1) == hops[node] - 1
            ]
            width[node] = sum(share for _, share in ahead[node])
        flow = np.eye(len(self.nodes))
        for node in reversed(order[1:]):
            own = flow[:, self._place[node]]
            for after, share in ahead[node]:
                part = own * (share / width[node])
                loads[:, self._link[node, after]] += part
                flow[:, self._place[after]] += part
        return loads

    def of(self, group: Sequence[str]) -> dict[Edge, float]:
        """Load of each link when every member sends *1/c* to every member."""
        own = [self._place[node] for node in group]
        loads = self._loads[np.ix_(own, own)].sum(axis=(0, 1)) / len(own)
        used = np.flatnonzero(loads)
        return {self.edges[index]: float(loads[index]) for index in used}

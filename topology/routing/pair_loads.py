"""Load of every link by an exchange of any chips, over shortest paths as in :mod:`topology.routing.spread`.

What leaves a chip towards a target is split in one way, whoever sent it. So the ways are walked once, and an exchange sends all
its messages along them together, from the farthest chips to the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.routing.spread import Edge

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: chips up to which the ways between all of them are kept
MOST_CHIPS = 1024


@dataclass(frozen=True)
class _Hop:
    """What chips so many hops from their target send on, by target; ``first[target]``: where its entries begin, ``[chips + 1]``.

    ``part`` of what passes through ``node`` goes on to ``after`` by ``link``.
    """

    first: Index
    node: Index
    after: Index
    link: Index
    part: Array


class PairLoads:
    """Loads of a graph of chips that all forward; ``of(group)`` adds up those of an exchange."""

    def __init__(self, graph: nx.DiGraph[str]):
        self.nodes: list[str] = list(graph)
        self.edges: list[Edge] = list(graph.edges)
        self._place = {node: index for index, node in enumerate(self.nodes)}
        self._ends = np.array([[self._place[node] for node in edge] for edge in self.edges])
        self._ends = self._ends.reshape(-1, 2)
        self._rates: Array = np.array([graph.edges[edge]["bytes_per_s"] for edge in self.edges])
        self._hops = self._walked(graph)

    def _walked(self, graph: nx.DiGraph[str]) -> list[_Hop]:
        """The farthest hop first."""
        back, link = graph.reverse(copy=False), {edge: at for at, edge in enumerate(self.edges)}
        ways = [
            (near[after], place, self._place[node], self._place[after], link[node, after], part)
            for place, target in enumerate(self.nodes)
            for near in [nx.single_source_shortest_path_length(back, target)]
            for node, after, part in _towards(graph, target, near)
        ]
        table = np.array(ways, dtype=float).reshape(len(ways), 6)
        table = table[np.lexsort((table[:, 1], -table[:, 0]))]
        found = []
        for far in dict.fromkeys(table[:, 0].tolist()):
            rows = table[table[:, 0] == far]
            target, node, after, own = rows[:, 1:5].astype(np.int64).T
            first = np.searchsorted(target, np.arange(len(self.nodes) + 1))
            found.append(_Hop(first, node, after, own, rows[:, 5]))
        return found

    def of(self, group: Sequence[str]) -> dict[Edge, float]:
        """Load of each link when every member sends *1/c* to every member."""
        loads = self._all_to_all(group)
        return {self.edges[index]: float(loads[index]) for index in np.flatnonzero(loads)}

    def slowest(self, group: Sequence[str], turns: int) -> tuple[float, str]:
        """Seconds of the link that the same takes longest on, and its name.

        One that leaves the group counts ``turns`` times.
        """
        inside = np.zeros(len(self.nodes), dtype=bool)
        inside[[self._place[node] for node in group]] = True
        counts = np.where(inside[self._ends].all(axis=1), 1, turns)
        times = counts * self._all_to_all(group) / self._rates
        at = int(times.argmax())
        return (float(times[at]), "--".join(self.edges[at])) if times[at] > 0 else (0.0, "none")

    def _all_to_all(self, group: Sequence[str]) -> Array:
        own, number = np.array([self._place[node] for node in group]), len(self.nodes)
        # what waits on each chip for each target of the group, target by target
        flow = np.zeros((len(own), number))
        flow[:, own] = 1.0 / len(own)
        waiting = flow.reshape(-1)
        loads = np.zeros(len(self.edges))
        for hop in self._hops:
            first, counts = hop.first[own], hop.first[own + 1] - hop.first[own]
            entries = np.arange(counts.sum()) + np.repeat(first - counts.cumsum() + counts, counts)
            rows = np.repeat(np.arange(len(own)) * number, counts)
            amount = waiting[rows + hop.node[entries]] * hop.part[entries]
            some = amount > 0.0
            entries, amount = entries[some], amount[some]
            loads += np.bincount(hop.link[entries], amount, len(loads))
            waiting += np.bincount(rows[some] + hop.after[entries], amount, len(waiting))
        return loads

    def one(self, source: str, target: str) -> dict[Edge, float]:
        """Load of each link when a chip sends one byte to another."""
        place, passes, loads = self._place[target], np.zeros(len(self.nodes)), dict[Edge, float]()
        passes[self._place[source]] = 1.0
        for hop in self._hops:
            entries = slice(hop.first[place], hop.first[place + 1])
            amount = passes[hop.node[entries]] * hop.part[entries]
            np.add.at(passes, hop.after[entries], amount)
            for at in amount.nonzero()[0].tolist():
                loads[self.edges[hop.link[entries][at]]] = float(amount[at])
        return loads


def _towards(
    graph: nx.DiGraph[str], target: str, hops: dict[str, int]
) -> list[tuple[str, str, float]]:
    """Each chip with those that are next on its way, and the part of its bytes that they get: by the width of what lies ahead."""
    width, found = {target: math.inf}, list[tuple[str, str, float]]()
    for node in sorted(hops, key=hops.__getitem__)[1:]:
        ahead = [
            (after, min(edge["bytes_per_s"], width[after]))
            for after, edge in graph.adj[node].items()
            if hops.get(after, -1) == hops[node] - 1
        ]
        width[node] = sum(share for _, share in ahead)
        found += [(node, after, share / width[node]) for after, share in ahead]
    return found

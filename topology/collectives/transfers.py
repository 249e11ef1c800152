"""Many messages at once over a cluster's links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from topology.domain import Domain, PlacedChip
from topology.routing.spread import Edge, slowest, spread


@dataclass(frozen=True, slots=True)
class Transfers:
    """Many messages at once: seconds of the busiest link, its name, and every link's bytes."""

    time_s: float
    busiest_link: str
    loads: dict[Edge, float]


def sent(
    graph: nx.DiGraph[str],
    domains: Sequence[Domain],
    messages: Iterable[tuple[PlacedChip, PlacedChip, float]],
) -> Transfers:
    """Load of each link, and the time it sets, of messages (source, target, bytes) sent together."""
    loads: dict[Edge, float] = {}
    across: list[tuple[str, str, float]] = []
    for a, b, amount in messages:
        fabric = domains[a.domain].fabric
        if a.domain != b.domain or (a is not b and not fabric.joins(a.position, b.position)):
            across.append((a.id, b.id, amount))
            continue
        if a is b or amount <= 0:
            continue
        for (u, v), load in fabric.loads("send", (a.position, b.position)).items():
            edge = (f"r{a.domain}{u}", f"r{a.domain}{v}")
            loads[edge] = loads.get(edge, 0.0) + load * amount
    for edge, load in spread(graph, across).items():
        loads[edge] = loads.get(edge, 0.0) + load
    seconds, link = slowest(graph, loads)
    return Transfers(seconds, link, loads)

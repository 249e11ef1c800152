"""Load of every link under a collective or under many transfers at once, by walking routes.

Slower than the closed forms of ``compose``; used for pictures, link accounting and to test them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from topology.collectives.compose import Part, plan, relay_bytes_per_s
from topology.collectives.demand import PATTERN, Dispatched
from topology.routing.spread import Edge
from topology.scaleout.base import Flow, Network


@dataclass(frozen=True, slots=True)
class LinkKind:
    """Links of one kind together: how many carry load, the largest and the total load, the time."""

    links: int
    max_bytes: float
    total_bytes: float
    max_seconds: float


def collective_loads(
    kind: str,
    parts: Sequence[Part],
    network: Network | None,
    dispatched: Dispatched,
) -> dict[Edge, float]:
    """Bytes on every directed link per byte of the collective's argument."""
    loads: dict[Edge, float] = {}
    if kind == "send":
        ends = [(domain, position) for domain, _, members in parts for position in members]
        fabrics = [fabric for _, fabric, members in parts for _ in members]
        if ends[0][0] == ends[1][0] and (
            network is None or parts[0][1].joins(ends[0][1], ends[1][1])
        ):
            _add(loads, parts[0][0], parts[0][1].loads("send", [p for _, p in ends]), 1.0)
        elif network is not None:
            same = network.unit(ends[0][0]) == network.unit(ends[1][0])
            positions = ends[0][1], ends[1][1]
            passed_on = relay_bytes_per_s(fabrics[0], positions[0], fabrics[1], positions[1]) > 0
            direct = (network.spec.relayed and passed_on) or network.same_rail(*positions)
            far = 0.0 if same and direct else 1.0
            flows = [Flow(domain, (position,), 1.0, far) for domain, position in ends]
            loads.update(network.loads(flows))
        return loads
    moved, flows = plan(kind, parts, network, dispatched)
    known: dict[tuple[int, tuple[int, ...]], dict[Edge, float]] = {}
    for (domain, fabric, members), share in zip(parts, moved, strict=True):
        if len(members) > 1:
            key = (id(fabric), members)
            if key not in known:
                known[key] = fabric.loads(PATTERN[kind], members)
            _add(loads, domain, known[key], share.local)
    if network is not None:
        loads.update(network.loads(flows))
    return loads


def by_kind(graph: nx.DiGraph[str], loads: Mapping[Edge, float]) -> dict[str, LinkKind]:
    """Loads summed up by kind of link: scale-up, NIC, leaf to spine."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for (source, target), load in loads.items():
        rate = graph.edges[source, target]["bytes_per_s"]
        groups.setdefault(link_kind(source, target), []).append((load, load / rate))
    return {
        kind: LinkKind(
            len(rows), max(a for a, _ in rows), sum(a for a, _ in rows), max(b for _, b in rows)
        )
        for kind, rows in sorted(groups.items())
    }


def link_kind(source: str, target: str) -> str:
    """``scale-up``, ``nic`` or ``leaf-spine`` by the names of a link's ends."""
    ends = f"{source} {target}"
    if "spine" in ends:
        return "leaf-spine"
    return "nic" if ".nic" in ends else "scale-up"


def _add(loads: dict[Edge, float], domain: int, local: Mapping[Edge, float], factor: float) -> None:
    for (source, target), load in local.items():
        edge = (f"r{domain}{source}", f"r{domain}{target}")
        loads[edge] = loads.get(edge, 0.0) + load * factor

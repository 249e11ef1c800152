"""A cluster as a graph, as plain data and as a hash. Knows nothing of what transfers cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx

from topology.domain import Domain
from topology.fabric import join
from topology.scaleout.base import Network, network_node_kind


def build_graph(name: str, domains: Sequence[Domain], network: Network | None) -> nx.DiGraph[str]:
    """Everything that works, as a directed graph; see ``Cluster.graph``."""
    graph: nx.DiGraph[str] = nx.DiGraph(name=name)
    for domain in domains:
        prefix = f"r{domain.index}"
        graph.add_nodes_from(
            (chip.id, {"kind": "chip", "domain": domain.index, "chip": chip.chip.name})
            for chip in domain.chips
            if chip.healthy
        )
        for switch in domain.fabric.switch_names():
            if switch not in domain.fabric.failed:
                graph.add_node(prefix + switch, kind="switch", domain=domain.index)
        join(graph, domain.fabric.links(), prefix)
        for chip in domain.chips:
            if chip.healthy:
                links: Iterable[tuple[str, str, int]] = graph.out_edges(chip.id, data="links")
                graph.nodes[chip.id]["wires"] = sum(count for _, _, count in links)
    if network is not None:
        join(graph, network.links())
        gone = [
            chip.id
            for chip in [chip for domain in domains for chip in domain.chips]
            if not chip.healthy
        ]
        graph.remove_nodes_from([*gone, *(f"{name}.nic" for name in gone)])
        for node in list(graph):
            if "kind" not in graph.nodes[node]:
                graph.nodes[node]["kind"] = network_node_kind(node)
    return graph


def describe(
    name: str,
    title: str,
    sources: Sequence[str],
    domains: Sequence[Domain],
    network: Network | None,
) -> dict[str, Any]:
    """Domains by kind, chips, price, failures and scale-out as plain data."""
    chips = [chip for domain in domains for chip in domain.chips]
    usable = [chip for chip in chips if chip.usable]
    kinds: dict[str, dict[str, Any]] = {}
    for domain in domains:
        types = sorted({chip.chip.name for chip in domain.chips})
        label = f"{domain.kind} {'+'.join(types)} x{len(domain.chips)} usable {len(domain.usable)}"
        entry = kinds.setdefault(
            label,
            {
                "kind": domain.kind,
                "chips": types,
                "size": len(domain.chips),
                "usable": len(domain.usable),
                "count": 0,
            },
        )
        entry["count"] += 1
    return {
        "name": name,
        "title": title,
        "domains": list(kinds.values()),
        "chips_total": len(chips),
        "chips_usable": len(usable),
        "usd_per_hour": sum(chip.chip.usd_per_hour for chip in chips if chip.healthy),
        "scale_out": network.spec.model_dump() if network else None,
        "unusable": [chip.id for chip in chips if not chip.usable],
        "sources": list(sources),
    }


def digest(domains: Sequence[Domain], network: Network | None) -> str:
    """Hash of chips, links, health and network."""
    chips = [chip for domain in domains for chip in domain.chips]
    state = hashlib.sha256()
    types = {id(chip.chip): chip.chip for chip in chips}
    # hosts matter to launch files alone
    known = {key: repr(chip.model_dump(exclude={"chips_per_host"})) for key, chip in types.items()}
    said = {key: repr(text) for key, text in known.items()}
    written: dict[int, str] = {}  # domains alike share their signature
    for domain in domains:
        key = id(domain.signature)
        if key not in written:
            written[key] = repr(domain.signature)
        state.update(f"({domain.kind!r}, {domain.rack!r}, {written[key]})".encode())
        rows = [f"({chip.id!r}, {said[id(chip.chip)]}, {chip.usable})" for chip in domain.chips]
        state.update(f"[{', '.join(rows)}]".encode())
        state.update(repr(sorted(domain.fabric.failed)).encode())
    if network is not None:
        state.update(repr((network.spec, sorted(network.failed))).encode())
    return state.hexdigest()[:16]

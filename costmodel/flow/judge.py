"""What a placement of layers is worth: the greatest flow of tokens from source to sink. Never sees the solver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import networkx as nx

from costmodel.flow.question import FlowQuestion
from topology.catalogue import read_data
from topology.errors import InstanceError, Problem
from topology.names import brief

#: first and last layer of a node, from 0, both included
Range = tuple[int, int]
#: ranges by node; a node that is left out holds nothing
Placement = Mapping[int, Range]

#: flow is counted in steps of a billionth of a token per second: whole numbers, so that it is exact
STEPS = 10**9


def problems(question: FlowQuestion, placement: Placement) -> list[str]:
    """What is wrong with a placement; empty where it can be run."""
    found = []
    for node, (first, last) in sorted(placement.items()):
        if not 0 <= node < len(question.nodes):
            found.append(f"node {node}: there are {len(question.nodes)} nodes, numbered from 0")
        elif not 0 <= first <= last < question.model.layers:
            found.append(
                f"node {node}: layers {first} to {last} of 0 to {question.model.layers - 1}"
            )
        elif last - first + 1 > question.most_layers(node):
            held, most = last - first + 1, question.most_layers(node)
            found.append(f"node {node} ({question.nodes[node]}): {held} layers, it holds {most}")
    return found


def network(question: FlowQuestion, placement: Placement) -> nx.DiGraph[object]:
    """Source, sink and two ends for each node, with capacities in :data:`STEPS` of a token per second.

    The edge between a node's ends has its rate for the layers it holds. Node *j* follows node *i* where it
    starts at the layer after the last one of *i*.
    """
    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))

    def join(tail: object, head: object, tokens_per_s: float) -> None:
        graph.add_edge(tail, head, capacity=round(tokens_per_s * STEPS))

    for node, (first, last) in placement.items():
        join((node, "in"), (node, "out"), question.rate(node, last - first + 1))
        if first == 0:
            join("source", (node, "in"), question.entry(node))
        if last == question.model.layers - 1:
            join((node, "out"), "sink", question.leaving(node))
        for follower, (start, _) in placement.items():
            if start == last + 1:
                join((node, "out"), (follower, "in"), question.link(node, follower))
    return graph


def tokens_per_s(question: FlowQuestion, placement: Placement) -> float:
    """The greatest flow through a placement. Raises ``InstanceError`` for one that cannot be run."""
    wrong = problems(question, placement)
    if wrong:
        raise InstanceError([Problem("placement", message) for message in wrong])
    flow = nx.maximum_flow_value(network(question, placement), "source", "sink")
    return float(flow / STEPS)


def usd_per_m_tokens(question: FlowQuestion, flow: float) -> float | None:
    """Price of a million tokens while every node is paid; ``None`` without prices or flow."""
    price = question.usd_per_hour
    return None if price is None or flow <= 0 else price / 3600 / flow * 1e6


def load_placement(path: Path) -> dict[int, Range]:
    """A placement of a JSON file ``{"0": [first, last], ..}``. Raises ``InstanceError``."""
    data = read_data(path)
    if not isinstance(data, dict):
        raise InstanceError(Problem(str(path), 'expected {"0": [first, last], ..} by node'))
    found: dict[int, Range] = {}
    wrong = []
    for key, value in data.items():
        node = str(key)
        whole = isinstance(value, list) and all(type(layer) is int for layer in value)
        if not (node.isascii() and node.isdecimal() and len(node) < 10):
            wrong.append(Problem(str(path), f"expected the number of a node, got {brief(key)}"))
        elif not whole or len(value) != 2:
            message = f"expected [first layer, last layer], got {brief(value)}"
            wrong.append(Problem(f"{path}: {node}", message))
        else:
            found[int(node)] = (value[0], value[1])
    if wrong:
        raise InstanceError(wrong[:20])
    return found

"""Nodes that are alike: of one kind, and joined by links too fast to matter. Interchangeable but at a border."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.flow.question import FlowQuestion


@dataclass(frozen=True)
class Kind:
    """Nodes of one kind: how many, and tokens/s by layers held (``rates[k - 1]``)."""

    name: str
    count: int
    rates: tuple[float, ...]

    def rate(self, layers: int) -> float:
        """Tokens/s of a node that holds so many layers."""
        return self.rates[layers - 1]


@dataclass(frozen=True)
class Group:
    """Nodes of one kind in one room."""

    kind: Kind
    room: int
    nodes: tuple[int, ...]


def kinds_of(question: FlowQuestion) -> list[Kind]:
    """Kinds of the nodes that there are, in the order of the question's machines.

    A node between source and sink passes no more than all its links do, one that holds every layer no more than
    source and sink give it. The best node of a kind counts, so that the rates are never too low.
    """
    counts = Counter(question.nodes)
    reach: dict[str, float] = {}
    for node, kind in enumerate(question.nodes):
        links = sum(
            question.link(node, other) for other in range(len(question.nodes)) if other != node
        )
        if question.most_layers(node) == question.model.layers:
            links = max(links, min(question.entry(node), question.leaving(node)))
        reach[kind] = max(reach.get(kind, 0.0), links)
    found = []
    for name in question.machines:
        if name in counts:
            node = question.nodes.index(name)
            rates = [question.rate(node, k) for k in range(1, question.most_layers(node) + 1)]
            found.append(Kind(name, counts[name], tuple(min(rate, reach[name]) for rate in rates)))
    return found


def groups_of(question: FlowQuestion, kinds: list[Kind], ceiling: float) -> list[Group]:
    """Groups by room. No pair of a room has a link that can be full while ``ceiling`` tokens/s flow.

    Rooms are filled node by node: the first room whose nodes are all near takes it.
    """
    by_name = {kind.name: kind for kind in kinds}
    top = [min(ceiling, max(by_name[kind].rates)) for kind in question.nodes]

    def near(one: int, other: int) -> bool:
        return question.link(one, other) >= min(top[one], top[other])

    rooms: list[list[int]] = []
    for node in range(len(question.nodes)):
        for room in rooms:
            if all(near(node, other) for other in room):
                room.append(node)
                break
        else:
            rooms.append([node])
    return [
        Group(kind, number, nodes)
        for number, room in enumerate(rooms)
        for kind in kinds
        if (nodes := tuple(node for node in room if question.nodes[node] == kind.name))
    ]


def together(groups: list[Group]) -> list[Group]:
    """The same nodes in a single room, as if links between rooms did not matter."""
    by_kind: dict[str, list[Group]] = {}
    for group in groups:
        by_kind.setdefault(group.kind.name, []).append(group)
    return [
        Group(parts[0].kind, 0, tuple(node for part in parts for node in part.nodes))
        for parts in by_kind.values()
    ]


#: how many nodes of which group
Usage = Mapping[int, int]

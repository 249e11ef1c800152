"""The scale-up fabric of one domain: nodes, links, and what each pattern of transfer costs on them.

A fabric knows local names (``g3``, ``sw1``) and positions only, so that sixty-four equal racks
share one. Builders in ``topology/builders`` subclass :class:`Fabric`. Never knows the scale-out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import networkx as nx
from pydantic import BaseModel, ConfigDict

from topology.chip import Chip
from topology.errors import NoRoute
from topology.rate import Leg
from topology.routing.blocks import ChipBlock, by_speed, front
from topology.routing.spread import Demand, Edge, spread

#: sets of one number of chips that are told apart where chips differ in links
_FEW_SETS = 100
#: sets of one number of chips to choose from
_TO_CHOOSE = 400


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two local nodes; both directions have the same bandwidth."""

    a: str
    b: str
    bytes_per_s: float
    latency_s: float
    links: int = 1


def graph_of(links: Iterable[Link], prefix: str = "") -> nx.DiGraph[str]:
    """Directed graph of links, both directions alike; node names get the prefix."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    join(graph, links, prefix)
    return graph


def join(graph: nx.DiGraph[str], links: Iterable[Link], prefix: str = "") -> None:
    """Add links to a graph in both directions, with bandwidth, latency and multiplicity."""
    for link in links:
        a, b = prefix + link.a, prefix + link.b
        data = {
            "bytes_per_s": link.bytes_per_s,
            "latency_s": link.latency_s,
            "links": link.links,
        }
        graph.add_edge(a, b, **data)
        graph.add_edge(b, a, **data)


class FabricSpec(BaseModel):
    """Options every builder has; each builder's own options extend it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str


class Fabric(ABC):
    """Links of one domain, and the cost of each pattern of transfer between its chips.

    ``chips`` are the packages by position, ``failed`` the local names of nodes (``g3``, ``sw1``)
    and links (``g3--sw1``) that do not work. All costs are per direction and concurrent. Byte
    conventions: ``exchange`` counts the bytes one chip sources, spread evenly over all members,
    itself included; ``gather``, ``reduce_all`` and ``broadcast`` count the whole tensor;
    ``send`` counts the message.
    """

    #: Name of the topology, as in the cluster file and in ``Domain.kind``.
    kind: str
    #: True when any members of the same number are equivalent.
    interchangeable_chips: bool

    def __init__(self, chips: Sequence[Chip], failed: frozenset[str] = frozenset()):
        self.chips = tuple(chips)
        self.failed = failed
        self._quickest: dict[tuple[tuple[int, ...], int, int, bool], list[ChipBlock]] = {}

    def chip_names(self) -> list[str]:
        """Local names of the chips by position."""
        return [f"g{index}" for index in range(len(self.chips))]

    @abstractmethod
    def switch_names(self) -> list[str]:
        """Local names of switches, none in a mesh or torus."""

    @abstractmethod
    def links(self) -> Iterator[Link]:
        """Every working link once (multi-links are merged, ``links`` says how many)."""

    @abstractmethod
    def width(self, position: int) -> float:
        """Bytes/s per direction of all working links of a chip together."""

    def reaches(self, position: int) -> bool:
        """Whether the chip still has a working link (a domain of one chip needs none)."""
        return len(self.chips) == 1 or self.width(position) > 0

    def enclosure(self, position: int) -> int | None:
        """Which rack or node of a domain that spans several the chip is in, else ``None``."""
        return None

    @abstractmethod
    def signature(self, usable: Sequence[bool]) -> Hashable:
        """Equal for two fabrics that no layout can tell apart."""

    @abstractmethod
    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """``count`` of the candidate positions that belong together, the compact choice."""

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Sets of ``count`` of the candidates that may serve together, at most so many, good ones first.

        ``gathers``: the set that gathers soonest is looked for, also where that takes time.
        """
        first = self.pick(candidates, count)
        many = self.interchangeable_chips or math.comb(len(candidates), count) > _FEW_SETS
        if most == 1 or count == 1 or many:
            return [ChipBlock(first)]
        found = [self.priced(members) for members in combinations(sorted(candidates), count)]
        joined = [block for block in found if block is not None]
        return by_speed(joined)[:most] if joined else [ChipBlock(first)]

    def priced(self, members: tuple[int, ...]) -> ChipBlock | None:
        """A set with its times; ``None`` where two of its chips have no way to each other."""
        try:
            there, gathered = self.exchange(members), self.gather(members)
        except NoRoute:
            return None
        return ChipBlock(members, there.s_per_byte, gathered.s_per_byte, there.latency_s)

    def quickest(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Of :meth:`blocks` those that no other one is quicker than in all respects."""
        key = (tuple(candidates), count, most, gathers)
        if key not in self._quickest:
            self._quickest[key] = front(self.blocks(candidates, count, most, gathers=gathers))
        return self._quickest[key]

    def every_set_of(self, candidates: Sequence[int]) -> bool:
        """Whether :meth:`blocks` looks at every set of the candidates."""
        return False

    def everywhere(self, candidates: Sequence[int], count: int) -> list[ChipBlock]:
        """Sets of ``count`` of the candidates to choose from where several are to find room beside each other."""
        return self.blocks(candidates, count, _TO_CHOOSE)

    def side_by_side(
        self, candidates: Sequence[int], size: int, number: int
    ) -> list[list[tuple[int, ...]]]:
        """Ways to take ``number`` groups of ``size`` candidates that share none; none where no way is known."""
        return []

    def in_a_row(self, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Groups in an order in which each is followed by one near it."""
        return list(groups)

    def cuts(self, block: tuple[int, ...], size: int) -> list[list[tuple[int, ...]]]:
        """Ways to cut a block into groups of ``size`` chips that belong together."""
        own = sorted(block)
        return [[tuple(own[start : start + size]) for start in range(0, len(own), size)]]

    @cached_property
    def parts(self) -> list[frozenset[int]]:
        """Positions of the working chips that links join, the most chips first."""
        if self.interchangeable_chips:
            return [frozenset(p for p in range(len(self.chips)) if f"g{p}" not in self.failed)]
        names = set(self.chip_names())
        graph = self.graph.copy()
        graph.add_nodes_from(names - self.failed)  # a chip without links is a part of its own
        joined = (
            frozenset(int(name[1:]) for name in nodes & names)
            for nodes in nx.weakly_connected_components(graph)
        )
        return sorted((part for part in joined if part), key=lambda part: (-len(part), min(part)))

    def joins(self, position: int, other: int) -> bool:
        """Whether working links of the domain join two chips."""
        return any(position in part and other in part for part in self.parts)

    @abstractmethod
    def exchange(self, members: Sequence[int]) -> Leg:
        """Everyone sends to everyone: seconds per byte sourced per chip (own share included)."""

    @abstractmethod
    def gather(self, members: Sequence[int]) -> Leg:
        """All-gather, and by symmetry reduce-scatter: seconds per byte of the whole tensor."""

    @abstractmethod
    def reduce_all(self, members: Sequence[int]) -> Leg:
        """All-reduce: seconds per byte of the tensor that every chip holds."""

    @abstractmethod
    def broadcast(self, members: Sequence[int]) -> Leg:
        """First member to all others: seconds per byte of the message."""

    @abstractmethod
    def send(self, source: int, target: int) -> Leg:
        """One chip to one other: seconds per byte of the message."""

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The working links as a directed graph of local names."""
        return graph_of(self.links())

    def loads(self, pattern: str, members: Sequence[int]) -> dict[Edge, float]:
        """Bytes on each directed link per byte of the pattern, by walking routes on the graph.

        Messages go straight between members over shortest paths; a broadcast is handed from one
        member to the next. Slow next to the closed forms, and independent of them.
        """
        return spread(self.graph, self.messages(pattern, members))

    def messages(self, pattern: str, members: Sequence[int]) -> list[Demand]:
        """The messages (source, target, bytes per byte of the pattern) that a pattern sends."""
        names = [f"g{position}" for position in members]
        if pattern == "broadcast":
            return [(a, b, 1.0) for a, b in pairwise(names)]
        if pattern == "send":
            return [(names[0], names[1], 1.0)]
        share = (2.0 if pattern == "reduce_all" else 1.0) / len(names)
        return [(a, b, share) for a in names for b in names if a != b]

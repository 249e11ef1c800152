"""Times of patterns of transfer between groups of chips on a torus: boxes in closed form, others by cuts and routes.

Messages take dimension order over all orders of the axes alike, shortest paths where something failed.
A chip outside the group serves its ports in turn, so that of a link to or from it a group gets one
turn in as many as a chip has ports (assumed). All-gathers keep to the group's own links where these join it.
So a group's time does not depend on how it is turned, mirrored or moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topology.chip import Chip
from topology.errors import NoRoute, Problem
from topology.fabric import Fabric
from topology.rate import IDLE, Leg
from topology.routing.boxes import Axis, box_of, exchange_load, site_of, slab_bound
from topology.routing.cuts import broadcast_seconds, gather_seconds
from topology.routing.dimension import LinkTimes, dimension_order, exchange_loads, rotations
from topology.routing.hops import UNREACHED, hop_counts
from topology.routing.pair_loads import MOST_CHIPS, PairLoads
from topology.routing.spread import Edge, slowest, spread

#: Groups up to this size that are no box are answered by maximum flow.
_MAX_CUT_CHIPS = 24


class TorusPatterns(Fabric):
    """What transfers cost on a grid of chips; ``axes`` and ``hop_s`` (seconds of a hop) describe it."""

    axes: tuple[Axis, ...]
    hop_s: float

    def __init__(self, chips: Sequence[Chip], failed: frozenset[str] = frozenset()):
        super().__init__(chips, failed)
        self._whole_links = not any("--" in name for name in failed)
        self._legs: dict[Hashable, Leg] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Chips along each axis."""
        return tuple(axis.side for axis in self.axes)

    def exchange(self, members: Sequence[int]) -> Leg:
        """*max over axes of L/(8w)* with wraparound, *L/(4w)* without, for even sides L."""
        return self._known("exchange", members, self._exchange)

    def gather(self, members: Sequence[int]) -> Leg:
        """*ceil((c-1)/p) / (c w)*: whole shards, one per step through each of p ports.

        On full rings of even sides this is *1 / (2 w axes)*, the scaling book's form.
        """
        return self._known("gather", members, self._gather)

    def reduce_all(self, members: Sequence[int]) -> Leg:
        """Reduce-scatter, then all-gather: twice :meth:`gather`."""
        leg = self.gather(members)
        twice = leg.scaled(2)
        return Leg(
            twice.s_per_byte,
            2 * leg.latency_s,
            twice.bound_s_per_byte,
            leg.bound_latency_s,
            leg.link,
        )

    def broadcast(self, members: Sequence[int]) -> Leg:
        """*1 / (p w)*: stripes over edge-disjoint trees, p the ports of the worst-connected chip."""
        return self._known("broadcast", members, self._broadcast)

    def send(self, source: int, target: int) -> Leg:
        """Split over the dimension orders that start on each axis on which the ends differ."""
        key = ("send", source, target)
        if key not in self._legs:
            self._legs[key] = self._send(source, target)
        return self._legs[key]

    def _known(
        self, pattern: str, members: Sequence[int], work: Callable[[tuple[int, ...]], Leg]
    ) -> Leg:
        if len(members) < 2:
            return IDLE
        group = tuple(members) if pattern == "broadcast" else tuple(sorted(members))
        key = (pattern, group)
        if key not in self._legs:
            self._legs[key] = work(group)
        return self._legs[key]

    def _box(self, members: Sequence[int]) -> tuple[Axis, ...] | None:
        if not self._whole_links:
            return None
        if len(members) == len(self.chips):
            return self.axes
        return box_of(self.axes, members)

    def _exchange(self, members: tuple[int, ...]) -> Leg:
        box = self._box(members)
        latency = self._latency(members, box)
        if box is not None:
            times = [exchange_load(axis) / axis.bytes_per_s for axis in box]
            time = max(times)
            return Leg(time, latency, time, self.hop_s, f"g:axis{times.index(time)}")
        time, link = self._slowest_link(members)
        count = len(members)
        narrow = min(self.width(position) for position in members)
        bound = max((count - 1) / count / narrow, slab_bound(self.axes, members))
        return Leg(time, latency, min(bound, time), self.hop_s, link)

    def _slowest_link(self, members: tuple[int, ...]) -> tuple[float, str]:
        """Seconds of the link that an exchange keeps busiest, and its name; see :meth:`_in_turn`."""
        if not self.failed:
            return self._link_times.slowest(members)
        if self._few_joined(members):
            return self._pairs.slowest([f"g{position}" for position in members], self.ports)
        return slowest(self.graph, self._in_turn(self.loads("exchange", members), members))

    def _few_joined(self, members: Sequence[int]) -> bool:
        """Whether links join the members, on a domain so small that the ways between all its chips are kept."""
        joined = any(part.issuperset(members) for part in self.parts)
        return joined and len(self.graph) <= MOST_CHIPS

    @cached_property
    def _link_times(self) -> LinkTimes:
        return LinkTimes(self.axes, self.graph, self.ports)

    def loads(self, pattern: str, members: Sequence[int]) -> dict[Edge, float]:
        """Load of each link: every message's route, or ports filled evenly where shards spread.

        Messages take dimension order, shortest paths where something failed. All-gather,
        all-reduce and broadcast enter each chip through all of its ports within the group.
        """
        loads: dict[Edge, float] = {}
        if pattern in ("exchange", "send"):
            if self.failed and pattern == "exchange" and self._few_joined(members):
                return self._pairs.of([f"g{position}" for position in members])
            if self.failed:
                return super().loads(pattern, members)
            if pattern == "exchange":
                return exchange_loads(self.axes, members)
            for source, target, amount in self.messages(pattern, members):
                a, b = int(source[1:]), int(target[1:])
                ways = rotations(self.axes, a, b)
                for order in ways:
                    for edge, part in dimension_order(self.axes, a, b, order):
                        loads[edge] = loads.get(edge, 0.0) + part * amount / len(ways)
            return loads
        count = len(members)
        into = {"gather": 1 - 1 / count, "reduce_all": 2 - 2 / count}.get(pattern, 1.0)
        inside = self.graph.subgraph(f"g{position}" for position in members)
        for node in inside:
            edges: list[tuple[str, str, float]] = list(inside.in_edges(node, data="bytes_per_s"))
            width = sum(rate for _, _, rate in edges)
            for source, target, rate in edges:
                loads[source, target] = into * rate / width
        return loads

    def _gather(self, members: tuple[int, ...]) -> Leg:
        box, count = self._box(members), len(members)
        if box is not None:
            width = sum(axis.ports * axis.bytes_per_s for axis in box)
            bound = (count - 1) / count / width
            rates = {axis.bytes_per_s for axis in box if axis.side > 1}
            time = _in_steps(bound, count, rates)
            return Leg(time, self._latency(members, box), bound, self.hop_s, "g:ports")
        widest = min(self.width(position) for position in members)
        bound = (count - 1) / count / widest
        time = self._cut(members, (count - 1) / count, gather_seconds)
        if time < float("inf"):
            time = _in_steps(time, count, {axis.bytes_per_s for axis in self.axes if axis.side > 1})
            latency = self._own_latency(members)
        if time == float("inf") or count <= _MAX_CUT_CHIPS:
            straight = self.exchange(members)  # shards sent straight
            if straight.s_per_byte < time:
                time, latency = straight.s_per_byte, straight.latency_s
        return Leg(time, latency, min(bound, time), self.hop_s, "g:ports")

    def _cut(
        self,
        members: Sequence[int],
        into: float,
        seconds: Callable[[nx.DiGraph[str], Sequence[str]], float],
    ) -> float:
        """Seconds set by the narrowest cut of the group's own links, ``inf`` if they leave it apart.

        Larger groups are judged by the cuts around single chips, which bind on whole tori.
        """
        names = [f"g{position}" for position in members]
        if len(names) <= _MAX_CUT_CHIPS:
            return seconds(self.graph, names)
        inside = self.graph.subgraph(names).copy()
        if not nx.is_strongly_connected(inside):
            return float("inf")
        ports = inside.in_degree(weight="bytes_per_s")
        return into / min(width for _, width in ports)

    def _broadcast(self, members: tuple[int, ...]) -> Leg:
        box = self._box(members)
        if box is not None:
            time = 1.0 / sum(axis.ports * axis.bytes_per_s for axis in box)
        else:
            time = self._cut(members, 1.0, broadcast_seconds)
            if time == float("inf"):  # handed on from member to member through other chips
                handed_on = super().loads("broadcast", members)
                time, _ = slowest(self.graph, self._in_turn(handed_on, members))
        narrow = min(self.width(position) for position in members)
        bound = time if box is not None else min(time, 1.0 / narrow)
        return Leg(time, self._latency(members, box), bound, self.hop_s, "g:ports")

    def _send(self, source: int, target: int) -> Leg:
        if self.failed:
            names = f"g{source}", f"g{target}"
            few = len(self.graph) <= MOST_CHIPS and self.hops[source, target] != UNREACHED
            loads = self._pairs.one(*names) if few else spread(self.graph, [(*names, 1.0)])
            hops = int(self.hops[source, target])
        else:
            loads = self.loads("send", (source, target))
            ends = (site_of(source, self.shape), site_of(target, self.shape))
            hops = sum(axis.distance(*at) for axis, *at in zip(self.axes, *ends, strict=True))
        time, link = slowest(self.graph, loads)
        bound = 1.0 / min(self.width(source), self.width(target))
        latency = hops * self.hop_s
        return Leg(time, latency, bound, latency, link)

    def _in_turn(self, loads: Mapping[Edge, float], members: Sequence[int]) -> dict[Edge, float]:
        """Loads counted once for each port of a chip on links that do not join two members."""
        inside = {f"g{position}" for position in members}
        return {
            edge: load if edge[0] in inside and edge[1] in inside else self.ports * load
            for edge, load in loads.items()
        }

    @cached_property
    def ports(self) -> int:
        """Links of a chip with neighbours on every side."""
        return sum(min(2, axis.side - 1) for axis in self.axes)

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """Positions at the other ends of each chip's working links."""
        found: list[list[int]] = [[] for _ in self.chips]
        for link in self.links():
            a, b = int(link.a[1:]), int(link.b[1:])
            found[a].append(b)
            found[b].append(a)
        return found

    @cached_property
    def _pairs(self) -> PairLoads:
        return PairLoads(self.graph)

    @cached_property
    def hops(self) -> NDArray[np.int16]:
        """Hops between every two chips of the domain."""
        return hop_counts(self.neighbours)

    def _latency(self, members: Sequence[int], box: tuple[Axis, ...] | None) -> float:
        """Hops between the two members farthest apart: a collective ends with their message.

        *Source:* the scaling book's latency of a collective, the hops that its farthest shard takes.
        """
        if box is not None:
            return self.hop_s * sum(axis.reach for axis in box)
        return self._farthest(self.hops[np.ix_(members, members)])

    def _own_latency(self, members: Sequence[int]) -> float:
        """The same on the group's own links, which join it."""
        place = {position: index for index, position in enumerate(members)}
        inside = [[place[b] for b in self.neighbours[a] if b in place] for a in members]
        return self._farthest(hop_counts(inside))

    def _farthest(self, hops: NDArray[np.int16]) -> float:
        if (hops == UNREACHED).any():
            raise NoRoute(Problem("chips", "the group is not connected"))
        return self.hop_s * float(hops.max())


def _in_steps(time: float, count: int, rates: Collection[float]) -> float:
    """Seconds per byte in whole steps of one shard, where all links take equally long for one."""
    if len(rates) != 1:
        return time
    step = 1.0 / count / next(iter(rates))
    return _whole_steps(time / step) * step


@lru_cache(maxsize=4096)
def _whole_steps(steps: float) -> int:
    """Steps rounded up, forgiving the last bits of a float."""
    return int(-(-(steps - 1e-9) // 1))

"""2D and 3D tori with their real wraparound rules: TPU slices, Trainium2 UltraServers.

An axis wraps on TPU v4/v5p/v7 when every side is a multiple of 4 (cubes of 4x4x4 joined by optical
switches), on v5e/v6e when it is 16 long. Messages take dimension order, ties between the two ways
round are split. Boxes have closed forms; any other group is answered from the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

import networkx as nx
from pydantic import Field, model_validator

from topology.builders.base import topology
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric, FabricSpec, Link
from topology.quantity import BytesPerSecond, Seconds
from topology.rate import IDLE, Leg
from topology.routing.boxes import (
    Axis,
    best_box,
    box_of,
    exchange_load,
    position_of,
    site_of,
    slab_bound,
)
from topology.routing.cuts import broadcast_seconds, gather_seconds
from topology.routing.dimension import dimension_order, exchange_loads, rotations
from topology.routing.spread import Edge, slowest, spread

#: Groups up to this size that are no box are answered by maximum flow.
_MAX_CUT_CHIPS = 24


class TorusSpec(FabricSpec):
    """Options: sides, the rule for wraparound, bandwidth of a link by axis, latency of a hop.

    ``axis_bytes_per_s`` is one direction of one link; by default the chip's scale-up bandwidth
    over its number of links.
    """

    kind: Literal["torus"] = "torus"
    shape: tuple[int, ...] = Field(min_length=1, max_length=3)
    wrap: Literal["multiples-of-4", "sixteen", "all", "none"] = "multiples-of-4"
    axis_bytes_per_s: tuple[BytesPerSecond, ...] | None = None
    hop_s: Seconds = 1e-6

    @model_validator(mode="after")
    def _check(self) -> TorusSpec:
        if any(side < 1 or side > 256 for side in self.shape):
            raise ValueError(f"sides must be 1 to 256, got {self.shape}")
        if self.axis_bytes_per_s and len(self.axis_bytes_per_s) != len(self.shape):
            raise ValueError("axis_bytes_per_s needs one entry per side of the shape")
        return self

    def wraps(self) -> tuple[bool, ...]:
        """Which axes close to a ring; an axis of two chips has a single link."""
        if self.wrap == "all":
            rings = [True] * len(self.shape)
        elif self.wrap == "none":
            rings = [False] * len(self.shape)
        elif self.wrap == "sixteen":
            rings = [side == 16 for side in self.shape]
        else:
            whole = len(self.shape) == 3 and all(side % 4 == 0 for side in self.shape)
            rings = [whole] * len(self.shape)
        return tuple(ring and side > 2 for ring, side in zip(rings, self.shape, strict=True))


@topology(TorusSpec)
class Torus(Fabric):
    """Chips on a grid, the last axis fastest; see :class:`TorusSpec`."""

    interchangeable_chips = False

    def __init__(
        self, spec: TorusSpec, chips: Sequence[Chip], failed: frozenset[str] = frozenset()
    ):
        super().__init__(chips, failed)
        self.spec = spec
        places = 1
        for side in spec.shape:
            places *= side
        if places != len(chips):
            raise InstanceError(
                Problem("fabric.shape", f"{spec.shape} has {places} places for {len(chips)} chips")
            )
        first = self.chips[0]
        if any(chip.name != first.name for chip in self.chips):
            raise InstanceError(Problem("fabric", "a torus holds chips of one type"))
        each = first.scale_up_bytes_per_s / first.scale_up_links
        rates = spec.axis_bytes_per_s or (each,) * len(spec.shape)
        self.axes = tuple(
            Axis(side, ring, rate)
            for side, ring, rate in zip(spec.shape, spec.wraps(), rates, strict=True)
        )
        self._whole_links = not any("--" in name for name in failed)
        self._legs: dict[Hashable, Leg] = {}
        self._widths: list[float] | None = None

    def switch_names(self) -> list[str]:
        """No switches."""
        return []

    def links(self) -> Iterator[Link]:
        """One link to the next chip along each axis."""
        for position in range(len(self.chips)):
            site = site_of(position, self.spec.shape)
            for number, axis in enumerate(self.axes):
                if site[number] + 1 == axis.side and not axis.ring:
                    continue
                beside = list(site)
                beside[number] = (site[number] + 1) % axis.side
                if axis.side == 1:
                    continue
                a, b = f"g{position}", f"g{position_of(beside, self.spec.shape)}"
                if not {a, b, f"{a}--{b}", f"{b}--{a}"} & self.failed:
                    yield Link(a, b, axis.bytes_per_s, self.spec.hop_s)

    def width(self, position: int) -> float:
        """All working links of the chip together."""
        if self._widths is None:
            widths = [0.0] * len(self.chips)
            for link in self.links():
                widths[int(link.a[1:])] += link.bytes_per_s
                widths[int(link.b[1:])] += link.bytes_per_s
            self._widths = widths
        return self._widths[position]

    def enclosure(self, position: int) -> int | None:
        """The 4x4x4 cube, which is a rack, of a slice that is made of cubes."""
        sides = self.spec.shape
        if self.spec.wrap != "multiples-of-4" or len(sides) < 3 or any(s % 4 for s in sides):
            return None
        cube = [place // 4 for place in site_of(position, sides)]
        return position_of(cube, [side // 4 for side in sides])

    def signature(self, usable: Sequence[bool]) -> Hashable:
        """Options, failures and which chips are free, all by place."""
        return (
            self.spec,
            self.chips[0].name,
            self.chips[0].usd_per_hour,
            self.failed,
            tuple(usable),
        )

    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """The box of ``count`` free chips with the shortest sides, or the first free chips."""
        if self._whole_links:
            box = best_box(self.axes, frozenset(candidates), count)
            if box is not None:
                return box
        return tuple(sorted(candidates)[:count])

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
            return Leg(time, latency, time, self.spec.hop_s, f"g:axis{times.index(time)}")
        loads = self.loads("exchange", members)
        time, link = slowest(self.graph, loads)
        count = len(members)
        narrow = min(self.width(position) for position in members)
        bound = max((count - 1) / count / narrow, slab_bound(self.axes, members))
        return Leg(time, latency, min(bound, time), self.spec.hop_s, link)

    def loads(self, pattern: str, members: Sequence[int]) -> dict[Edge, float]:
        """Load of each link: every message's route, or ports filled evenly where shards spread.

        Messages take dimension order, shortest paths where something failed. All-gather,
        all-reduce and broadcast enter each chip through all of its ports within the group.
        """
        loads: dict[Edge, float] = {}
        if pattern in ("exchange", "send"):
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
        box = self._box(members)
        latency = self._latency(members, box)
        count = len(members)
        if box is not None:
            width = sum(axis.ports * axis.bytes_per_s for axis in box)
            bound = (count - 1) / count / width
            rates = {axis.bytes_per_s for axis in box if axis.side > 1}
            time = bound
        else:
            widest = min(self.width(position) for position in members)
            bound = (count - 1) / count / widest
            time = self._cut(members, (count - 1) / count, gather_seconds)
            rates = {axis.bytes_per_s for axis in self.axes if axis.side > 1}
        if len(rates) == 1 and time < float("inf"):
            step = 1.0 / count / rates.pop()
            time = _whole_steps(time / step) * step
        if box is None and (time == float("inf") or count <= _MAX_CUT_CHIPS):
            time = min(time, self._exchange(members).s_per_byte)  # shards sent straight
        return Leg(time, latency, min(bound, time), self.spec.hop_s, "g:ports")

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
                time, _ = slowest(self.graph, super().loads("broadcast", members))
        narrow = min(self.width(position) for position in members)
        bound = time if box is not None else min(time, 1.0 / narrow)
        return Leg(time, self._latency(members, box), bound, self.spec.hop_s, "g:ports")

    def _send(self, source: int, target: int) -> Leg:
        if self.failed:
            ends = (f"g{source}", f"g{target}")
            loads = spread(self.graph, [(*ends, 1.0)])
            time, link = slowest(self.graph, loads)
            hops = float(nx.shortest_path_length(self.graph, *ends))
        else:
            time, link = slowest(self.graph, self.loads("send", (source, target)))
            hops = sum(
                axis.distance(a, b)
                for axis, a, b in zip(
                    self.axes,
                    site_of(source, self.spec.shape),
                    site_of(target, self.spec.shape),
                    strict=True,
                )
            )
        bound = 1.0 / min(self.width(source), self.width(target))
        latency = hops * self.spec.hop_s
        return Leg(time, latency, bound, latency, link)

    def _latency(self, members: Sequence[int], box: tuple[Axis, ...] | None) -> float:
        if box is not None:
            return self.spec.hop_s * sum(axis.reach for axis in box)
        near = nx.single_source_shortest_path_length(self.graph, f"g{members[0]}")
        try:
            return self.spec.hop_s * max(near[f"g{position}"] for position in members)
        except KeyError:
            raise InstanceError(Problem("chips", "the group is not connected")) from None


@lru_cache(maxsize=4096)
def _whole_steps(steps: float) -> int:
    """Steps rounded up, forgiving the last bits of a float."""
    return int(-(-(steps - 1e-9) // 1))

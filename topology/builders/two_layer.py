"""Two layers of switches in planes: NVL576, CloudMatrix384, Trainium3 UltraServers.

Chips are in groups (racks or nodes). Each group has one first-layer switch per plane, and each of
these has a link to every second-layer switch of its plane. Closed forms from chips and uplinks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

from pydantic import Field

from topology.builders.base import topology
from topology.chip import Chip
from topology.errors import InstanceError, NoRoute, Problem
from topology.fabric import Fabric, FabricSpec, Link
from topology.quantity import Seconds
from topology.rate import IDLE, Leg
from topology.routing.spread import Edge


class TwoLayerSpec(FabricSpec):
    """Options: chips per group, planes, second-layer switches per plane, uplink ratio.

    ``uplink_ratio`` is a first-layer switch's bandwidth up over its bandwidth down when the group
    is full (1 is non-blocking).
    """

    kind: Literal["two-layer"] = "two-layer"
    chips_per_group: int = Field(ge=1)
    planes: int = Field(ge=1, le=256)
    second_layer: int = Field(ge=1, le=256)
    uplink_ratio: float = Field(default=1.0, ge=0.01, le=100)
    in_network_reduction: bool = True
    hop_s: Seconds = 0.5e-6
    floor_s: Seconds = 3.6e-6


@topology(TwoLayerSpec)
class TwoLayer(Fabric):
    """Chip to plane switch of its group, to any second-layer switch of the plane, and down."""

    interchangeable_chips = False

    def __init__(
        self, spec: TwoLayerSpec, chips: Sequence[Chip], failed: frozenset[str] = frozenset()
    ):
        super().__init__(chips, failed)
        if len(chips) % spec.chips_per_group:
            raise InstanceError(
                Problem(
                    "fabric.chips_per_group",
                    f"{len(chips)} chips do not fill groups of {spec.chips_per_group}",
                )
            )
        self.spec = spec
        self._groups = len(chips) // spec.chips_per_group
        planes = range(spec.planes)
        widest = max(chip.scale_up_bytes_per_s for chip in chips) / spec.planes
        self._wire = widest * spec.chips_per_group * spec.uplink_ratio / spec.second_layer
        self._down = [
            {
                plane: chip.scale_up_bytes_per_s / spec.planes
                for plane in planes
                if self._works(f"g{position}", self._first(position, plane))
            }
            for position, chip in enumerate(self.chips)
        ]
        self._up = [
            [
                sum(
                    self._wire
                    for top in range(spec.second_layer)
                    if self._works(self._name(group, plane), self._top(plane, top))
                )
                for plane in planes
            ]
            for group in range(self._groups)
        ]
        self._width = [sum(down.values()) for down in self._down]
        blocking = any(
            up < spec.chips_per_group * widest * (1 - 1e-9) for ups in self._up for up in ups
        )
        alike = len({tuple(down.items()) for down in self._down if down}) == 1
        self.interchangeable_chips = alike and not blocking

    def switch_names(self) -> list[str]:
        """First-layer switches by group and plane, then second-layer ones by plane."""
        first = [
            self._name(group, plane)
            for group in range(self._groups)
            for plane in range(self.spec.planes)
        ]
        second = [
            self._top(plane, top)
            for plane in range(self.spec.planes)
            for top in range(self.spec.second_layer)
        ]
        return first + second

    def links(self) -> Iterator[Link]:
        """Chips to first layer, first layer to second."""
        for position, down in enumerate(self._down):
            for plane, rate in down.items():
                wires = self.chips[position].scale_up_links // self.spec.planes
                yield Link(
                    f"g{position}",
                    self._first(position, plane),
                    rate,
                    self.spec.hop_s,
                    max(1, wires),
                )
        for group in range(self._groups):
            for plane in range(self.spec.planes):
                for top in range(self.spec.second_layer):
                    a, b = self._name(group, plane), self._top(plane, top)
                    if self._works(a, b):
                        yield Link(a, b, self._wire, self.spec.hop_s)

    def width(self, position: int) -> float:
        """Working links of the chip together."""
        return self._width[position]

    def enclosure(self, position: int) -> int | None:
        """The group: a rack of an NVL576, a node of a CloudMatrix384."""
        return self._group(position)

    def signature(self, usable: Sequence[bool]) -> Hashable:
        """Options, failures and which chips are free."""
        members = tuple(
            (chip.name, chip.usd_per_hour) if free else None
            for chip, free in zip(self.chips, usable, strict=True)
        )
        if self.interchangeable_chips:
            return (self.spec, tuple(sorted(member for member in members if member)))
        return (self.spec, self.failed, members)

    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """Free chips of as few groups as possible, the group with most free ones first."""
        by_group: dict[int, list[int]] = {}
        for position in sorted(candidates):
            by_group.setdefault(self._group(position), []).append(position)
        fits = [group for group in by_group.values() if len(group) >= count]
        if fits:
            return tuple(min(fits, key=len)[:count])
        chosen: list[int] = []
        for group in sorted(by_group.values(), key=len, reverse=True):
            chosen += group[: count - len(chosen)]
        return tuple(sorted(chosen))

    def exchange(self, members: Sequence[int]) -> Leg:
        """The larger of *(c-1)/c / W* and a plane's share of what leaves a group, over its uplinks."""
        count = len(members)
        away = {group: own * (count - own) / count for group, own in self._members(members).items()}
        return self._leg(members, (count - 1) / count, away)

    def gather(self, members: Sequence[int]) -> Leg:
        """*(c-1)/c / W* into each chip; a shard crosses into each group once."""
        count = len(members)
        away = {group: (count - own) / count for group, own in self._members(members).items()}
        return self._leg(members, (count - 1) / count, away)

    def reduce_all(self, members: Sequence[int]) -> Leg:
        """As on one layer: *2(c-1)/c*, or *(c+1)/c* where switches reduce; no less than *1 / W*."""
        count = len(members)
        ring = 2 * (count - 1) / max(count, 1)
        load = min(ring, (count + 1) / count) if self.spec.in_network_reduction else ring
        away = {group: 2 * (count - own) / count for group, own in self._members(members).items()}
        return self._leg(members, load, away, 1.0 if self.spec.in_network_reduction else ring)

    def broadcast(self, members: Sequence[int]) -> Leg:
        """*1 / W*: the message enters each group once."""
        groups = self._members(members)
        away = {group: 1.0 if len(groups) > 1 else 0.0 for group in groups}
        return self._leg(members, 1.0, away)

    def send(self, source: int, target: int) -> Leg:
        """*1 / W* of the narrower end."""
        groups = self._members((source, target))
        away = {group: 1.0 if len(groups) > 1 else 0.0 for group in groups}
        return self._leg((source, target), 1.0, away)

    def loads(self, pattern: str, members: Sequence[int]) -> dict[Edge, float]:
        """As for any fabric; a reduction in the switches loads wires and uplinks evenly."""
        count = len(members)
        load, ring = (count + 1) / count, 2 * (count - 1) / count
        if pattern != "reduce_all" or not self.spec.in_network_reduction or load >= ring:
            return super().loads(pattern, members)
        loads: dict[Edge, float] = {}
        for position in members:
            for plane, rate in self._down[position].items():
                a, b = f"g{position}", self._first(position, plane)
                loads[a, b] = loads[b, a] = load * rate / self._width[position]
        for group, own in self._members(members).items():
            ups = [link for link in self.links() if link.a.startswith(f"sw{group}.")]
            for link in ups:
                away = 2 * (count - own) / count / len(ups)
                loads[link.a, link.b] = loads[link.b, link.a] = away
        return loads

    def _leg(
        self,
        members: Sequence[int],
        load: float,
        away: dict[int, float],
        bound: float | None = None,
    ) -> Leg:
        if len(members) < 2:
            return IDLE
        width = min(self._width[position] for position in members)
        if width <= 0:
            raise NoRoute(Problem("chips", "a chip has no working scale-up link"))
        narrow = next(position for position in members if self._width[position] == width)
        worst, link = load / width, f"g{narrow}--{self._name(self._group(narrow), 0)}"
        least = (load if bound is None else bound) / width
        for group, amount in away.items():
            alive = [plane for plane in range(self.spec.planes) if self._up[group][plane] > 0]
            if amount > 0 and not alive:
                raise NoRoute(Problem(self._name(group, 0), "no working link upwards"))
            for plane in alive if amount > 0 else []:
                time = amount / len(alive) / self._up[group][plane]
                if time > worst * (1 + 1e-12):
                    worst, link = time, f"{self._name(group, plane)}--up"
        across = len(away) > 1
        hops = 4 if across else 2
        return Leg(worst, self.spec.floor_s, least, hops * self.spec.hop_s, link)

    def _members(self, members: Sequence[int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for position in members:
            group = self._group(position)
            counts[group] = counts.get(group, 0) + 1
        return counts

    def _group(self, position: int) -> int:
        return position // self.spec.chips_per_group

    def _name(self, group: int, plane: int) -> str:
        return f"sw{group}.{plane}"

    def _first(self, position: int, plane: int) -> str:
        return self._name(self._group(position), plane)

    def _top(self, plane: int, top: int) -> str:
        return f"top{plane}.{top}"

    def _works(self, a: str, b: str) -> bool:
        return not {a, b, f"{a}--{b}", f"{b}--{a}"} & self.failed

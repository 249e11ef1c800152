"""One layer of switches that every chip is wired to: NVSwitch nodes and NVL72 racks, Helios.

HGX Hopper has 4 switch chips with 5, 4, 4, 5 links per GPU, HGX Blackwell 2 with 9 each, NVL72 18
with one each. Closed forms while every chip reaches the same switches; the graph otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from topology.builders.base import topology
from topology.chip import Chip
from topology.errors import NoRoute, Problem
from topology.fabric import Fabric, FabricSpec, Link
from topology.quantity import Seconds
from topology.rate import IDLE, Leg
from topology.routing.spread import Edge

#: Links from one chip to one switch.
WireCount = Annotated[int, Field(ge=1, le=1024)]


class NvswitchSpec(FabricSpec):
    """Options: links of each chip to each switch, reduction in the switch, latencies.

    ``floor_s`` is the time of the smallest collective (synchronisation included), ``hop_s`` the
    wire and port time of one link.
    """

    kind: Literal["nvswitch"] = "nvswitch"
    links_per_switch: tuple[WireCount, ...] = Field(min_length=1, max_length=1024)
    in_network_reduction: bool = True
    hop_s: Seconds = 0.5e-6
    floor_s: Seconds = 2.6e-6


@topology(NvswitchSpec)
class Nvswitch(Fabric):
    """Chips x switches, complete bipartite; see :class:`NvswitchSpec`."""

    def __init__(
        self, spec: NvswitchSpec, chips: Sequence[Chip], failed: frozenset[str] = frozenset()
    ):
        super().__init__(chips, failed)
        self.spec = spec
        total = sum(spec.links_per_switch)
        self._switches = [f"sw{index}" for index in range(len(spec.links_per_switch))]
        self._wires: list[dict[str, float]] = []
        for position, chip in enumerate(self.chips):
            name = f"g{position}"
            wires = {
                switch: chip.scale_up_bytes_per_s * links / total
                for switch, links in zip(self._switches, spec.links_per_switch, strict=True)
                if switch not in failed and f"{name}--{switch}" not in failed
            }
            self._wires.append({} if name in failed else wires)
        self._width = [sum(wires.values()) for wires in self._wires]
        live = [wires for wires in self._wires if wires]
        self.interchangeable_chips = all(wires == live[0] for wires in live)
        self._in_network = spec.in_network_reduction

    def switch_names(self) -> list[str]:
        """Local names of the switch chips."""
        return list(self._switches)

    def links(self) -> Iterator[Link]:
        """One merged link per (chip, switch) pair that works."""
        counts = dict(zip(self._switches, self.spec.links_per_switch, strict=True))
        for position, wires in enumerate(self._wires):
            for switch, bytes_per_s in wires.items():
                yield Link(f"g{position}", switch, bytes_per_s, self.spec.hop_s, counts[switch])

    def width(self, position: int) -> float:
        """Working links of the chip, bytes/s per direction."""
        return self._width[position]

    def signature(self, usable: Sequence[bool]) -> Hashable:
        """Options and the multiset of usable chips by type and working wires."""
        members = sorted(
            (chip.name, chip.usd_per_hour, tuple(sorted(wires.items())))
            for chip, wires, free in zip(self.chips, self._wires, usable, strict=True)
            if free
        )
        return (self.spec, tuple(members))

    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """The ``count`` widest chips, lowest position first among equals."""
        best = sorted(candidates, key=lambda position: (-self._width[position], position))
        return tuple(sorted(best[:count]))

    def exchange(self, members: Sequence[int]) -> Leg:
        """*(c-1)/c / W*: a chip's own links carry all it sends (uniform traffic).

        Where chips differ in working links, each pair splits over the switches that both reach.
        """
        count = len(members)
        leg = self._leg(members, (count - 1) / count)
        if self.interchangeable_chips or count < 2:
            return leg
        time, link = self._uneven(members)
        return replace(leg, s_per_byte=time, link=link)

    def _uneven(self, members: Sequence[int]) -> tuple[float, str]:
        """Seconds per byte of the slowest wire when pairs split over the switches both reach."""
        wires = np.array([[self._wires[p].get(s, 0.0) for s in self._switches] for p in members])
        shared = np.minimum(wires[:, None, :], wires[None, :, :])
        total = shared.sum(axis=2, keepdims=True)
        if (total == 0).any():
            raise NoRoute(Problem("chips", "two chips share no working switch"))
        shared /= total
        shared[np.arange(len(members)), np.arange(len(members))] = 0.0
        load = shared.sum(axis=1) / len(members)
        time = np.divide(load, wires, out=np.zeros_like(load), where=wires > 0)
        chip, switch = np.unravel_index(int(time.argmax()), time.shape)
        return float(time[chip, switch]), f"g{members[int(chip)]}--{self._switches[int(switch)]}"

    def loads(self, pattern: str, members: Sequence[int]) -> dict[Edge, float]:
        """As for any fabric; a reduction in the switch loads each wire in proportion to its width."""
        count = len(members)
        ring = 2 * (count - 1) / count
        if pattern != "reduce_all" or not self._in_network or (count + 1) / count >= ring:
            return super().loads(pattern, members)
        loads: dict[Edge, float] = {}
        for position in members:
            for switch, rate in self._wires[position].items():
                part = (count + 1) / count * rate / self._width[position]
                loads[f"g{position}", switch] = loads[switch, f"g{position}"] = part
        return loads

    def gather(self, members: Sequence[int]) -> Leg:
        """*(c-1)/c / W* of the whole tensor into each chip."""
        return self.exchange(members)

    def reduce_all(self, members: Sequence[int]) -> Leg:
        """*2(c-1)/c / W* by reduce-scatter and all-gather, *(c+1)/c / W* when the switch reduces.

        In the switch, each chip's data goes up once and the reduced shard *1/c* comes back down
        to be multicast, hence the *1 + 1/c*; no algorithm does with less than *1 / W*.
        """
        count = len(members)
        ring = 2 * (count - 1) / count
        if not self._in_network or count < 2:
            return self._leg(members, ring)
        return self._leg(members, min(ring, (count + 1) / count), bound=1.0 if count > 2 else ring)

    def broadcast(self, members: Sequence[int]) -> Leg:
        """*1 / W*: the message leaves the root once and is passed on or multicast."""
        return self._leg(members, 1.0)

    def send(self, source: int, target: int) -> Leg:
        """*1 / W* of the narrower end."""
        return self._leg((source, target), 1.0)

    def _leg(self, members: Sequence[int], load: float, bound: float | None = None) -> Leg:
        if len(members) < 2:
            return IDLE
        width = min(self._width[position] for position in members)
        if width <= 0:
            raise NoRoute(Problem("chips", "a chip has no working scale-up link"))
        narrow = next(position for position in members if self._width[position] == width)
        return Leg(
            load / width,
            self.spec.floor_s,
            (load if bound is None else bound) / width,
            2 * self.spec.hop_s,
            f"g{narrow}--sw",
        )

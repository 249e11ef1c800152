"""Full mesh: every chip wired to every other (MI300X, MI325X, MI355X, Gaudi 3).

A pair has one of the chip's links only, so a group of two gets a fraction of the headline.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from typing import Literal

from pydantic import Field

from topology.builders.base import topology
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric, FabricSpec, Link
from topology.quantity import Seconds
from topology.rate import IDLE, Leg
from topology.routing.cuts import broadcast_seconds
from topology.routing.spread import Demand, slowest, spread


class MeshSpec(FabricSpec):
    """Options: the number of places wired (links of a chip go to ``places - 1`` peers evenly)."""

    kind: Literal["mesh"] = "mesh"
    places: int = Field(default=8, ge=2, le=256)
    hop_s: Seconds = 0.5e-6
    floor_s: Seconds = 3e-6


@topology(MeshSpec)
class Mesh(Fabric):
    """Complete graph; a partly filled node keeps the width of each pair."""

    def __init__(self, spec: MeshSpec, chips: Sequence[Chip], failed: frozenset[str] = frozenset()):
        super().__init__(chips, failed)
        if len(chips) > spec.places:
            raise InstanceError(
                Problem("fabric", f"{len(chips)} chips on a mesh of {spec.places} places")
            )
        self.spec = spec
        self._links = {
            (a, b): min(self.chips[a].scale_up_bytes_per_s, self.chips[b].scale_up_bytes_per_s)
            / (spec.places - 1)
            for a, b in combinations(range(len(chips)), 2)
            if not {f"g{a}", f"g{b}", f"g{a}--g{b}", f"g{b}--g{a}"} & failed
        }
        self._alive = [p for p in range(len(chips)) if f"g{p}" not in failed]
        whole = len(self._alive) * (len(self._alive) - 1) // 2
        self.interchangeable_chips = (
            len(set(self._links.values())) <= 1 and len(self._links) == whole
        )

    def switch_names(self) -> list[str]:
        """No switches."""
        return []

    def links(self) -> Iterator[Link]:
        """One link per pair."""
        for (a, b), bytes_per_s in self._links.items():
            wires = self.chips[a].scale_up_links // (self.spec.places - 1)
            yield Link(f"g{a}", f"g{b}", bytes_per_s, self.spec.hop_s, max(1, wires))

    def width(self, position: int) -> float:
        """All working links of the chip together."""
        return sum(rate for pair, rate in self._links.items() if position in pair)

    def signature(self, usable: Sequence[bool]) -> Hashable:
        """Options, usable chips, and which links work when not all do."""
        members = tuple(
            (chip.name, chip.usd_per_hour)
            for chip, free in zip(self.chips, usable, strict=True)
            if free
        )
        if self.interchangeable_chips:
            return (self.spec, tuple(sorted(members)))
        return (self.spec, members, tuple(sorted(self._links.items())), tuple(usable))

    def pick(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """The widest chips, lowest position first among equals."""
        best = sorted(candidates, key=lambda position: (-self.width(position), position))
        return tuple(sorted(best[:count]))

    def exchange(self, members: Sequence[int]) -> Leg:
        """*1 / (c w)*: each pair's share on its own link."""
        return self._direct(members, 1.0)

    def gather(self, members: Sequence[int]) -> Leg:
        """*1 / (c w)*: every shard straight to every peer."""
        return self._direct(members, 1.0)

    def reduce_all(self, members: Sequence[int]) -> Leg:
        """*2 / (c w)*: reduce-scatter, then all-gather."""
        return self._direct(members, 2.0)

    def broadcast(self, members: Sequence[int]) -> Leg:
        """*1 / ((c-1) w)*: one stripe to each peer, which passes it on to the others."""
        if len(members) < 2:
            return IDLE
        if self.interchangeable_chips:
            time = 1.0 / ((len(members) - 1) * self._link())
        else:
            time = broadcast_seconds(self.graph, [f"g{p}" for p in members])
        return self._leg(time, time, f"g{members[0]}--g{members[1]}", 2)

    def send(self, source: int, target: int) -> Leg:
        """*1 / w*: the one link of the pair, or two hops where it failed."""
        rate = self._links.get((min(source, target), max(source, target)))
        bound = 1.0 / min(self.width(source), self.width(target))
        if rate:
            return self._leg(1.0 / rate, bound, f"g{source}--g{target}", 1)
        loads = spread(self.graph, [(f"g{source}", f"g{target}", 1.0)])
        time, link = slowest(self.graph, loads)
        return self._leg(time, bound, link, 2)

    def _direct(self, members: Sequence[int], rounds: float) -> Leg:
        count = len(members)
        if count < 2:
            return IDLE
        if self.interchangeable_chips:
            time = rounds / (count * self._link())
            link = f"g{members[0]}--g{members[1]}"
            return self._leg(time, time, link, rounds)
        names = [f"g{position}" for position in members]
        share = rounds / count
        loads = spread(self.graph, [(a, b, share) for a in names for b in names if a != b])
        time, link = slowest(self.graph, loads)
        narrow = min(self.width(position) for position in members)
        return self._leg(time, rounds * (count - 1) / count / narrow, link, rounds)

    def _leg(self, time: float, bound: float, link: str, rounds: float) -> Leg:
        return Leg(time, self.spec.floor_s * max(1.0, rounds), bound, self.spec.hop_s, link)

    def _link(self) -> float:
        return next(iter(self._links.values()))

    def messages(self, pattern: str, members: Sequence[int]) -> list[Demand]:
        """As for any fabric, but a broadcast goes out in stripes that peers pass on."""
        if pattern != "broadcast":
            return super().messages(pattern, members)
        root, *peers = (f"g{position}" for position in members)
        stripe = 1.0 / len(peers)
        onward = [(a, b, stripe) for a in peers for b in peers if a != b]
        return [(root, peer, stripe) for peer in peers] + onward

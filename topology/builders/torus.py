"""2D and 3D tori with their real wraparound rules: TPU slices, Trainium2 UltraServers.

An axis wraps on TPU v4/v5p/v7 when every side is a multiple of 4 (cubes of 4x4x4 joined by optical
switches), on v5e/v6e when it is 16 long. What transfers cost is in
:mod:`topology.builders.torus_patterns`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Literal

import networkx as nx
import numpy as np
from pydantic import Field, model_validator

from topology.builders.base import topology
from topology.builders.torus_patterns import TorusPatterns
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import FabricSpec, Link
from topology.quantity import BytesPerSecond, Seconds
from topology.routing.blocks import (
    KEYS,
    ChipBlock,
    around,
    boxes,
    by_speed,
    chain,
    cut,
    grown,
    runs,
)
from topology.routing.boxes import Axis, best_box, position_of, site_of
from topology.routing.every_set import MOST_CHIPS, EverySet, priced
from topology.routing.hops import UNREACHED

#: boxes looked at for one number of chips, where not every set is
_MOST_BOXES = 400
#: chips beyond which fewer boxes and sets are looked at: each takes longer, and more of them are alike
_LARGE, _LARGE_BOXES, _LARGE_SETS = 64, 12, 3
#: chips up to which sets are also grown where there are boxes, and the chips that they are grown from
_GROWN, _SEEDS = 64, 24
#: sets that are no boxes, of those grown, whose times are worked out
_PRICED = 8
#: sets of a block that it may be cut into
_IN_A_BLOCK = 400


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
class Torus(TorusPatterns):
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
        self.hop_s = spec.hop_s
        self._widths: list[float] | None = None
        self._tables: dict[tuple[int, ...], EverySet] = {}
        self._blocks: dict[tuple[tuple[int, ...], int, int, bool], list[ChipBlock]] = {}

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
        """The box of ``count`` free chips with the shortest sides, or the quickest set found."""
        if self._whole_links:
            box = best_box(self.axes, frozenset(candidates), count)
            if box is not None:
                return box
        return self.blocks(candidates, count, 1)[0].chips

    def blocks(
        self, candidates: Sequence[int], count: int, most: int, *, gathers: bool = False
    ) -> list[ChipBlock]:
        """Of few candidates the quickest of all sets; else boxes and sets grown around a chip.

        First comes one that is quick in all respects, then the quickest in each.
        """
        free = tuple(sorted(candidates))
        key = (free, count, most, gathers)
        if key not in self._blocks:
            few = self._few(free)
            if count == 1:
                found = [ChipBlock((chip,)) for chip in free[:most]]
            elif few is not None:
                price = self.gather if gathers else None
                found = self._table(few).blocks(frozenset(free), count, most, price)
            else:
                found = self._compact(free, count, most, gathers=gathers)
            self._blocks[key] = found
        return self._blocks[key]

    def every_set_of(self, candidates: Sequence[int]) -> bool:
        """Where links join few chips."""
        return self._few(candidates) is not None

    def _few(self, candidates: Sequence[int]) -> tuple[int, ...] | None:
        """The joined chips that candidates are among, if so few that every set of them is looked at."""
        for part in self.parts:
            if len(part) <= MOST_CHIPS and part.issuperset(candidates):
                return tuple(sorted(part))
        return None

    def cuts(self, block: tuple[int, ...], size: int) -> list[list[tuple[int, ...]]]:
        """The cut whose slowest group gathers soonest, and the one whose groups are closest together.

        Each group follows one near it, for stages hand on to the next.
        """
        found = [
            [(chip,) for chip in block]
            if size == 1
            else cut(block, size, lambda chips, count: self.blocks(chips, count, _IN_A_BLOCK), key)
            for key in KEYS[1:]
        ]
        chained = [chain(groups, self.hops) for groups in found]
        return chained[:1] if chained[0] == chained[1] else chained

    def _table(self, free: tuple[int, ...]) -> EverySet:
        """Every set of some joined chips."""
        if free not in self._tables:
            pairs = {
                (a, b): {edge: 2 * load for edge, load in self.loads("exchange", (a, b)).items()}
                for a, b in combinations(free, 2)
                if self.hops[a, b] != UNREACHED
            }
            rates = nx.get_edge_attributes(self.graph, "bytes_per_s")
            self._tables[free] = EverySet(free, self.hops, self.hop_s, self.ports, rates, pairs)
        return self._tables[free]

    def _compact(
        self, free: tuple[int, ...], count: int, most: int, *, gathers: bool
    ) -> list[ChipBlock]:
        """Boxes, and sets grown around chips spread over the candidates, quickest first."""
        large = len(free) > _LARGE
        most = min(most, _LARGE_SETS) if large else most
        limit = _LARGE_BOXES if large else _MOST_BOXES
        chosen = dict.fromkeys(boxes(self.axes, frozenset(free), count, limit))
        if count <= _GROWN or not chosen:
            step = max(1, len(free) // max(2, min(most, _SEEDS)))
            for sets in (grown, around):
                chosen |= dict.fromkeys(sets(self.hops, free, count, free[::step]))
        odd = [chips for chips in chosen if self._box(chips) is None]
        odd.sort(key=self._spread_out)
        rows = dict.fromkeys(runs(self.axes, free, count))  # looked at however far apart they are
        dropped = set(odd[_PRICED:]) - rows.keys()
        chosen |= rows
        found = [self._block(chips) for chips in chosen if chips not in dropped]
        if not found:
            return [ChipBlock(free[:count])]
        if gathers:
            found = priced(found, self.gather)
        first = [min(found, key=key) for key in KEYS]
        return list(dict.fromkeys(first + by_speed(found)))[: max(most, 1)]

    def _spread_out(self, chips: tuple[int, ...]) -> tuple[int, int]:
        """Hops between the chips of a set that are farthest apart, and between all of them."""
        apart = self.hops[np.ix_(chips, chips)]
        return int(apart.max()), int(apart.sum())

    def _block(self, chips: tuple[int, ...]) -> ChipBlock:
        """A set with its times; the all-gather of one that is no box by its narrowest ports."""
        leg = self.exchange(chips)
        if self._box(chips) is not None:
            gather = self.gather(chips).s_per_byte
        else:
            inside = set(chips)
            ports = min(sum(rate for b, rate in self._ways_in[a] if b in inside) for a in chips)
            direct = (len(chips) - 1) / len(chips) / ports if ports > 0 else float("inf")
            gather = min(direct, leg.s_per_byte)
        return ChipBlock(chips, leg.s_per_byte, gather, leg.latency_s)

    @cached_property
    def _ways_in(self) -> list[list[tuple[int, float]]]:
        """Neighbours of each chip and the bytes/s from them."""
        edges = self.graph.edges
        return [
            [(b, edges[f"g{b}", f"g{a}"]["bytes_per_s"]) for b in near]
            for a, near in enumerate(self.neighbours)
        ]

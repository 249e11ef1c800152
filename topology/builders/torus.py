"""2D and 3D tori with their real wraparound rules: TPU slices, Trainium2 UltraServers.

An axis wraps on TPU v4/v5p/v7 when every side is a multiple of 4 (cubes of 4x4x4 joined by optical
switches), on v5e/v6e when it is 16 long. What transfers cost is in
:mod:`topology.builders.torus_patterns`, which chips belong together in :mod:`topology.builders.torus_sets`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

from pydantic import Field, model_validator

from topology.builders.base import topology
from topology.builders.torus_sets import TorusSets
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import FabricSpec, Link
from topology.quantity import BytesPerSecond, Seconds
from topology.routing.boxes import Axis, position_of, site_of


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
class Torus(TorusSets):
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

"""Chips at their places, and the scale-up domains that hold them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric


@dataclass(frozen=True, slots=True)
class PlacedChip:
    """One chip at its place. ``id`` is ``r<domain>g<position>``.

    ``rack`` names the rack or node; where a domain spans several it is ``<domain>.<part>``.

    ``healthy`` chips work and are wired, ``available`` ones are not taken by someone else.
    """

    id: str
    chip: Chip
    domain: int
    position: int
    rack: str
    healthy: bool = True
    available: bool = True

    @property
    def usable(self) -> bool:
        """Whether a layout may use the chip."""
        return self.healthy and self.available


@dataclass(frozen=True, eq=False)
class Domain:
    """One scale-up domain. Two domains with the same ``signature`` are interchangeable.

    ``interchangeable_chips`` says that any usable chips of the same number are equivalent: a
    switched domain of one chip type with all links and NICs alike.
    """

    index: int
    name: str
    rack: str
    kind: str
    chips: tuple[PlacedChip, ...]
    usable: tuple[PlacedChip, ...]
    signature: Hashable
    interchangeable_chips: bool
    fabric: Fabric

    def pick(self, count: int) -> tuple[PlacedChip, ...]:
        """``count`` usable chips that belong together (a compact block on a torus)."""
        free = [chip.position for chip in self.usable]
        if not 0 < count <= len(free):
            raise InstanceError(
                Problem(
                    self.name, f"{count} chips asked for, {len(free)} of {len(self.chips)} usable"
                )
            )
        return tuple(self.chips[position] for position in self.fabric.pick(free, count))

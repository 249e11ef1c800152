"""Chips at their places, and the scale-up domains that hold them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric, FabricSpec
from topology.routing.granularity import Granularity, Sold, granularity_of
from topology.scaleout.base import Network


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
    switched domain of one chip type with all links and NICs alike. ``granularity``: what a replica may take of it.
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
    granularity: Granularity

    @property
    def sold(self) -> bool:
        """Whether there are usable chips that a replica may take."""
        return any(self.granularity.parts([chip.position for chip in self.usable]))

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


class Row(NamedTuple):
    """A domain as specified: fabric, chips and NICs by position, name of racks, how chips are sold."""

    options: FabricSpec
    chips: tuple[Chip, ...]
    nics: tuple[float, ...]
    rack: str
    sold: Sold | None = None


def make_domain(
    index: int,
    row: Row,
    fabric: Fabric,
    network: Network | None,
    ids: list[str],
    taken: set[str],
    works: list[bool],
    signatures: dict[Hashable, Hashable],
) -> Domain:
    """One domain: the specification's ``row`` on a built ``fabric``.

    ``works``: which chips do; ``signatures``: those of domains alike so far, one object each.
    """
    rack = f"{row.rack}{index}"
    chips = tuple(
        PlacedChip(
            id=name,
            chip=chip,
            domain=index,
            position=position,
            rack=rack if within is None else f"{rack}.{within}",
            healthy=works[position],
            available=name not in taken,
        )
        for position, (name, chip) in enumerate(zip(ids, row.chips, strict=True))
        for within in [fabric.enclosure(position)]
    )
    usable = tuple(chip for chip in chips if chip.usable)
    profile = network.nic_profile(index) if network else ()
    rates = tuple(sorted(profile[chip.position] for chip in usable)) if profile else ()
    types = {chip.chip.name for chip in usable}
    leaving = (
        sum(profile[chip.position] for chip in chips if chip.healthy) if profile else 0.0,
        network.unit_bytes_per_s(network.unit(index))
        if network and network.spec.domains_per_unit == 1
        else 0.0,
    )
    flags = tuple(chip.usable for chip in chips)
    shape_key = (id(fabric), flags)
    if shape_key not in signatures:
        signatures[shape_key] = fabric.signature(flags)
    signature: tuple[Hashable, ...] = (fabric.kind, signatures[shape_key], rates, leaving)
    if row.sold is not None:
        signature = (*signature, row.sold)
    return Domain(
        index=index,
        name=f"r{index}",
        rack=rack,
        kind=fabric.kind,
        chips=chips,
        usable=usable,
        signature=signatures.setdefault((shape_key, rates, leaving, row.sold), signature),
        interchangeable_chips=fabric.interchangeable_chips
        and len(set(rates)) <= 1
        and len(types) <= 1,
        fabric=fabric,
        granularity=granularity_of(fabric, row.sold, "granularity"),
    )

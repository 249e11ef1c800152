"""What a matrix of links means: GPUs on switches, GPUs wired to each other, and links that are lost.

Behind switches every pair shows all links of a GPU, so a row adds up to more links than the chip has. Where a row
adds up to no more, the links go from GPU to GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any

from rackfit.discovery.found import Host
from rackfit.discovery.typical import Typical
from topology.errors import InstanceError, Problem


def unlinked(host: Host) -> dict[int, str]:
    """Positions without any NVLink in a host whose other GPUs have some."""
    alive = {
        position: max(pairs, default=0) for position, pairs in host.links.items()
    } | host.nvlinks
    bare = [position for position, links in alive.items() if not links]
    if len(bare) == len(alive):
        return {}
    return dict.fromkeys(bare, "no NVLink, unlike the host's other GPUs")


def fabric_of(host: Host, kind: Typical, assumed: list[str]) -> dict[str, Any]:
    """The fabric of a host's GPUs: the chip's usual one, or a mesh where they are wired to each other.

    A pair of a mesh of ``n`` places has one ``n - 1``th of the chip's rate: the places are as many as the width of
    a pair asks for. Pairs of unequal width count as the narrowest, which is said. Raises ``InstanceError`` where
    some pairs have no link: bridges between cards are no fabric of a whole host.
    """
    usual = dict(kind.fabric)
    live = [pairs for pairs in host.links.values() if any(pairs)]
    whole = kind.chip.scale_up_links
    if usual.get("kind") != "nvswitch" or len(live) < 3 or any(sum(row) > whole for row in live):
        return usual
    widths = {width for row in live for width in sorted(row, reverse=True)[: len(live) - 1]}
    width = min(widths)
    if width == 0:
        message = "NVLinks join some pairs of its GPUs only, which no fabric describes; leave this matrix out"
        raise InstanceError(Problem(host.name, message))
    if len(widths) > 1:
        assumed.append(
            f"{host.name}: pairs of its GPUs have {min(widths)} to {max(widths)} NVLinks; all are taken to have "
            f"{width}"
        )
    return {"kind": "mesh", "places": max(len(host.links), ceil(whole / width) + 1)}


def lost_wires(
    position: int, kind: Typical, fabric: dict[str, Any], host: Host, assumed: list[str]
) -> Iterator[tuple[int, str]]:
    """Switches that a GPU has lost its wire to, and why: whole wires, at least as wide as what is lost.

    A matrix of one GPU has no pair and tells nothing of its links. Without switches a count of links that are alive does
    not tell which pairs have lost some, which is said. Raises ``InstanceError`` where the chip has NVLinks
    and no pair of the host does: over PCIe it is another chip, with a rate of its own.
    """
    whole = kind.chip.scale_up_links
    pairs, counted = host.links.get(position), host.nvlinks.get(position)
    told = [*([max(pairs)] if pairs else []), *([] if counted is None else [counted])]
    wires = fabric.get("links_per_switch")
    links = min(told, default=whole)
    if kind.cluster is None or whole == 1 or links >= whole:
        return
    if not isinstance(wires, list | tuple):
        if counted is not None and counted < whole:
            assumed.append(
                f"{host.name}: {whole - counted} of GPU {position}'s {whole} links are dead; which pairs of GPUs they "
                "joined is not told, and they are left out"
            )
        return
    if links == 0:
        message = (
            f"no NVLink at GPU {position}, {kind.name} of the catalogue has {whole}; where there are none give --chip "
            "the path of a chip file of another name, with the rate of PCIe as scale_up_bytes_per_s"
        )
        raise InstanceError(Problem(host.name, message))
    lost = ceil((whole - links) * sum(wires) / whole)
    for switch, width in sorted(enumerate(wires), key=lambda pair: (pair[1], pair[0])):
        if lost <= 0:
            break
        yield switch, f"{host.name}: {links} of {whole} links left"
        lost -= width
    assumed.append(
        f"{host.name}: which switch GPU {position}'s {whole - links} lost links went to is not told; whole wires are "
        "taken, at least as wide"
    )


def lost_pairs(
    kind: Typical, fabric: dict[str, Any], host: Host, failed: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of a mesh that no link joins, of GPUs that serve.

    Raises ``InstanceError`` where none of the host's pairs has a link: over PCIe it is another chip.
    """
    if kind.cluster is None or fabric.get("kind") != "mesh":
        return
    pairs = [
        (a, b, links)
        for a, row in host.links.items()
        for b, links in zip([other for other in host.links if other != a], row, strict=True)
        if a < b
    ]
    if pairs and not any(links for _, _, links in pairs):
        message = (
            f"no link of the scale-up between its GPUs, {kind.name} of the catalogue has {kind.chip.scale_up_links}; "
            "where there are none give --chip the path of a chip file of another name, with the rate of PCIe as "
            "scale_up_bytes_per_s"
        )
        raise InstanceError(Problem(host.name, message))
    broken = set(failed)
    yield from ((a, b) for a, b, links in pairs if not links and not {a, b} & broken)

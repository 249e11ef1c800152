"""The scale-out of a cluster file: the chip's usual one, with what files told of leaves, spines and rates."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rackfit.discovery.assemble import Assembled
from rackfit.discovery.found import Found


def scale_out(found: Found, done: Assembled) -> tuple[dict[str, Any], bool]:
    """The ``scale_out`` entry, and whether any of it was told. Domains are put in order of their leaves."""
    network = dict(done.places[0].kind.scale_out)
    units = [place.leaves for place in done.places]
    told = any(units)
    if told and len(done.places) > 1:
        _grouped(network, units, done)
    elif len(done.places) > 1:
        done.assumed.append(
            f"scale-out: {network['kind']}, as the catalogue has it for such chips; no file tells leaves"
        )
    if found.spines is not None and told:
        network["spines"] = found.spines
    if found.oversubscription is not None and told:
        network["oversubscription"] = round(found.oversubscription, 6)
    if any(place.nic_bytes_per_s is not None for place in done.places):
        done.assumed.append("NICs: all ports of a host, shared evenly by its chips")
    else:
        done.assumed.append("NICs: the catalogue's rate for such chips; no file tells ports")
    return network, told


def _grouped(network: dict[str, Any], units: list[tuple[str, ...]], done: Assembled) -> None:
    """Domains under the same leaves form a unit; rails are the leaves of one unit, where a host tells several."""
    sizes = list(Counter(units).values())
    network["domains_per_unit"] = max(sizes)
    rails = max(len(unit) for unit in units)
    if rails > 1:
        network["rails"] = rails
    elif network.get("rails") is None and network["kind"] == "rail-optimised":
        done.assumed.append(
            "rails: as the catalogue has them; the tree of switches names one leaf per host"
        )
    if any(size != max(sizes) for size in sizes[:-1]):
        done.assumed.append(
            f"leaves have {', '.join(map(str, sizes[:20]))} domains; each is taken to have {max(sizes)}"
        )

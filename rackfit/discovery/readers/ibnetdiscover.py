"""``ibnetdiscover``: leaves next to each host, spines above them, rates of ports."""

from __future__ import annotations

import re
from collections import defaultdict

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found

TITLE = "ibnetdiscover"

_SWITCH = re.compile(r'Switch\s+\d+\s+"(S-[0-9a-fA-F]{1,32})"\s+#\s+"([^"]{0,200})"')
_PORT = re.compile(
    r'\[\d+\][^"]{0,80}"([SH])-([0-9a-fA-F]{1,32})"\[\d+\]\S{0,40}\s+#\s+"([^"]{0,200})"[^"]{0,60}\s(\d{1,2})x([A-Z]{3}\d{0,3})'
)
#: Gbit/s of a lane in one direction, https://www.infinibandta.org/infiniband-roadmap/
_GBIT = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}
#: node descriptions that name a device rather than a host
_NO_HOST = re.compile(r"(?i)mellanox|connectx|^mt\d|^hca|^localhost|^ubuntu ")


def recognises(document: Document) -> bool:
    """The header of the tool, or switches in its form."""
    head = document.text[:20_000]
    return "vendid=" in head and ("switchguid=" in head or "caguid=" in head)


def read(document: Document) -> Found:
    """Hosts with their leaves and the width of all their ports. Needs another file, or --chip, for the chips."""
    found = Found(whole=False)
    down: dict[str, float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    above: dict[str, set[str]] = defaultdict(set)
    leaves: dict[str, list[str]] = defaultdict(list)
    width: dict[str, float] = defaultdict(float)
    nameless, here = 0, ""
    for line in document.text.splitlines():
        if line.startswith(("Ca", "Rt")):
            here = ""
        if switch := _SWITCH.match(line):
            here = switch[1]
            continue
        port = _PORT.match(line) if here else None
        if port is None:
            continue
        rate = int(port[4]) * _GBIT.get(port[5], 0.0) * 1e9 / 8
        if port[1] == "S":
            up[here] += rate
            above[here].add(port[2])
            continue
        name = port[3].split(" ")[0]
        if "aggregation" in port[3].lower():
            continue
        down[here] += rate  # whoever hangs there shares the way up
        if _NO_HOST.search(port[3]) or not name:
            nameless += 1
            continue
        leaves[name].append(here)
        width[name] += rate
    for name in leaves:
        host = found.host(name, document.place)
        host.leaves = tuple(sorted(set(leaves[name])))
        host.nic_bytes_per_s = width[name]
    if nameless:
        found.notes.append(
            f"{document.place}: {nameless} ports do not tell their host and are left out"
        )
    edge = [leaf for leaf in down if up[leaf] > 0]
    if edge:
        found.spines = max(len(above[leaf]) for leaf in edge)
        found.oversubscription = max(0.01, max(down[leaf] / up[leaf] for leaf in edge))
        found.notes.append(
            f"{document.place}: {len(down)} leaves, each below up to {found.spines} spines, at most "
            f"{found.oversubscription:.3g} bytes down for one up"
        )
    return found

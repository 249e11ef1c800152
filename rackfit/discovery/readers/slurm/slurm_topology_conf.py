"""Slurm's ``topology.conf``, which topograph writes too: switches with their hosts, or blocks."""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.slurm.hostlist import expand
from rackfit.discovery.readers.slurm.switch_tree import leaves_of
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "Slurm topology.conf"

_EQUALS = re.compile(r"[ \t]{0,80}=[ \t]{0,80}")


def recognises(document: Document) -> bool:
    """Lines that begin with SwitchName= or BlockName=."""
    head = document.text[:100_000].lower()
    return re.search(r"(?m)^[ \t]{0,80}(?:switch|block)name[ \t]{0,80}=", head) is not None


def read(document: Document) -> Found:
    """Hosts with their leaf switch or their block. They need another file, or --chip, for their chips."""
    found = Found(whole=False)
    switches: dict[str, list[str]] = {}
    pieces: list[str] = []
    for number, line in enumerate(document.text.splitlines(), 1):
        piece = line.split("#", 1)[0].rstrip()
        pieces.append(piece.removesuffix("\\"))
        if piece.endswith("\\"):
            continue
        words = _EQUALS.sub("=", "".join(pieces)).split()
        pieces = []
        place = f"{document.place}:{number}"
        values = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                message = f"expected KEY=VALUE, got {shown(word, 60)}"
                raise InstanceError(Problem(place, message))
            values[key.lower()] = value.strip('"')
        if name := values.get("blockname"):
            for host in expand(values.get("nodes", ""), place):
                found.host(host, place).block = name
        elif name := values.get("switchname"):
            for host in expand(values.get("nodes", ""), place):
                found.host(host, place).leaves = (name,)
            switches[name] = expand(values.get("switches", ""), place)
    if pieces:
        raise InstanceError(Problem(document.place, "ends in a backslash; the file seems cut off"))
    leaves_of(found, switches)
    return found

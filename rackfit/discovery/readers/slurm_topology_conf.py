"""Slurm's ``topology.conf``, which topograph writes too: switches with their hosts, or blocks."""

from __future__ import annotations

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.hostlist import expand
from rackfit.discovery.switch_tree import leaves_of
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "Slurm topology.conf"


def recognises(document: Document) -> bool:
    """Lines that begin with SwitchName= or BlockName=."""
    lines = (line.strip().lower() for line in document.text[:100_000].splitlines())
    return any(line.startswith(("switchname=", "blockname=")) for line in lines)


def read(document: Document) -> Found:
    """Hosts with their leaf switch or their block. They need another file, or --chip, for their chips."""
    found = Found(whole=False)
    switches: dict[str, list[str]] = {}
    for number, line in enumerate(document.text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        place = f"{document.place}:{number}"
        values = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                message = f"expected KEY=VALUE, got {shown(word, 60)}"
                raise InstanceError(Problem(place, message))
            values[key.lower()] = value
        if name := values.get("blockname"):
            for host in expand(values.get("nodes", ""), place):
                found.host(host, place).block = name
        elif name := values.get("switchname"):
            for host in expand(values.get("nodes", ""), place):
                found.host(host, place).leaves = (name,)
            switches[name] = expand(values.get("switches", ""), place)
    leaves_of(found, switches)
    return found

"""A cluster file from operators' files: read, join, assemble, write down, and check that it builds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from rackfit.discovery.assemble import Assembled, Place, assemble
from rackfit.discovery.document import read_document
from rackfit.discovery.found import Found, Host, join
from rackfit.discovery.network import scale_out
from rackfit.discovery.shelf import read
from rackfit.documents.schema import FOLDER
from rackfit.quoting import yaml_text
from topology.catalogue import checked
from topology.cluster import Cluster
from topology.errors import InstanceError, Problem
from topology.load import build_cluster
from topology.names import shown
from topology.spec import ClusterSpec

#: files of one call; a saved nvidia-smi log of every host of a large cluster
MAX_FILES = 5000
#: notes of one kind that a cluster file holds
_MOST_NOTES = 200


@dataclass(frozen=True)
class Discovered:
    """The cluster as data and built; why chips failed or are taken; which host stands where; what was assumed."""

    data: dict[str, Any]
    cluster: Cluster
    failed: dict[str, str]
    taken: dict[str, str]
    hosts: dict[str, list[str]]
    notes: list[str]
    assumed: list[str]

    def text(self) -> str:
        """The cluster file."""
        head = f"# yaml-language-server: $schema={(FOLDER / 'cluster.schema.json').as_uri()}\n"
        return head + yaml_text([self.data], width=120, inline=True)


def discover(
    paths: Sequence[Path],
    name: str = "discovered",
    *,
    chip: str | None = None,
    free: bool = False,
    hosts: str | Sequence[str] = "*",
) -> Discovered:
    """The cluster that files describe.

    ``chip`` names the chip of every host, where the files do not or the catalogue has none of that name;
    ``free`` counts chips in use as free; ``hosts`` keeps those that a pattern, or one of several, matches. Raises
    ``InstanceError`` for files that are no known listing, are cut off or contradict each other, and for
    chips that are not known.
    """
    if not 0 < len(paths) <= MAX_FILES:
        raise InstanceError(Problem("files", f"1 to {MAX_FILES:,} are read, got {len(paths):,}"))
    chip = str(Path(chip).resolve()) if chip is not None and chip.endswith(".yaml") else chip
    parts = [(document.place, read(document)) for document in map(read_document, paths)]
    found = join(parts)
    found.hosts = _called(found.hosts, (hosts,) if isinstance(hosts, str) else hosts or "*")
    if not found.whole:
        if chip is None:
            message = "no file tells the chips; add one that does, or give --chip"
            raise InstanceError(Problem(parts[0][0], message))
        _likeliest(found)
    done = assemble(found, chip, free=free)
    guessed = bool(found.assumed or done.assumed)
    if not free:
        _unused(found)  # what runs on the domains changes nothing of what they are
    network, told = scale_out(found, done)
    data = _data(name, done, network, found)
    data["provenance"] = {
        "domains": "assumed" if guessed else "measured",
        "scale_out": "measured" if told else "assumed",
    }
    with checked(name):
        spec = ClusterSpec.model_validate(data)
    places = {f"r{i}": [host.name for host in place.hosts] for i, place in enumerate(done.places)}
    cluster = build_cluster(spec, name, 1, name)
    assumed = _all(found, done)
    return Discovered(data, cluster, done.failed, done.taken, places, found.notes, assumed)


def _called(hosts: dict[str, Host], patterns: Sequence[str]) -> dict[str, Host]:
    """The hosts that some pattern matches. Raises ``InstanceError`` for each pattern that matches none."""
    matched = {
        pattern: {name for name in hosts if fnmatchcase(name, pattern)} for pattern in patterns
    }
    problems = [
        Problem("--hosts", f"no host is called {shown(pattern, 80)}")
        for pattern, names in matched.items()
        if not names
    ]
    if problems:
        raise InstanceError(problems)
    kept = set().union(*matched.values())
    return {name: host for name, host in hosts.items() if name in kept}


def _all(found: Found, done: Assembled) -> list[str]:
    return list(dict.fromkeys([*found.assumed, *done.assumed]))


def _unused(found: Found) -> None:
    """Say of how many hosts no file tells what runs on them."""
    idle = sum(host.use_told is False for host in found.hosts.values())
    if idle:
        found.assumed.append(
            f"no pods are told of {idle} of {len(found.hosts)} hosts: chips that pods use there count as free (kubectl "
            "describe nodes, or kubectl get nodes,pods -A -o json, tells them)"
        )


def _likeliest(found: Found) -> None:
    """Of hosts of a fabric alone, keep those with more than half of the widest host's ports.

    Hosts that serve storage or manage the fabric have fewer.
    """
    width = {name: host.nic_bytes_per_s or 0.0 for name, host in found.hosts.items()}
    half = max(width.values()) / 2
    kept = {name: host for name, host in found.hosts.items() if width[name] > half or not half}
    found.assumed.append(
        f"{len(kept)} of {len(found.hosts)} hosts have chips: those with more than half of the most ports"
        if len(kept) < len(found.hosts)
        else f"all {len(kept)} hosts have chips, as no file tells"
    )
    found.hosts = kept


def _data(name: str, done: Assembled, network: dict[str, Any], found: Found) -> dict[str, Any]:
    """The cluster file's content; equal domains that follow each other are one entry."""
    domains = []
    for row, group in groupby(done.places, key=_row):
        kind, fabric, chips, nic, rack = row
        count = len(list(group))
        entry: dict[str, Any] = {"chip": kind, "count": chips}
        if nic is not None:
            entry["nic_bytes_per_s"] = nic
        domains.append({"rack": rack, "count": count, "fabric": fabric, "chips": [entry]})
    notes = [f"assumed: {word}" for word in _all(found, done)]
    notes += [f"failed {place}: {reason}" for place, reason in done.failed.items()][:_MOST_NOTES]
    notes += [f"taken {place}: {reason}" for place, reason in done.taken.items()][:_MOST_NOTES]
    for index, place in enumerate(done.places):
        notes.append(_hosts_note(index, place))
    return {
        "name": name,
        "title": f"scale-up domains: {len(done.places)}; read from {len(found.sources)} files",
        "domains": domains,
        "scale_out": network,
        "failed": list(done.failed),
        "taken": list(done.taken),
        "sources": [shown(source, 1000) for source in found.sources],
        "notes": [*(shown(note, 4000) for note in found.notes[:_MOST_NOTES]), *notes],
    }


def _hosts_note(index: int, place: Place) -> str:
    return shown(f"r{index}: " + ", ".join(host.name for host in place.hosts), 15_000)


def _row(place: Place) -> tuple[str, dict[str, Any], int, float | None, str]:
    rack = re.sub(r"\d+$", "", place.kind.rack) or "node"
    return (place.kind.name, place.fabric, place.chips, place.nic_bytes_per_s, rack)

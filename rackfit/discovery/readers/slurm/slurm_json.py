"""Slurm's nodes as JSON or YAML: ``scontrol --json show nodes``, ``sinfo --json``, and what slurmrestd answers.

Keys are those of Slurm's data parsers 0.0.35 to 0.0.46. Up to 0.0.38 a state is one word beside a list of flags, later
a list of words. ``sinfo`` lists nodes as scontrol does up to Slurm 22.05, later groups of nodes by partition and state.
"""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from rackfit.discovery.readers.slurm.hostlist import expand
from rackfit.discovery.readers.slurm.slurm_nodes import hosts_of
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "scontrol --json show nodes, sinfo --json, slurmrestd's nodes"

#: keys of a node and what scontrol calls them
_KEYS = (("gres", "Gres"), ("gres_used", "GresUsed"), ("tres", "CfgTRES"), ("tres_used", "AllocTRES"),
         ("reason", "Reason"))  # fmt: skip
_EXPECTED = 'expected a word or a list of words such as ["IDLE", "DRAIN"]'


def recognises(document: Document) -> bool:
    """Nodes with generic or trackable resources, or groups of sinfo."""
    if not re.search(r"\b(?:gres|tres)\b", document.text):
        return False
    if document.json_start < 0 and not re.search(r"(?m)^(?:nodes|sinfo):", document.text):
        return False
    try:
        return any(nodes or groups for nodes, groups in map(_listed, document.values))
    except InstanceError:
        # so that its mistake is told
        return bool(
            re.search(r"(?m)\"?(?:nodes|sinfo)\"?[ \t]*:[ \t]*\[?[ \t]*$", document.text[:20_000])
        )


def read(document: Document) -> Found:
    """Hosts that have GPUs."""
    records: list[dict[str, str]] = []
    assumed: list[str] = []
    for value in document.values:
        nodes, groups = _listed(value)
        records += [_record(node, document.place) for node in nodes]
        for group in groups:
            records += _group(group, document.place, assumed)
    found = hosts_of(records, document.place)
    found.assumed += assumed
    return found


def _listed(value: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and groups of nodes of one value: an answer of Slurm's, a list of nodes, or one node."""
    data = mapping(value)
    if "gres" in data and "name" in data:
        return [data], []
    listed = data.get("nodes") if isinstance(data.get("nodes"), list) else value
    nodes = [node for node in map(mapping, sequence(listed)) if {"gres", "tres"} & set(node)]
    groups = [group for group in map(mapping, sequence(data.get("sinfo"))) if "nodes" in group]
    return nodes, groups


def _record(node: dict[str, Any], place: str) -> dict[str, str]:
    """One node by scontrol's keys."""
    name = node.get("name")
    if not isinstance(name, str) or not name:
        raise InstanceError(Problem(f"{place}: name", f"expected a node's, got {shown(name, 40)}"))
    where = f"{place}: {shown(name, 80)}"
    record = {"NodeName": name}
    if "state" in node:
        flags = node.get("state_flags", [])
        record["State"] = "+".join(
            [*_words(node["state"], where), *_words(flags, where, "state_flags")]
        )
    for key, called in _KEYS:
        value = node.get(key)
        if value is not None and not isinstance(value, str):
            message = f"expected text as scontrol shows it, got {shown(value, 40)}"
            raise InstanceError(Problem(f"{where}: {key}", message))
        record[called] = value or ""
    return record


def _words(state: Any, where: str, key: str = "state") -> list[str]:
    """Words of a state or its flags in capitals."""
    words = [state] if isinstance(state, str) else state
    text = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not text or (key == "state" and not words):
        raise InstanceError(Problem(f"{where}: {key}", f"{_EXPECTED}, got {shown(state, 60)}"))
    return [word.upper() for word in words]


def _group(group: dict[str, Any], place: str, assumed: list[str]) -> list[dict[str, str]]:
    """The nodes of a group of sinfo, which tells resources and reason of its first node only."""
    names = mapping(group["nodes"]).get("nodes")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"expected a list of node names, got {shown(names, 60)}"
        raise InstanceError(Problem(f"{place}: nodes", message))
    hosts = [host for name in names for host in expand(name, place)]
    gres, reason = mapping(group.get("gres")), mapping(group.get("reason"))
    if len(hosts) > 1:
        told = shown(gres.get("total") or "no GRES", 80)
        assumed.append(
            f"{place}: sinfo tells of {len(hosts)} nodes what {shown(hosts[0], 80)} has ({told}): taken for all; "
            "scontrol --json show nodes or sinfo -N --json tells each"
        )
    node = {
        "state": mapping(group.get("node")).get("state"),
        "gres": gres.get("total"),
        "gres_used": gres.get("used"),
        "reason": reason.get("description"),
    }
    return [_record({**node, "name": host}, place) for host in hosts]

"""``kubectl describe nodes``: what the nodes' JSON tells, in words for people, and the chips that pods have asked for."""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.kubernetes.kubectl_nodes import hosts_of
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "kubectl describe nodes"

_NAME = re.compile(r"(?m)^([ \t]{0,80})Name:[ \t]{1,80}\S")
_NEEDED = ("Conditions", "Capacity", "Allocatable", "Allocated resources")


def recognises(document: Document) -> bool:
    """Names of objects that have a capacity."""
    text = document.text
    return "Capacity:" in text and "Allocatable:" in text and _NAME.search(text) is not None


def read(document: Document) -> Found:
    """Hosts with accelerators; others are left out."""
    first = _NAME.search(document.text)
    margin = len(first[1].expandtabs()) if first else 0
    blocks: list[dict[str, list[str]]] = []
    heading: list[str] = []
    for line in map(str.expandtabs, document.text.splitlines()):
        own = line[margin:] if not line[:margin].strip() else line
        if own[:1].isspace() or not own:
            heading.append(own.strip())
            continue
        key, _, value = own.partition(":")
        if key == "Name":
            blocks.append({})
        heading = [value.strip()]
        if blocks:
            # what follows the last node, such as a prompt, has no such keys or comes too late
            heading = blocks[-1].setdefault(key, heading)
    return hosts_of([_node(block, document.place) for block in blocks], document)


def _node(block: dict[str, list[str]], place: str) -> dict[str, Any]:
    """A node as its JSON has it. Raises ``InstanceError`` for one that is cut off."""
    name = block["Name"][0]
    where = f"{place}: {shown(name, 80)}"
    # who may not list pods is told so in place of what they ask for
    needed = _NEEDED[: 3 if "Pods" in block else 4]
    if missing := [key for key in needed if key not in block]:
        message = f"no {missing[0]}; the file seems cut off, or describes no node"
        raise InstanceError(Problem(where, message))
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(_pairs(block.get("Labels", []), "="))},
        "spec": {
            "unschedulable": block.get("Unschedulable", [""])[0] == "true",
            "taints": [_taint(line) for line in _lines(block.get("Taints", []))],
        },
        "status": {
            "conditions": [_condition(line) for line in _lines(block["Conditions"])],
            "capacity": dict(_pairs(block["Capacity"], ":")),
            "allocatable": dict(_pairs(block["Allocatable"], ":")),
            **(
                {"requested": _requested(block["Allocated resources"])}
                if "Allocated resources" in block
                else {}
            ),
        },
    }


def _lines(lines: list[str]) -> list[str]:
    return [line for line in lines if line and line not in ("<none>", "<unset>")]


def _pairs(lines: list[str], between: str) -> list[tuple[str, str]]:
    parts = (line.partition(between) for line in _lines(lines))
    return [(key.strip(), value.strip()) for key, mark, value in parts if mark]


def _taint(line: str) -> dict[str, str]:
    """``key=value:Effect`` or ``key:Effect``."""
    told, _, effect = line.rpartition(":")
    key, _, value = told.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _condition(line: str) -> dict[str, str]:
    """A row of type, status, two times, reason and message; columns stand at least two spaces apart."""
    cells = [*re.split(r" {2,}", line), "", "", "", ""]
    return {"type": cells[0], "status": cells[1], "reason": cells[4]}


def _requested(lines: list[str]) -> dict[str, str]:
    """Requests of pods, by resource."""
    rows = (line.split() for line in _lines(lines))
    return {row[0]: row[1] for row in rows if len(row) > 1 and row[1].isdecimal()}

"""``scontrol show node`` (also -o, -d and --oneliner): GRES, states, GPUs in use."""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found, Host
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "scontrol show node"

_KEY = re.compile(r"(?<=\s)(?=[A-Z][A-Za-z]{1,40}=)")
_GPU = re.compile(
    r"gpu(?::([A-Za-z][\w.+-]{0,80}))?:(\d{1,4})(?:\((?:S:[^()]{0,80}|IDX:([\d,-]{1,400}|N/A))\))?"
)
_TRES = re.compile(r"gres/gpu(?::([A-Za-z][\w.+-]{0,80}))?=(\d{1,4})")
#: a kind that is a part of a GPU
_PART = re.compile(r"(?:^|[_.-])\d+g\.\d+gb")
#: states of a node that serves nobody
_OUT = ("DOWN", "FAIL", "FAILING", "DRAIN", "DRAINED", "DRAINING", "ERROR", "UNKNOWN", "NOT_RESPONDING", "MAINT",
        "MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "FUTURE", "INVALID_REG")  # fmt: skip


def recognises(document: Document) -> bool:
    """Records that begin with NodeName= and have a state."""
    head = document.text[:20_000]
    return re.search(r"(?m)^[ \t]{0,8}NodeName=\S", head) is not None and "State=" in head


def read(document: Document) -> Found:
    """Hosts that have GPUs."""
    found = Found()
    others = 0
    for record in re.split(r"(?m)^(?=[ \t]{0,8}NodeName=)", document.text)[1:]:
        values: dict[str, str] = {}
        for part in _KEY.split(" " + " ".join(record.split())):
            key, _, value = part.partition("=")
            values.setdefault(key.strip(), value.strip())
        name = values["NodeName"]
        place = f"{document.place}: {shown(name, 80)}"
        if "State" not in values:
            raise InstanceError(Problem(place, "the record has no State; the file seems cut off"))
        counted = _gpus(values.get("Gres", "")) or _gpus_of_tres(values.get("CfgTRES", ""))
        whole = [(kind, number) for kind, number in counted if not _PART.search(kind)]
        if len(whole) < len(counted):
            found.notes.append(f"{place}: GPUs that MIG splits are left out")
        if not whole:
            others += not counted
            continue
        kinds = {kind for kind, _ in whole if kind}
        host = found.host(name, document.place)
        host.chips = sum(number for _, number in whole)
        host.product = next(iter(kinds)) if len(kinds) == 1 else None
        if len(kinds) > 1:
            host.unread = f"several kinds of GPU in one host: {', '.join(sorted(kinds))}"
        _state(host, values)
    if others:
        found.notes.append(f"{document.place}: {others} nodes without GPUs are left out")
    return found


def _gpus(text: str) -> list[tuple[str, int]]:
    """Kind and number of each entry of GPUs in a list of GRES."""
    return [(kind, int(number)) for kind, number, _ in _GPU.findall(text)]


def _gpus_of_tres(text: str) -> list[tuple[str, int]]:
    """The same of trackable resources: entries of a kind, or the sum where there are none."""
    found = [(kind, int(number)) for kind, number in _TRES.findall(text)]
    return [entry for entry in found if entry[0]] or found


def _state(host: Host, values: dict[str, str]) -> None:
    states = re.split(r"[+]", values["State"].split()[0] if values["State"] else "")
    marks = {state.rstrip("*~#!%$@^-") for state in states}
    silent = any("*" in state for state in states)
    reason = values.get("Reason", "").split(" [", 1)[0]
    if out := sorted(marks & set(_OUT)):
        told = f" ({shown(reason, 120)})" if reason else ""
        host.out_of_service = f"{'+'.join(out)}{told}"
    elif silent:
        host.out_of_service = "does not respond"
    elif "RESERVED" in marks:
        host.in_use = "reserved"
    used = _GPU.findall(values.get("GresUsed", ""))
    parts = any(
        _PART.search(kind) for kind, _, _ in used
    )  # whose positions count among the whole ones'
    for kind, number, index in used:
        if _PART.search(kind):
            continue
        if index and index != "N/A" and not parts:
            for position in _positions(index):
                host.taken[position] = "in use"
        elif int(number):
            host.taken_anywhere["in use"] = host.taken_anywhere.get("in use", 0) + int(number)
    allocated = _gpus_of_tres(values.get("AllocTRES", ""))
    number = sum(count for kind, count in allocated if not _PART.search(kind))
    if number and not used:
        host.taken_anywhere["in use"] = number


def _positions(text: str) -> list[int]:
    """Positions of ``0-2,5``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found += range(int(first[:4]), min(int((last or first)[:4]), 1023) + 1)
    return found

"""``scontrol show node`` (also -o, -d and --oneliner): GRES, states, GPUs in use."""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found, Host
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "scontrol show node"

_KEY = re.compile(r"(?<=\s)(?=[A-Z][A-Za-z]{1,40}=)")
_KIND = r"\(null\)|[\w.+-]{1,80}"
#: the beginning of a record, in whatever case: slurm.conf leaves it open
_RECORD = re.compile(r"(?mi)^[ \t]{0,8}NodeName=\S")
#: what stands in slurm.conf alone
_WRITTEN = re.compile(r"(?mi)^[ \t]{0,8}(?:ClusterName|SlurmctldHost|ControlMachine|GresTypes)=")
#: an entry of GPUs of a list of GRES; kinds may begin with digits (4090), of a number alone it is the number of GPUs
_GPU = re.compile(
    rf"gpu(?::({_KIND}))?:(\d{{1,4}})(?:\((?:S:[^()]{{0,80}}|IDX:([\d,-]{{1,400}}|N/A))\))?"
)
_TRES = re.compile(rf"gres/gpu(?::({_KIND}))?=(\d{{1,4}})")
#: shares of GPUs: their number, and how many of each GPU
_SHARES = re.compile(rf"(?:shard|mps)(?::(?:{_KIND}))?:(\d{{1,6}})(?:\(([\d/,]{{1,4000}})\))?")
_EXPECTED = "expected gpu:KIND:NUMBER"
#: a kind that is a part of a GPU
_PART = re.compile(r"(?:^|[_.-])\d+g\.?\d+gb")
#: states of a node that serves nobody
_OUT = ("DOWN", "FAIL", "FAILING", "DRAIN", "DRAINED", "DRAINING", "ERROR", "UNKNOWN", "NOT_RESPONDING", "MAINT",
        "MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "FUTURE", "INVALID_REG")  # fmt: skip
#: states of a node that runs jobs
_BUSY = ("ALLOCATED", "MIXED", "COMPLETING")


def recognises(document: Document) -> bool:
    """Records that begin with NodeName= (slurm.conf has them too, in any case, and is refused by its name)."""
    return _RECORD.search(document.text, 0, 20_000) is not None


def read(document: Document) -> Found:
    """Hosts that have GPUs."""
    records = []
    written = _WRITTEN.search(document.text) is not None
    for record in re.split(r"(?mi)^(?=[ \t]{0,8}NodeName=)", document.text)[1:]:
        values: dict[str, str] = {}
        key, mark, rest = record.partition("=")
        written = written or key.strip() != "NodeName"
        record = "NodeName" + mark + rest
        for part in _KEY.split(" " + " ".join(record.split())):
            key, _, value = part.partition("=")
            values.setdefault(key.strip(), value.strip())
        if written or _configured(values):
            place = f"{document.place}: {shown(values['NodeName'].split(' ')[0], 80)}"
            message = "a line of slurm.conf, which tells no states; expected scontrol show node"
            raise InstanceError(Problem(place, message))
        records.append(values)
    return hosts_of(records, document.place)


def hosts_of(records: list[dict[str, str]], where: str) -> Found:
    """Hosts with GPUs of records by scontrol's keys; a node that is told again in the same words counts once."""
    found = Found()
    others = 0
    told: dict[str, dict[str, str]] = {}
    for values in records:
        name = values["NodeName"]
        place = f"{where}: {shown(name, 80)}"
        if name in told:
            if values != told[name]:
                message = "told twice, not in the same words; expected one listing of each node"
                raise InstanceError(Problem(place, message))
            continue
        told[name] = values
        if "State" not in values:
            raise InstanceError(Problem(place, "the record has no State; the file seems cut off"))
        counted, unread = _gpus(values.get("Gres", ""))
        counted = counted or _gpus_of_tres(values.get("CfgTRES", ""))
        whole = [(kind, number) for kind, number in counted if not _PART.search(kind)]
        if len(whole) < len(counted):
            found.notes.append(f"{place}: GPUs that MIG splits are left out")
        if not whole and not unread:
            others += not counted
            continue
        kinds = {kind for kind, _ in whole if kind}
        host = found.host(name, where)
        host.use_told = True
        host.chips = sum(number for _, number in whole) or None
        host.product = next(iter(kinds)) if len(kinds) == 1 else None
        if unread:
            host.unread = f"{_EXPECTED}, got {shown(unread, 80)}"
        elif len(kinds) > 1:
            host.unread = f"several kinds of GPU in one host: {', '.join(sorted(kinds))}"
        _state(host, values)
        if not host.unread:
            _uses(host, values)
    if others:
        found.notes.append(f"{where}: {others} nodes without GPUs are left out")
    return found


def _configured(values: dict[str, str]) -> bool:
    """Whether a record is a line of slurm.conf: many hosts or all, or keys as scontrol does not print them.

    Keys in small letters are none of scontrol's, and so part of the name.
    """
    name = values["NodeName"]
    bare = values.get("State") == "UNKNOWN" and "CPUTot" not in values
    return bool(re.search(r"[\[, ]", name)) or name == "DEFAULT" or "CPUs" in values or bare


def _entries(text: str) -> list[str]:
    """Entries of a list of GRES: parts between commas outside parentheses."""
    return re.findall(r"(?:[^,()]|\([^()]*\)?)+", text)


def _gpus(text: str) -> tuple[list[tuple[str, int]], str]:
    """Kind and number of each entry of GPUs in a list of GRES, none of them 0, and an entry that cannot be read."""
    counted, unread = [], ""
    for entry in _entries(text):
        if found := _GPU.fullmatch(entry):
            counted.append((_kind(found[1]), int(found[2])))
        elif re.match(r"gpu(?:[:(]|$)", entry):
            unread = unread or entry
    return [(kind, number) for kind, number in counted if number], unread


def _kind(text: str | None) -> str:
    return "" if text in (None, "(null)") else str(text)


def _gpus_of_tres(text: str) -> list[tuple[str, int]]:
    """The same of trackable resources: entries of a kind, or the sum where there are none."""
    matches = map(_TRES.fullmatch, text.split(","))
    found = [(_kind(match[1]), int(match[2])) for match in matches if match and int(match[2])]
    return [entry for entry in found if entry[0]] or found


def _state(host: Host, values: dict[str, str]) -> None:
    """Why a node does not serve, or serves others."""
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


def _uses(host: Host, values: dict[str, str]) -> None:
    """GPUs in use, whole or in shares."""
    entries = _entries(values.get("GresUsed", ""))
    if unread := _gpus(values.get("GresUsed", ""))[1]:
        host.unread = f"GresUsed: {_EXPECTED}, got {shown(unread, 80)}"
    used = [match for match in map(_GPU.fullmatch, entries) if match]
    # whose positions count among the whole ones'
    parts = any(_PART.search(_kind(match[1])) for match in used)
    for match in used:
        number, index = int(match[2]), match[3]
        if _PART.search(_kind(match[1])):
            continue
        if index and index != "N/A" and not parts:
            for position in _positions(index):
                host.taken[position] = "in use"
        elif number:
            host.taken_anywhere["in use"] = host.taken_anywhere.get("in use", 0) + number
    allocated = _gpus_of_tres(values.get("AllocTRES", ""))
    number = sum(count for kind, count in allocated if not _PART.search(kind))
    if number and not used:
        host.taken_anywhere["in use"] = number
    if not (used or allocated or _gpus_of_tres(values.get("CfgTRES", ""))):
        # Slurm counts GPUs in AllocTRES only where AccountingStorageTRES has them: jobs may hold any of them
        busy = next((state for state in _BUSY if state in values["State"]), "")
        if busy and not host.in_use:
            host.in_use = (
                f"{busy}; how many GPUs jobs hold is not told (scontrol show node -d does)"
            )
    for match in filter(None, map(_SHARES.fullmatch, entries)):
        shares = [share.partition("/")[0] for share in (match[2] or "").split(",") if share]
        for position, share in enumerate(shares):
            if share.strip("0"):
                host.taken.setdefault(position, "in use by shares")
        if not shares and (number := int(match[1])):
            # each may lie on a GPU of its own
            host.taken_anywhere["in use by shares"] = min(number, host.chips or number)


def _positions(text: str) -> list[int]:
    """Positions of ``0-2,5``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found += range(int(first[:4]), min(int((last or first)[:4]), 1023) + 1)
    return found

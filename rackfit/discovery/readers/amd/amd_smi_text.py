"""What ``amd-smi``, ``amd-smi list``, ``static``, ``topology`` and ``xgmi`` print without ``--json``, saved as HOST.txt."""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.amd.amd_smi import add, add_statuses
from rackfit.discovery.readers.amd.gpus import Listing, host_of
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "amd-smi, amd-smi list, static, topology or xgmi (the file named like its host)"

_BUS = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_HEAD = re.compile(r"\s*GPU: (\d{1,6})\s*")
_KEY = re.compile(r"\s*([A-Z][A-Z_]{1,40}):(?:\s(.{1,400}))?")
_TABLE = re.compile(r"\s*([A-Z]{2,20}(?:[ _-][A-Z]{1,20}){0,4})[ _]TABLE:\s*")
#: two lines of the table that amd-smi prints by itself, and one of its processes
_FIRST = re.compile(rf"\|\s({_BUS})\s+(\S.{{0,60}}?)\s*\|.*\|")
_SECOND = re.compile(
    r"\|\s+(\d{1,6})\s+\S{1,8}\s+\S{1,8}\s+(\S{1,20})\s*\|.*?(?:(\d{1,9})/(\d{1,9}) MB|N/A)\s*\|"
)
#: the table of states of links that ``xgmi`` prints since ROCm 7, and a row of it
_STATES = re.compile(r"(?m)^\s{0,20}XGMI LINK STATUS:")
_STATE = re.compile(rf"GPU(\d{{1,6}})\s+({_BUS})((?:\s+(?:SELF|N/A|[UDX](?:/[UDX]){{0,15}}))+)")
_PROCESS = re.compile(r"\|\s+(\d{1,6})\s+(\d{1,10})\s+\S.*\|")
#: keys and where an entry of the JSON has them
_PLACES = {
    "MARKET_NAME": ("asic", "market_name"),
    "DEVICE_ID": ("asic", "device_id"),
    "PRODUCT_NAME": ("board", "product_name"),
    "ACCELERATOR_PARTITION": ("partition", "accelerator_partition"),
    "COMPUTE_PARTITION": ("partition", "accelerator_partition"),
    "PARTITION_ID": ("partition", "partition_id"),
    "BDF": ("bus", "bdf"),
    "BAD_PAGE_THRESHOLD_EXCEEDED": ("ras", "bad_page_threshold_exceeded"),
}
#: the same within a section
_INSIDE = {
    ("VRAM", "SIZE"): ("vram", "size"),
    ("MEM_USAGE", "TOTAL_VRAM"): ("mem_usage", "total_vram"),
    ("MEM_USAGE", "USED_VRAM"): ("mem_usage", "used_vram"),
}


def recognises(document: Document) -> bool:
    """Blocks of GPUs with keys in capitals, tables of links, or the table of the tool."""
    if document.json_start >= 0:
        return False
    text = document.text
    if _STATES.search(text):
        return True
    blocks = re.search(r"(?m)^\s{0,20}GPU: \d{1,6}\s*\n\s{1,20}(?:[A-Z_]{2,40}):", text)
    return bool(
        blocks or "| AMD-SMI " in text or re.search(r"(?m)^\s{0,20}LINK[ _]TYPE[ _]TABLE:", text)
    )


def read(document: Document) -> Found:
    """One host with its GPUs."""
    lines = [line.rstrip() for line in document.text.splitlines()]
    blocks = _blocks(lines)
    table = _table(lines)
    listing = Listing()
    for entry in [*blocks, *table]:
        add(listing, entry, document.place)
    buses = {gpu.bus: number for number, gpu in listing.gpus.items() if gpu.bus}
    for entry in _links(lines, buses, document.place):
        add(listing, entry, document.place)
    states: dict[int, list[str]] = {}
    for number, bus, cells in _states(document.text):
        add(listing, {"gpu": number, "bdf": bus}, document.place)
        states[int(number)] = cells.split()
    add_statuses(listing, states, document.place)
    return host_of(listing, document)


def _states(text: str) -> list[tuple[str, str, str]]:
    """GPU, bus address and states of its links by row of the table of ``xgmi``."""
    _, *tables = _STATES.split(text)
    rows = (_STATE.fullmatch(line.strip()) for line in "\n".join(tables).splitlines())
    return [(row[1], row[2], row[3]) for row in rows if row]


def _blocks(lines: list[str]) -> list[dict[str, Any]]:
    """Entries as the JSON has them, of blocks of GPUs."""
    entries: list[dict[str, Any]] = []
    here: dict[str, Any] = {}
    section = ""
    for line in lines:
        if head := _HEAD.fullmatch(line):
            here = {"gpu": head[1]}
            entries.append(here)
            section = ""
        elif _TABLE.fullmatch(line) or re.match(r"\s*(?:CPU|CORE): \d", line):
            here = {}
        elif key := _KEY.fullmatch(line):
            if key[2] is None:
                section = key[1]
                if section == "PROCESS_INFO":
                    here.setdefault("process_list", []).append({"process_info": {}})
                continue
            # what a part of a GPU for virtual machines tells comes after the GPU's own
            place = _INSIDE.get((section, key[1]), _PLACES.get(key[1]))
            if place and here:
                here.setdefault(place[0], {}).setdefault(place[1], key[2].strip())
    return entries


def _table(lines: list[str]) -> list[dict[str, Any]]:
    """Entries of the table that amd-smi prints by itself."""
    entries: list[dict[str, Any]] = []
    first: re.Match[str] | None = None
    processes = False
    for line in map(str.strip, lines):
        processes |= line.startswith("| Processes:")
        if processes and (process := _PROCESS.fullmatch(line)):
            entries.append({"gpu": process[1], "process_list": [{"process_info": {}}]})
        elif found := _FIRST.fullmatch(line):
            first = found
        elif first and (second := _SECOND.fullmatch(line)):
            mode = second[2].partition("/")[0]
            entry: dict[str, Any] = {"gpu": second[1], "bdf": first[1], "asic": {"market_name": first[2]},
                                     "partition": {"accelerator_partition": mode}}  # fmt: skip
            if second[4]:
                entry["mem_usage"] = {
                    "used_vram": f"{second[3]} MB",
                    "total_vram": f"{second[4]} MB",
                }
            entries.append(entry)
            first = None
    return entries


def _links(lines: list[str], buses: dict[str, int], place: str) -> list[dict[str, Any]]:
    """Entries of the table of link types; GPUs that no other part of the file numbers have the table's order."""
    rows: list[list[str]] = []
    inside = False
    for line in lines:
        if table := _TABLE.fullmatch(line):
            inside = re.sub(r"[ _]", " ", table[1]) == "LINK TYPE"
        elif inside and re.match(rf"\s*{_BUS}\s", f"{line} "):
            rows.append(line.split())
        elif inside and line.strip():
            inside = False
    if not rows:
        return []
    head, *body = rows
    count = len(head)
    if [row[0] for row in body] != head or any(len(row) != count + 1 for row in body):
        message = f"LINK TYPE TABLE: expected {count} rows of {count} types under its header, got {len(body)}"
        raise InstanceError(Problem(place, message))
    buses = buses or {bus: position for position, bus in enumerate(head)}
    if unknown := [bus for bus in head if bus not in buses]:
        message = f"LINK TYPE TABLE: {shown(unknown[0], 40)} is none of the GPUs above"
        raise InstanceError(Problem(place, message))
    return [
        {"gpu": buses[bus], "bdf": bus,
         "links": [{"gpu": buses[other], "link_type": kind} for other, kind in zip(head, row[1:], strict=True)]}
        for bus, row in zip(head, body, strict=True)
    ]  # fmt: skip

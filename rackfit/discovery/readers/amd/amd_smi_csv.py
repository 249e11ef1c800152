"""``amd-smi list``, ``static``, ``metric``, ``process``, ``topology`` and ``xgmi`` with ``--csv``, saved as HOST.csv or HOST.txt.

The tool writes the keys of its JSON without the sections above them, sizes in MB without a unit. Links are columns for
each other GPU (``weight_gpu_1``, ``hops_gpu_1``, ``link_type_gpu_1``, ``numa_bandwidth_gpu_1``), also since ROCm 6.3, where they are lists in JSON.
``xgmi`` has, since ROCm 7, a table of states with a column for each bus address and ``GPU0`` where others have ``0``.
"""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.amd.amd_smi import add, add_statuses, number
from rackfit.discovery.readers.amd.gpus import Listing, host_of, told
from rackfit.discovery.readers.table import table_rows
from topology.errors import InstanceError, Problem

TITLE = "amd-smi list, static, metric or xgmi --csv (the file named like its host)"

#: names of columns, at least one of which a table has, and where an entry of the JSON has them
_PLACES = {
    "market_name": ("asic", "market_name"),
    "device_id": ("asic", "device_id"),
    "product_name": ("board", "product_name"),
    "accelerator_partition": ("partition", "accelerator_partition"),
    "compute_partition": ("partition", "compute_partition"),
    "partition_id": ("partition", "partition_id"),
    "gpu_bdf": ("bus", "bdf"),
    "bdf": ("bus", "bdf"),
    "size": ("vram", "size"),
    "total_vram": ("mem_usage", "total_vram"),
    "used_vram": ("mem_usage", "used_vram"),
    "bad_page_threshold_exceeded": ("ras", "bad_page_threshold_exceeded"),
}
_SIZES = ("size", "total_vram", "used_vram")
_BEGINS = ("gpu,", "timestamp,gpu,")
#: columns of ``xgmi`` by the other GPU's address
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
#: columns of ``topology`` by the other GPU (``flatten_dict`` of ROCm/amdsmi's ``amdsmi_logger.py``, MIT)
_LINK = re.compile(r"(link_accessibility|weight|hops|link_type|numa_bandwidth)_(gpu_\d{1,4})")


def recognises(document: Document) -> bool:
    """A header that begins with the GPU and has a name that is known."""
    if document.json_start >= 0:
        return False
    lines = document.text[:200_000].splitlines()
    return any(_is_head(line.split(",")) for line in lines if line.startswith(_BEGINS))


def read(document: Document) -> Found:
    """One host with its GPUs."""
    listing = Listing()
    states: dict[int, list[str]] = {}
    columns: list[str] = []
    buses: list[str] = []
    for row, place in table_rows(document.text, _is_head, document.place):
        add(listing, _entry(row), place)
        if by_bus := {name: cell for name, cell in row.items() if _BUS.fullmatch(name)}:
            states[number(_gpu(row), place)] = list(by_bus.values())
            columns = list(by_bus)
            buses.append(row.get("bdf", ""))
    if buses != columns:
        message = (
            "XGMI LINK STATUS: the rows are not of the GPUs of the columns; the file seems cut off"
        )
        raise InstanceError(Problem(document.place, message))
    add_statuses(listing, states, document.place)
    return host_of(listing, document)


def _is_head(cells: list[str]) -> bool:
    names = [cell.strip() for cell in cells]
    begins = names[:1] == ["gpu"] or names[:2] == ["timestamp", "gpu"]
    return begins and any(
        name in _PLACES or name in ("pid", "process_info") or _LINK.fullmatch(name)
        for name in names
    )


def _gpu(row: dict[str, str]) -> str:
    return re.sub(r"GPU(?=\d)", "", row["gpu"], count=1)


def _entry(row: dict[str, str]) -> dict[str, Any]:
    """A row as an entry of the JSON has it."""
    entry: dict[str, Any] = {"gpu": _gpu(row)}
    for name, (section, key) in _PLACES.items():
        if name in row and told(row[name]):
            value = row[name]
            plain = name in _SIZES and value.isdecimal()
            entry.setdefault(section, {}).setdefault(key, f"{value} MB" if plain else value)
    if row.get("pid", "").isdecimal() or row.get("process_info", "").startswith("{"):
        entry["process_list"] = [{"process_info": {}}]
    for name, value in row.items():
        if found := _LINK.fullmatch(name):
            entry.setdefault(found[1], {})[found[2]] = value
    return entry

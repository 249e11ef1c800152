"""``amd-smi list``, ``static``, ``topology``, ``xgmi``, ``process``, ``metric``, ``partition`` with ``--json``, saved as HOST.json.

One file may hold several of them after each other. Keys are those of ROCm 6.0 to 7.2: GPUs are a list, since 7.0
that of ``gpu_data``; links between GPUs are lists, before 6.3 tables by the other GPU's number. Who asks for some of a
link's facts alone (``topology --hops``) has no types: hops and bandwidths then say whether XGMI leads there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from rackfit.discovery.readers.amd.gpus import Listing, host_of, set_bus, told
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "amd-smi list, static or topology --json (the file named like its host)"

#: what an entry tells, at least one of which it has
_TELLS = (
    "bdf",
    "asic",
    "vram",
    "partition",
    "links",
    "link_type",
    "hops",
    "numa_bandwidth",
    "process_list",
    "mem_usage",
    "bus",
)
_XGMI = {"XGMI": True, "PCIE": False}
#: tables of links by the other GPU's number, and what an entry of a list of links calls them
_TABLES = {"link_type": "link_type", "hops": "num_hops", "numa_bandwidth": "bandwidth"}
#: a megabyte of amd-smi is one of 2^20 bytes: it tells 196592 MB of an MI300X
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def recognises(document: Document) -> bool:
    """Lists of GPUs by their number, or ``gpu_data``."""
    if document.json_start < 0 or '"gpu' not in document.text[document.json_start :][:20_000]:
        return False
    try:
        return any(True for value in document.values for _ in _entries(value))
    except InstanceError:
        return bool(
            re.search(r'"gpu(?:_data)?"[ \t]{0,4}:', document.text[:20_000])
        )  # so that its mistake is told


def read(document: Document) -> Found:
    """One host with its GPUs."""
    listing = Listing()
    for value in document.values:
        for entry in _entries(value):
            add(listing, entry, document.place)
        add_statuses(listing, _statuses(value, document.place), document.place)
    return host_of(listing, document)


def _entries(value: Any) -> Iterator[dict[str, Any]]:
    """Entries of GPUs of one command's output."""
    data = mapping(value)
    listed = data.get("gpu_data", value)
    for entry in map(mapping, sequence(listed) or [data]):
        if "gpu" in entry and any(key in entry for key in _TELLS):
            yield entry
    metrics = (row for rows in sequence(data.get("xgmi_metric")) for row in sequence(rows))
    for entry in map(mapping, (*metrics, *sequence(data.get("link_status")))):
        if "gpu" in entry:
            yield {"gpu": entry["gpu"], "bdf": entry.get("bdf")}
    for entry in map(mapping, sequence(data.get("current_partition"))):
        if "gpu_id" in entry:
            mode, part = entry.get("accelerator_type"), entry.get("partition_id")
            yield {
                "gpu": entry["gpu_id"],
                "partition": {"accelerator_partition": mode, "partition_id": part},
            }


def _statuses(value: Any, place: str) -> dict[int, list[str]]:
    """What ``amd-smi xgmi`` says of links since ROCm 7, by GPU; none where it was not asked."""
    return {
        number(entry.get("gpu"), place): [str(status) for status in sequence(entry["link_status"])]
        for entry in map(mapping, sequence(mapping(value).get("link_status")))
        if "link_status" in entry
    }


def add_statuses(listing: Listing, rows: Mapping[int, Sequence[str]], place: str) -> None:
    """Links of XGMI by their states: by GPU, those of its links to all GPUs in the order of the rows.

    ``U`` is up, ``D`` down, ``X`` disabled, ``SELF`` and ``N/A`` tell nothing; of several links between two GPUs, as ``U/D``,
    one that is up joins them. Where none of a host is up nothing is told: drivers of virtual machines had called all links
    down that worked (CHANGELOG.md of ROCm/rocm-systems, projects/amdsmi, MIT). Raises ``InstanceError`` for a table that is not whole.
    """
    if any("SELF" not in row[at : at + 1] for at, row in enumerate(rows.values())):
        return  # states by port, as ROCm 6.4 has them: whom a port leads to is not told
    if any(len(row) != len(rows) for row in rows.values()):
        message = f"XGMI LINK STATUS: expected {len(rows)} states in each of {len(rows)} rows"
        raise InstanceError(Problem(place, message))
    if not any("U" in status.split("/") for row in rows.values() for status in row):
        return
    for gpu, row in rows.items():
        for other, status in zip(rows, row, strict=True):
            states = status.split("/")
            if other != gpu and ("U" in states or "D" in states):
                listing.gpu(gpu, place).linked[other] = "U" in states


def add(listing: Listing, entry: dict[str, Any], place: str) -> None:
    """What an entry tells of its GPU. Raises ``InstanceError``."""
    gpu = listing.gpu(number(entry.get("gpu"), place), place)
    where = f"{place}: GPU {entry['gpu']}"
    asic, board, part = (mapping(entry.get(key)) for key in ("asic", "board", "partition"))
    set_bus(gpu, told(entry.get("bdf") or mapping(entry.get("bus")).get("bdf")), where)
    if name := told(asic.get("market_name")) or told(board.get("product_name")):
        gpu.names.add(name)
    gpu.device = told(asic.get("device_id")) or gpu.device
    mode = told(part.get("accelerator_partition", part.get("compute_partition")))
    gpu.mode = mode or gpu.mode
    gpu.part = told(part.get("partition_id", entry.get("partition_id"))).strip("[]") or gpu.part
    gpu.memory = size(mapping(entry.get("vram")).get("size"), f"{where}: vram.size") or gpu.memory
    use = mapping(entry.get("mem_usage"))
    gpu.memory = gpu.memory or size(use.get("total_vram"), f"{where}: mem_usage.total_vram")
    used = size(use.get("used_vram"), f"{where}: mem_usage.used_vram")
    gpu.used = gpu.used if used is None else used
    gpu.running |= any(
        isinstance(mapping(process).get("process_info"), dict)
        for process in sequence(entry.get("process_list"))
    )
    if told(mapping(entry.get("ras")).get("bad_page_threshold_exceeded")).lower() == "true":
        gpu.failed = "more bad pages of its memory than the driver bears"
    for link in map(mapping, sequence(entry.get("links"))):
        _add_link(gpu.linked, link.get("gpu"), link, f"{where}: links")
    links: dict[str, dict[str, Any]] = {}
    for table, key in _TABLES.items():
        for other, value in mapping(entry.get(table)).items():
            links.setdefault(other, {})[key] = value
    for other, link in links.items():
        _add_link(gpu.linked, other.removeprefix("gpu_"), link, f"{where}: {'/'.join(_TABLES)}")


def number(value: Any, place: str) -> int:
    """The number of a GPU. Raises ``InstanceError`` for what is none."""
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 6:
        message = f"expected the number of a GPU, got {shown(value, 40)}"
        raise InstanceError(Problem(f"{place}: gpu", message))
    return int(text)


def size(value: Any, place: str) -> float | None:
    """Bytes of an amount such as ``{"value": 196592, "unit": "MB"}`` or ``196592 MB``, ``None`` if it is not told."""
    data = mapping(value)
    text = told(f"{data.get('value')} {data.get('unit')}" if data else value)
    if not text or told(data.get("value", "0")) == "":
        return None
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMG]?B)", text)
    if found is None:
        raise InstanceError(
            Problem(place, f"expected an amount such as 196592 MB, got {shown(text, 40)}")
        )
    return float(found[1]) * _UNITS[found[2]]


def _add_link(linked: dict[int, bool], other: Any, link: dict[str, Any], place: str) -> None:
    """Whether XGMI leads to another GPU; the way to itself and what is not told are left out.

    Without types, a bandwidth is told of neighbours over XGMI alone, and they are one hop away; PCIe has two hops or
    more (``rsmi_minmax_bandwidth_get``, ``rsmi_topo_get_link_type`` of ROCm/amdsmi, MIT).
    """
    kind = link.get("link_type")
    if "link_type" in link:
        told_so = _XGMI.get(kind) if isinstance(kind, str) else None
    elif re.fullmatch(r"\d{1,9}-\d{1,9}", str(link.get("bandwidth"))):
        told_so = True
    else:
        hops = str(link.get("num_hops"))
        told_so = hops == "1" if re.fullmatch(r"[1-9]\d{0,2}", hops) else None
    if told_so is not None:
        linked[number(other, place)] = told_so

"""``nvidia-smi --query-gpu=index,name,memory.total,memory.used,.. --format=csv``, saved as HOST.csv or HOST.txt.

Which GPUs serve processes is not told: those whose memory is in use are taken. Columns that tell of failures are read by
the rules of the XML.
"""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.nvidia import nvidia_smi_text, nvidia_smi_topo
from rackfit.discovery.readers.nvidia.nvidia_smi_xml import read_log
from rackfit.discovery.readers.nvidia.xml_tree import Element
from rackfit.discovery.readers.table import table_rows
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "nvidia-smi --query-gpu=index,name,memory.total,memory.used --format=csv (the file named like its host)"

#: columns and where the XML has them
_PLACES = {
    "name": "product_name", "gpu_name": "product_name", "uuid": "uuid", "gpu_uuid": "uuid", "pstate": "performance_state",
    "memory.total": "fb_memory_usage/total", "mig.mode.current": "mig_mode/current_mig",
    "gpu_reset_status.reset_required": "gpu_reset_status/reset_required",
    "gpu_reset_status.drain_and_reset_recommended": "gpu_reset_status/drain_and_reset_recommended",
    "reset_status.reset_required": "gpu_reset_status/reset_required",
    "reset_status.drain_and_reset_recommended": "gpu_reset_status/drain_and_reset_recommended",
    "gpu_recovery_action": "gpu_recovery_action", "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending", "fabric.state": "fabric/state",
    "fabric.status": "fabric/status", "fabric.cliqueid": "fabric/clique_id", "fabric.clusteruuid": "fabric/cluster_uuid",
    "power.limit": "gpu_power_readings/current_power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit",
}  # fmt: skip
_UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "power.limit": "W",
    "power.default_limit": "W",
}
_NAMES = {"index", "name", "gpu_name", "uuid", "gpu_uuid", "pci.bus_id", "memory.total"}
#: share of the memory that a driver alone takes up is under a hundredth
_USED = 0.05


def recognises(document: Document) -> bool:
    """A header of such columns, in no file that another reader of NVIDIA's reads."""
    heads = (line.split(",") for line in document.text[:50_000].splitlines())
    others = (nvidia_smi_text, nvidia_smi_topo)
    return any(map(_is_head, heads)) and not any(other.recognises(document) for other in others)


def read(document: Document) -> Found:
    """One host with its GPUs, each as its last row tells of it."""
    last: dict[int, dict[str, str]] = {}
    rows = table_rows(document.text, _is_head, document.place)
    for row, place in rows:
        told = {_column(name): value for name, value in row.items()}
        number = _number(told.get("index", str(len(last))), place)
        before = last.get(number, told)
        for key in ("uuid", "gpu_uuid", "pci.bus_id"):
            if before.get(key) != told.get(key):
                message = f"GPU {number} is {shown(told.get(key), 60)} and {shown(before.get(key), 60)}; expected a file for each host"
                raise InstanceError(Problem(f"{place}: {key}", message))
        last[number] = told
    if sorted(last) != list(range(len(last))) or not last:
        numbers = ", ".join(map(str, sorted(last)[:20])) or "none"
        message = f"tells of GPUs {numbers}; expected all of the host, from GPU 0 on"
        raise InstanceError(Problem(document.place, message))
    count = last[0].get("count", "")
    root = Element(
        "nvidia_smi_log",
        inside=[Element("attached_gpus", text=count if count.isdecimal() else str(len(last)))],
    )
    root.inside += [_element(told) for _, told in sorted(last.items())]
    found = read_log(root, document)
    (host,) = found.hosts.values()
    shares = {
        number: _share(told, f"{document.place}: GPU {number}") for number, told in last.items()
    }
    for number, share in shares.items():
        if (share or 0.0) > _USED:
            host.taken.setdefault(number, "its memory is in use")
    if all(share is not None for number, share in shares.items() if number not in host.failed):
        said = f"GPUs with more than {_USED:.0%} of their memory in use are taken; processes are not told"
        found.assumed.append(f"{host.name}: {said}")
    else:
        found.notes.append(f"{host.name}: its table does not tell which GPUs are in use")
    return found


def _is_head(cells: list[str]) -> bool:
    names = {_column(cell) for cell in cells}
    return len(names & _NAMES) > 1 and bool({"name", "gpu_name"} & names)


def _column(cell: str) -> str:
    """The name of a column without its unit: ``memory.total [MiB]``."""
    return cell.partition("[")[0].strip().lower()


def _number(text: str, place: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise InstanceError(
            Problem(f"{place}: index", f"expected a number of a GPU, got {shown(text, 40)}")
        )
    return int(text)


def _value(told: dict[str, str], name: str) -> str:
    """A cell with its unit, empty where the driver does not tell it."""
    value = told.get(name, "")
    if re.fullmatch(r"[0-9.]{1,12}", value) and name in _UNITS:
        return f"{value} {_UNITS[name]}"
    return "" if re.fullmatch(r".{0,20}(?:N/A|Not Supported)\W?", value) else value.strip("[]")


def _element(told: dict[str, str]) -> Element:
    gpu = Element("gpu")
    for name, path in _PLACES.items():
        if not (value := _value(told, name)):
            continue
        *sections, tag = path.split("/")
        above = gpu
        for section in sections:
            below = next(above.each(section), None) or Element(section)
            if below not in above.inside:
                above.inside.append(below)
            above = below
        above.inside.append(Element(tag, text=value))
    return gpu


def _share(told: dict[str, str], place: str) -> float | None:
    """Share of the memory in use; ``None`` where it is not told. Raises ``InstanceError`` for another unit."""
    sizes = []
    for name in ("memory.used", "memory.total"):
        value = _value(told, name)
        found = re.fullmatch(r"([0-9]{1,9}) MiB", value)
        if found is None:
            if value and re.match(r"[0-9.]", value):
                message = f"expected an amount such as 81559 MiB, got {shown(value, 40)}"
                raise InstanceError(Problem(f"{place}: {name}", message))
            return None
        sizes.append(float(found[1]))
    return sizes[0] / sizes[1] if sizes[1] else None

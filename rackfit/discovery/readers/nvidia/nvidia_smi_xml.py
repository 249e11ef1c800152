"""``nvidia-smi -q -x``, saved as HOST.xml: lost and degraded GPUs, NVLink fabric, MIG, processes, power limits."""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.products import DISPLAY
from rackfit.discovery.readers.nvidia.xml_tree import Element, parse_xml
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "nvidia-smi -q -x (the file named like its host)"

_BROKEN = ("gpu is lost", "unknown error", "err!", "requires reset")
_NONE = (
    "",
    "n/a",
    "[n/a]",
    "not supported",
    "[not supported]",
    "none",
    "no",
    "not active",
    "healthy",
    "success",
    "full",
    "false",
)
#: fields of the fabric's health that say so if a GPU is unwell, the most telling first
_FABRIC_HEALTH = (
    ("route_unhealthy", "route unhealthy"),
    ("incorrect_configuration", "incorrect configuration"),
    ("access_timeout_recovery", "recovers from a time-out"),
    ("route_recovery_in_progress", "a route recovers"),
    ("summary", "health"),
)


def recognises(document: Document) -> bool:
    """XML of the root nvidia_smi_log, also behind a document type of its own."""
    return (
        "<nvidia_smi_log" in document.text[:5000]
        or "<!DOCTYPE nvidia_smi_log" in document.text[:500]
    )


def read(document: Document) -> Found:
    """One host, its GPUs in the order of the log, which is that of their numbers."""
    return read_log(parse_xml(document.text, document.place), document)


def read_log(root: Element, document: Document) -> Found:
    """One host of a log as a tree. Raises ``InstanceError``."""
    found = Found()
    logged = list(root.each("gpu"))
    gpus = [gpu for gpu in logged if DISPLAY not in gpu.at("product_name")]
    displays = len(logged) - len(gpus)
    host = found.host(document.stem, document.place)
    attached = root.at("attached_gpus")
    if not attached.isdecimal():
        message = "no number of attached GPUs in it; expected all that nvidia-smi -q -x prints"
        raise InstanceError(Problem(document.place, message))
    if not gpus:
        message = (
            f"{attached[:5]} GPUs attached, none in the log; leave the file of such a host out"
        )
        raise InstanceError(Problem(document.place, message))
    if displays:
        found.notes.append(f"{host.name}: {displays} {DISPLAY} left out; it serves screens")
    host.use_told = True
    host.chips = max(len(gpus), min(int(attached[:5]), 1024) - displays)
    products: set[str] = set()
    for position, gpu in enumerate(gpus):
        product = gpu.at("product_name")
        if product and not _broken(product):
            products.add(product)
        if reason := failure_of(gpu):
            host.failed[position] = reason
        if reason := _use(gpu):
            host.taken[position] = reason
        if (size := _mebibytes(gpu.at("fb_memory_usage/total"))) is not None:
            host.hbm_bytes = size
        if domain := _domain(gpu):
            host.domain = domain
        found.notes += [f"{host.name} GPU {position}: {word}" for word in _remarks(gpu)]
    if len(products) > 1:
        message = f"several kinds of GPU in one host: {', '.join(sorted(products))}"
        raise InstanceError(Problem(document.place, shown(message, 300)))
    host.product = next(iter(products), None)
    if host.chips > len(gpus):
        host.failed_anywhere["attached, but not in the log"] = host.chips - len(gpus)
    return found


def _broken(text: str) -> bool:
    return any(word in text.lower() for word in _BROKEN)


def failure_of(gpu: Element) -> str:
    """Why a GPU cannot serve; empty if it can."""
    if any(
        _broken(gpu.at(path))
        for path in ("product_name", "uuid", "fb_memory_usage/total", "performance_state")
    ):
        return "lost"
    if gpu.at("gpu_reset_status/reset_required").lower() == "yes":
        return "needs a reset"
    if gpu.at("gpu_reset_status/drain_and_reset_recommended").lower() == "yes":
        return "should be drained and reset"
    if (action := gpu.at("gpu_recovery_action")).lower() not in _NONE:
        return f"recovery action: {shown(action, 60)}"
    if gpu.at("remapped_rows/remapped_row_failure").lower() == "yes":
        return "rows of its memory could not be remapped"
    if (state := gpu.at("fabric/state")).lower() not in (*_NONE, "completed"):
        return f"NVLink fabric: {shown(state, 60)}"
    if (status := gpu.at("fabric/status")).lower() not in _NONE:
        return f"NVLink fabric: {shown(status, 60)}"
    if (width := gpu.at("fabric/health/bandwidth")).lower() not in _NONE:
        return f"NVLink bandwidth: {shown(width, 60)}"
    for path, meaning in _FABRIC_HEALTH:
        if (state := gpu.at(f"fabric/health/{path}")).lower() not in _NONE:
            told = "" if state.lower() == "true" else f": {shown(state, 60)}"
            return f"NVLink fabric: {meaning}{told}"
    return ""


def _use(gpu: Element) -> str:
    """Why a GPU is not free."""
    if gpu.at("mig_mode/current_mig").lower() == "enabled":
        return "split by MIG"
    for processes in gpu.each("processes"):
        if any("C" in process.at("type") for process in processes.each("process_info")):
            return "in use"
    return ""


def _domain(gpu: Element) -> str:
    """Cluster and clique of the NVLink fabric; those of one node's switches are all zeros or not told."""
    cluster = gpu.at("fabric/clusterUuid") or gpu.at("fabric/cluster_uuid")
    clique = gpu.at("fabric/cliqueId") or gpu.at("fabric/clique_id")
    if cluster.lower() in _NONE or not cluster.replace("-", "").strip("0"):
        return ""
    return f"{cluster}.{clique}"


def _remarks(gpu: Element) -> list[str]:
    """What is worth knowing and takes no chip away."""
    remarks = []
    for group in ("gpu_power_readings", "power_readings"):
        limits = [
            _watts(gpu.at(f"{group}/{name}"))
            for name in ("current_power_limit", "default_power_limit")
        ]
        if limits[0] is None:
            limits[0] = _watts(gpu.at(f"{group}/power_limit"))
        if limits[0] and limits[1] and limits[0] < limits[1]:
            remarks.append(
                f"power limit {limits[0]:g} W of {limits[1]:g} W; its speed is taken as without"
            )
            break
    for reasons in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for element in next(gpu.each(reasons), gpu).inside:
            if element.tag.endswith("hw_slowdown") and element.text.strip() == "Active":
                remarks.append("the hardware slows its clocks down")
    if gpu.at("remapped_rows/remapped_row_pending").lower() == "yes":
        remarks.append("rows of its memory wait for a reset to be remapped")
    return remarks


def _watts(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,4})?) W", text)
    return float(found[1]) if found else None


def _mebibytes(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,9}) MiB", text)
    return float(found[1]) * 2**20 if found else None

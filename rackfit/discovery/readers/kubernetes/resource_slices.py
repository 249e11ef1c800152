"""``kubectl get resourceslices -o json`` (or yaml): devices of dynamic resource allocation, one by one."""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from topology.names import shown

TITLE = "kubectl get resourceslices -o json"

_NUMBER = re.compile(r"gpu-(?:vfio-)?(\d{1,4})(?:-\d{1,4})?")
#: types of devices that are a whole GPU and those that are a part of one, with the attribute that names the whole
_WHOLE = ("gpu", "amdgpu")
_PARTS = {
    "mig": ("parentUUID", "split by MIG"),
    "amdgpu-partition": ("parentDeviceID", "split into partitions"),
}
#: type of a whole GPU that is handed to a virtual machine
_PASSED_ON = "vfio"
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1, "M": 10**6, "G": 10**9}


def recognises(document: Document) -> bool:
    """Objects of kind ResourceSlice."""
    return "ResourceSlice" in document.kinds()


def read(document: Document) -> Found:
    """Whole GPUs of each node; GPUs that are split or kept for virtual machines are taken, tainted ones have failed."""
    found = Found()
    pools: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for item in document.items:
        spec = mapping(item.get("spec"))
        if item.get("kind") != "ResourceSlice" or not spec.get("nodeName"):
            continue
        node = str(spec["nodeName"])
        devices = [mapping(device) for device in sequence(spec.get("devices"))]
        if clique := _clique(devices):
            found.host(node, document.place).domain = clique
        if not str(spec.get("driver", "")).startswith("gpu."):
            continue
        generation = mapping(spec.get("pool")).get("generation")
        generation = generation if isinstance(generation, int) else 0
        newest, known = pools.get(node, (generation, []))
        if generation > newest:  # older slices of a pool wait to be deleted
            newest, known = generation, []
        if generation == newest:
            known = [*known, *devices]
        pools[node] = newest, known
    for node, (_, devices) in pools.items():
        _devices(found, node, devices, document.place)
    found.hosts = {name: host for name, host in found.hosts.items() if host.chips}
    return found


def _clique(devices: list[dict[str, Any]]) -> str | None:
    """The NVLink clique that a device says it belongs to."""
    for device in devices:
        for name in ("cliqueID", "clique"):
            if value := _attribute(device, name):
                return value
    return None


def _attribute(device: dict[str, Any], name: str) -> str:
    basic = mapping(device.get("basic")) or device  # v1beta1 has one level more
    value = mapping(mapping(basic.get("attributes")).get(name))
    return str(next(iter(value.values()), ""))


def _devices(found: Found, node: str, devices: list[dict[str, Any]], place: str) -> None:
    """Add the GPUs of one node, in the order of their numbers.

    Parts that draw on the counters of a GPU and have no identity are those that MIG could make of it: they take
    nothing from a GPU that is offered whole.
    """
    host = found.host(node, place)
    gpus: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    parents: dict[str, tuple[str, str]] = {}
    passed_on: dict[str, dict[str, Any]] = {}
    products: set[str] = set()
    for device in devices:
        kind, name = _attribute(device, "type"), str(device.get("name", ""))
        identity = _attribute(device, "uuid")
        if kind in _WHOLE or (not kind and _NUMBER.fullmatch(name)):
            gpus[identity or name] = device
        elif kind == _PASSED_ON:
            passed_on[identity or name.replace("vfio-", "")] = device
        elif kind in _PARTS:
            key, reason = _PARTS[kind]
            parent = _attribute(device, key)
            parents[parent] = name.split("-mig")[0], reason
            if identity or not (mapping(device.get("basic")) or device).get("consumesCounters"):
                reasons[parent] = reason
        else:
            continue
        if product := _attribute(device, "productName"):
            products.add(product)
    for uuid in sorted(set(passed_on) - set(gpus)):
        gpus[uuid], reasons[uuid] = passed_on[uuid], "kept for virtual machines"
    for parent in sorted(set(parents) - set(gpus) - {""}):
        gpus[parent] = {"name": parents[parent][0]}
        reasons[parent] = parents[parent][1]
    ordered = sorted(gpus.items(), key=lambda pair: _order(pair[1]))
    for position, (uuid, device) in enumerate(ordered):
        if uuid in reasons:
            host.taken[position] = reasons[uuid]
        for taint in map(mapping, sequence((mapping(device.get("basic")) or device).get("taints"))):
            if taint.get("effect") in ("NoSchedule", "NoExecute"):
                host.failed[position] = f"device taint {shown(taint.get('key'), 80)}"
        if (size := _memory(device)) is not None:
            host.hbm_bytes = size
    host.chips = len(gpus)
    host.use_told = False
    host.product = next(iter(products)) if len(products) == 1 else None
    if len(products) > 1:
        kinds = ", ".join(sorted(products))
        host.unread = f"several kinds of GPU in one host: {shown(kinds, 200)}"


def _order(device: dict[str, Any]) -> tuple[int, str]:
    name = str(device.get("name", ""))
    number = _NUMBER.fullmatch(name)
    return (int(number[1]) if number else 10_000, name)


def _memory(device: dict[str, Any]) -> float | None:
    """Bytes of a device's memory."""
    basic = mapping(device.get("basic")) or device
    given = mapping(basic.get("capacity")).get("memory")
    given = mapping(given).get("value") if isinstance(given, dict) else given
    found = re.fullmatch(r"(\d{1,15})([KMGT]i|[MG]|)", str(given))
    return float(found[1]) * _UNITS[found[2]] if found else None

"""``kubectl get resourceslices -o json`` (or yaml): devices of dynamic resource allocation, one by one."""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found
from topology.names import shown

TITLE = "kubectl get resourceslices -o json"

_NUMBER = re.compile(r"gpu-(\d{1,4})(?:-\d{1,4})?")
#: types of devices that are a whole GPU and those that are a part of one, with the attribute that names the whole
_WHOLE = ("gpu", "amdgpu")
_PARTS = {
    "mig": ("parentUUID", "split by MIG"),
    "amdgpu-partition": ("parentDeviceID", "split into partitions"),
}
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1, "M": 10**6, "G": 10**9}


def recognises(document: Document) -> bool:
    """Objects of kind ResourceSlice."""
    return "ResourceSlice" in document.kinds()


def read(document: Document) -> Found:
    """Whole GPUs of each node; GPUs of which parts are offered count as taken, tainted ones as failed."""
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
    """Add the GPUs of one node, in the order of their numbers."""
    host = found.host(node, place)
    gpus: dict[str, dict[str, Any]] = {}
    parents: dict[str, tuple[str, str]] = {}
    for device in devices:
        kind, name = _attribute(device, "type"), str(device.get("name", ""))
        if kind in _WHOLE or (not kind and _NUMBER.fullmatch(name)):
            gpus[_attribute(device, "uuid") or name] = device
        elif kind in _PARTS:
            key, reason = _PARTS[kind]
            parents[_attribute(device, key)] = name.split("-mig")[0], reason
            host.product = host.product or _attribute(device, "productName") or None
    for parent in sorted(set(parents) - set(gpus) - {""}):
        gpus[parent] = {"name": parents[parent][0]}
    ordered = sorted(gpus.items(), key=lambda pair: _order(pair[1]))
    for position, (uuid, device) in enumerate(ordered):
        if uuid in parents:
            host.taken[position] = parents[uuid][1]
        for taint in map(mapping, sequence((mapping(device.get("basic")) or device).get("taints"))):
            if taint.get("effect") in ("NoSchedule", "NoExecute"):
                host.failed[position] = f"device taint {shown(taint.get('key'), 80)}"
        if name := _attribute(device, "productName"):
            host.product = name
        if (size := _memory(device)) is not None:
            host.hbm_bytes = size
    host.chips = len(gpus)


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

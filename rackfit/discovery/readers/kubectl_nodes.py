"""``kubectl get nodes -o json`` (or yaml): labels of GPU feature discovery and of GKE, taints, allocatable chips."""

from __future__ import annotations

from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found, Host
from rackfit.discovery.products import product_of_machine
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "kubectl get nodes -o json"

#: resources that count whole chips
_RESOURCES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "google.com/tpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neurondevice",
)
#: labels that name the product, the most telling first
_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-tpu-accelerator",
            "cloud.google.com/gke-accelerator")  # fmt: skip
#: labels that name the scale-up domain
_DOMAIN = ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")
_LEAF = ("network.topology.nvidia.com/leaf", "topology.nvidia.com/leaf")
#: taints that every node with such chips has, and those that Kubernetes sets on nodes out of service
_USUAL = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "kubernetes.azure.com/scalesetpriority",
          "cloud.google.com/gke-spot", "cloud.google.com/gke-queued", "nvidia.com/gpu.present")  # fmt: skip
_OUT = "node.kubernetes.io/"


def recognises(document: Document) -> bool:
    """Objects of kind Node."""
    return "Node" in document.kinds()


def read(document: Document) -> Found:
    """Hosts with accelerators; others are left out."""
    found = Found()
    others = 0
    for item in document.items:
        if item.get("kind") != "Node":
            continue
        metadata, status = mapping(item.get("metadata")), mapping(item.get("status"))
        labels = {str(k): str(v) for k, v in mapping(metadata.get("labels")).items()}
        name = shown(metadata.get("name"), 80)
        if "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
            found.notes.append(
                f"{document.place}: {name}: left out; its labels count parts that MIG makes, not GPUs"
            )
            continue
        counted = _count(status, labels, f"{document.place}: {name}")
        if counted is None:
            others += 1
            continue
        host = found.host(str(metadata.get("name") or ""), document.place)
        host.chips, lost, split = counted
        if lost:
            host.failed_anywhere["not allocatable"] = lost
        if split:
            host.taken_anywhere["split by MIG"] = split
        _describe(host, labels, document.place)
        _health(host, item, status)
    if others:
        found.notes.append(f"{document.place}: {others} nodes without accelerators are left out")
    return found


def _count(
    status: dict[str, Any], labels: dict[str, str], place: str
) -> tuple[int, int, int] | None:
    """Chips of a node, how many of them are not allocatable and how many MIG splits; ``None`` if it has none.

    Where parts are resources of their own, ``nvidia.com/gpu`` counts the whole GPUs and the label all of them.
    """
    capacity, allocatable = mapping(status.get("capacity")), mapping(status.get("allocatable"))
    parts = any(str(key).startswith("nvidia.com/mig-") for key in capacity)
    physical = _whole(labels.get("nvidia.com/gpu.count"), place, "nvidia.com/gpu.count") or 0
    for resource in _RESOURCES:
        if (number := _whole(capacity.get(resource), place, resource)) is None:
            continue
        free = _whole(allocatable.get(resource), place, resource)
        replicas = _whole(labels.get("nvidia.com/gpu.replicas"), place, "gpu.replicas") or 1
        shared = replicas if labels.get("nvidia.com/gpu.sharing-strategy", "none") != "none" else 1
        chips = number // shared
        lost = chips - min(chips, (number if free is None else free) // shared)
        if chips:
            split = max(0, physical - chips) if parts else 0
            return chips + split, lost, split
    return (physical, 0, physical) if physical and parts else None


def _whole(value: Any, place: str, name: str) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise InstanceError(
            Problem(f"{place}: {name}", f"expected a number of chips, got {shown(text, 40)}")
        )
    return int(text)


def _describe(host: Host, labels: dict[str, str], place: str) -> None:
    product = next((labels[key] for key in _PRODUCT if labels.get(key)), None)
    machine = labels.get("node.kubernetes.io/instance-type", "")
    host.product = product.removesuffix("-SHARED") if product else product_of_machine(machine)
    if (memory := labels.get("nvidia.com/gpu.memory", "")).isdecimal() and len(memory) < 10:
        host.hbm_bytes = float(memory) * 2**20
    host.domain = next((labels[key] for key in _DOMAIN if labels.get(key)), None)
    host.leaves = tuple(labels[key] for key in _LEAF if labels.get(key))[:1]
    if labels.get("nvidia.com/mig.config.state") in ("pending", "rebooting") and (
        labels.get("nvidia.com/mig.config") != "all-disabled"
    ):
        host.in_use = "about to be split by MIG"
    if shape := labels.get("cloud.google.com/gke-tpu-topology"):
        sides = shape.split("x")
        if not all(side.isdecimal() and 0 < len(side) < 5 for side in sides) or len(sides) > 3:
            message = f"expected a shape such as 4x4x4, got {shown(shape, 40)}"
            raise InstanceError(Problem(f"{place}: {host.name}: gke-tpu-topology", message))
        host.slice_shape = tuple(int(side) for side in sides)
        host.domain = labels.get("cloud.google.com/gke-nodepool", host.domain)


def _health(host: Host, item: dict[str, Any], status: dict[str, Any]) -> None:
    """Why a node does not serve, or serves others."""
    for condition in map(mapping, sequence(status.get("conditions"))):
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            host.out_of_service = (
                f"not ready: {shown(condition.get('reason') or 'no reason given', 80)}"
            )
    spec = mapping(item.get("spec"))
    if spec.get("unschedulable") is True:
        host.out_of_service = host.out_of_service or "cordoned"
    for taint in map(mapping, sequence(spec.get("taints"))):
        key, effect = str(taint.get("key")), str(taint.get("effect"))
        if effect == "PreferNoSchedule" or key in _USUAL:
            continue
        if key.startswith(_OUT):
            host.out_of_service = host.out_of_service or f"taint {shown(key, 80)}"
        else:
            value = f"={shown(taint['value'], 40)}" if taint.get("value") else ""
            host.in_use = host.in_use or f"taint {shown(key, 80)}{value}"

"""``kubectl get nodes -o json`` (or yaml): labels of GPU feature discovery and of GKE, taints, allocatable chips.

With ``kubectl get nodes,pods -A`` or ``kubectl cluster-info dump``, also the chips that pods have asked for.
"""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping, sequence
from rackfit.discovery.found import Found, Host
from rackfit.discovery.products import product_of_device, product_of_machine, words
from rackfit.discovery.readers.kubernetes.pods import requested
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "kubectl get nodes -o json, cluster-info dump"

#: resources that count whole chips, each with the one that counts shares of them
_RESOURCES = (
    ("nvidia.com/gpu", "nvidia.com/gpu.shared"),
    ("amd.com/gpu", "amd.com/spx_nps1"),
    ("google.com/tpu",),
    ("habana.ai/gaudi",),
    ("aws.amazon.com/neuron",),
    ("aws.amazon.com/neurondevice",),
)
#: resources and labels that count partitions of AMD's GPUs
_PARTITIONS = re.compile(r"amd\.com/[dtqc]px_nps\d")
_PARTITIONED = ("amd.com/gpu.compute-memory-partition", "beta.amd.com/gpu.compute-memory-partition")
#: labels that name the product, the most telling first; those of a machine's type say no more than the word for it
_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name",
            "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-accelerator")  # fmt: skip
#: a label of AMD's that holds the device's number, as value or, with the number of GPUs as value, in its name
_DEVICE = re.compile(r"(?:beta\.)?amd\.com/gpu\.device-id(?:\.([0-9a-f]{4}))?")
_WORD = ("eks.amazonaws.com/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-name")
#: labels of the memory of one GPU, in MiB
_MEMORY = (
    "nvidia.com/gpu.memory",
    "eks.amazonaws.com/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-memory",
)
#: labels that name the scale-up domain
_DOMAIN = ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")
_LEAF = ("network.topology.nvidia.com/leaf", "topology.nvidia.com/leaf")
#: taints that every node with such chips has, and those that Kubernetes sets on nodes out of service
_USUAL = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "kubernetes.azure.com/scalesetpriority",
          "cloud.google.com/gke-spot", "cloud.google.com/gke-queued", "nvidia.com/gpu.present")  # fmt: skip
_OUT = "node.kubernetes.io/"
#: namespaces that a dump holds where nothing else was asked for
_DUMPED = {"default", "kube-system"}


def recognises(document: Document) -> bool:
    """Objects of kind Node."""
    return "Node" in document.kinds()


def read(document: Document) -> Found:
    """Hosts with accelerators; others are left out."""
    nodes = [item for item in document.items if item.get("kind") == "Node"]
    pods = [item for item in document.items if item.get("kind") == "Pod"]
    asked = requested(pods, [name for names in _RESOURCES for name in names], document.place)
    for item in nodes:
        status = item.get("status")
        name = str(mapping(item.get("metadata")).get("name"))
        if isinstance(status, dict) and pods:
            item["status"] = {**status, "requested": asked.get(name, {})}
    found = hosts_of(nodes, document)
    spaces = {str(mapping(pod.get("metadata")).get("namespace")) for pod in pods}
    if pods and spaces <= _DUMPED:
        found.assumed.append(
            f"{document.place}: holds pods of {' and '.join(sorted(spaces))} alone; chips of pods elsewhere count as free "
            "(kubectl cluster-info dump --all-namespaces tells them)"
        )
    claims = [pod for pod in pods if sequence(mapping(pod.get("spec")).get("resourceClaims"))]
    if claims:
        message = f"{document.place}: {len(claims)} pods have resource claims, which are not counted as chips in use"
        found.notes.append(f"{message}; resource slices tell of devices")
    return found


def hosts_of(nodes: list[dict[str, Any]], document: Document) -> Found:
    """The hosts of objects of kind Node that have accelerators."""
    found = Found()
    others = 0
    for item in nodes:
        metadata, status = mapping(item.get("metadata")), mapping(item.get("status"))
        labels = {str(k): str(v) for k, v in mapping(metadata.get("labels")).items()}
        name = shown(metadata.get("name"), 80)
        if whose := _parts_alone(labels):
            found.notes.append(
                f"{document.place}: {name}: left out; its labels count parts that {whose}, not GPUs"
            )
            continue
        place = f"{document.place}: {name}"
        partitions = any(
            _PARTITIONS.fullmatch(str(key)) and str(number) != "0"
            for key, number in mapping(status.get("capacity")).items()
        )
        if partitions:
            found.notes.append(f"{place}: GPUs that partitions split are left out")
        counted = _count(status, labels, place, found.notes)
        if counted is None:
            labelled = labels.get("nvidia.com/gpu.count", "0")
            if labelled != "0":
                message = f"left out; its labels count {shown(labelled, 40)} GPUs, no resource does"
                found.notes.append(f"{place}: {message}")
            others += labelled == "0" and not partitions
            continue
        host = found.host(str(metadata.get("name") or ""), document.place)
        host.chips, lost, split = counted
        if lost:
            host.failed_anywhere["not allocatable"] = lost
        if split:
            host.taken_anywhere["split by MIG"] = split
        whole = host.chips - split == _told(status, "capacity", place)
        # of pods, or of what they have asked for
        host.use_told = "requested" in status
        if whole and (used := _told(status, "requested", place)):
            host.taken_anywhere["requested by pods"] = min(used, host.chips)
        _describe(host, labels, document.place)
        _health(host, item, status)
    if others:
        found.notes.append(f"{document.place}: {others} nodes without accelerators are left out")
    return found


def _parts_alone(labels: dict[str, str]) -> str:
    """What makes parts of GPUs that are counted like whole ones; empty if nothing does."""
    if "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
        return "MIG makes"
    mode = next((labels[key] for key in _PARTITIONED if labels.get(key)), "")
    return f"the mode {shown(mode, 40)} makes" if re.match("[dtqc]px", mode.lower()) else ""


def _count(
    status: dict[str, Any], labels: dict[str, str], place: str, notes: list[str]
) -> tuple[int, int, int] | None:
    """Chips of a node, how many of them are not allocatable and how many MIG splits; ``None`` if it has none.

    Where parts are resources of their own, ``nvidia.com/gpu`` counts the whole GPUs and the label all of them. A
    resource that counts more than the label counts shares of GPUs.
    """
    capacity, allocatable = mapping(status.get("capacity")), mapping(status.get("allocatable"))
    parts = any(str(key).startswith("nvidia.com/mig-") for key in capacity)
    physical = _whole(labels.get("nvidia.com/gpu.count"), place, "nvidia.com/gpu.count") or 0
    for names in (*_RESOURCES, _renamed(capacity, labels) if physical and not parts else ()):
        told = {name: _whole(capacity.get(name), place, name) or 0 for name in names}
        if not (number := sum(told.values())):
            continue
        free = [_whole(allocatable.get(name, told[name]), place, name) or 0 for name in names]
        chips = number // _replicas(labels, place)
        if physical and not parts and names[0].startswith("nvidia.com/"):
            chips = min(chips, physical)
        if not chips:
            continue
        if chips < number:
            notes.append(f"{place}: {names[0]} counts {number} shares of {chips} GPUs")
        lost = chips - min(chips, sum(free) * chips // number)
        split = max(0, physical - chips) if parts else 0
        return chips + split, lost, split
    return (physical, 0, physical) if physical and parts else None


def _told(status: dict[str, Any], key: str, place: str) -> int:
    """Whole chips of the first resource that counts some."""
    counts, capacity = mapping(status.get(key)), mapping(status.get("capacity"))
    for name, *_ in _RESOURCES:
        if _whole(capacity.get(name), place, name):
            return _whole(counts.get(name), place, name) or 0
    return 0


def _replicas(labels: dict[str, str], place: str) -> int:
    """How many shares each GPU counts as; old device plugins say by the product's name alone that it is shared."""
    named = labels.get("nvidia.com/gpu.product", "").endswith("-SHARED")
    if not named and labels.get("nvidia.com/gpu.sharing-strategy", "none") == "none":
        return 1
    return _whole(labels.get("nvidia.com/gpu.replicas"), place, "gpu.replicas") or 1


def _renamed(capacity: dict[str, Any], labels: dict[str, str]) -> tuple[str, ...]:
    """A resource that an operator named after the product, such as ``nvidia.com/a100``."""
    product = words(labels.get("nvidia.com/gpu.product", ""))
    for name in map(str, capacity):
        own = words(name.removeprefix("nvidia.com/").removesuffix(".shared"))
        if name.startswith("nvidia.com/") and own and own <= product:
            return (name,)
    return ()


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
    product = next((labels[key] for key in _PRODUCT if labels.get(key)), None) or _device(labels)
    machine = labels.get("node.kubernetes.io/instance-type", "")
    word = next((labels[key] for key in _WORD if labels.get(key)), None)
    host.product = (
        product.removesuffix("-SHARED") if product else product_of_machine(machine) or word
    )
    memory = next((labels[key] for key in _MEMORY if labels.get(key)), "")
    if memory.isdecimal() and len(memory) < 10:
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


def _device(labels: dict[str, str]) -> str | None:
    """The product of AMD's device number: nodes of virtual machines have no other label of it."""
    numbers = {
        (found[1] or value).lower()
        for key, value in labels.items()
        if (found := _DEVICE.fullmatch(key)) and value
    }
    return product_of_device(numbers.pop()) if len(numbers) == 1 else None


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

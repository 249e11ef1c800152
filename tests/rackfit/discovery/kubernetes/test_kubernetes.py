"""Nodes and resource slices whose GPUs are shared, renamed, in parts or passed on, and the forms of such files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackfit.discovery import document
from tests.rackfit.discovery.asking import found_in, refusal, sizes

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559"}  # fmt: skip


def node(
    labels: dict[str, str],
    capacity: dict[str, str],
    name: str = "n1",
    free: dict[str, str] | None = None,
) -> Any:
    """A node that is ready; ``free`` is what is allocatable, all of it if not given."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity if free is None else free,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def listed(*nodes: Any) -> str:
    return json.dumps({"kind": "List", "items": list(nodes)})


#: labels, capacity and what is allocatable of nodes of eight GPUs
SHARED: list[tuple[dict[str, str], dict[str, str], dict[str, str] | None, int]] = [
    # the device plugin before it told its strategy: the product's name says it
    ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", "nvidia.com/gpu.replicas": "4"},
     {"nvidia.com/gpu": "32"}, None, 0),
    ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
     {"nvidia.com/gpu": "32"}, {"nvidia.com/gpu": "28"}, 1),
    ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
     {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "32"}, None, 0),
    # HAMi's device plugin, ten shares of each GPU by default, tells no replicas
    ({}, {"nvidia.com/gpu": "80"}, {"nvidia.com/gpu": "60"}, 2),
    # a resource that the operator renamed
    ({}, {"nvidia.com/gpu": "0", "nvidia.com/h100": "8"}, {"nvidia.com/h100": "7"}, 1),
    ({}, {"nvidia.com/H100-80GB.shared": "16"}, None, 0),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "capacity", "free", "lost"), SHARED)
def test_shares_are_no_gpus_and_renamed_gpus_are_some(
    labels: dict[str, str],
    capacity: dict[str, str],
    free: dict[str, str] | None,
    lost: int,
    tmp_path: Path,
) -> None:
    found = found_in(tmp_path, "n.json", listed(node({**H100, **labels}, capacity, free=free)))
    assert sizes(found) == [8]
    assert len(found.failed) == lost
    shares = sum(map(int, capacity.values()))
    assert any(f"{shares} shares of 8 GPUs" in note for note in found.notes) == (shares != 8)


def test_gpus_that_no_resource_counts_are_said(tmp_path: Path) -> None:
    nodes = node(H100, {"nvidia.com/gpu": "0"}), node(H100, {"nvidia.com/gpu": "8"}, "n2")
    found = found_in(tmp_path, "n.json", listed(*nodes))
    assert found.hosts == {"r0": ["n2"]}
    assert any("n1: left out; its labels count 8 GPUs, no resource does" in n for n in found.notes)
    assert not any("without accelerators" in note for note in found.notes)


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ({"amd.com/gpu.compute-memory-partition": "cpx_nps4"}, {"amd.com/gpu": "64"}),
        ({"amd.com/gpu.compute-memory-partition": "cpx_nps4"}, {"amd.com/cpx_nps4": "64"}),
        ({}, {"amd.com/cpx_nps4": "64"}),
    ],
)
def test_partitions_of_amd_are_no_gpus(
    labels: dict[str, str], capacity: dict[str, str], tmp_path: Path
) -> None:
    """After ROCm/k8s-device-plugin, its strategies single and mixed."""
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", **labels}
    said = refusal(tmp_path, "n.json", listed(node(labels, capacity)))
    assert "no host that has accelerators" in said
    assert "left out" in said
    labels["amd.com/gpu.compute-memory-partition"] = "spx_nps1"
    for whole in ("amd.com/gpu", "amd.com/spx_nps1"):
        assert sizes(found_in(tmp_path, "n.json", listed(node(labels, {whole: "8"})))) == [8]


@pytest.mark.parametrize(
    ("labels", "capacity", "chip"),
    [
        ({"node.kubernetes.io/instance-type": "trn2.48xlarge"}, {"aws.amazon.com/neuron": "16"}, "trn2"),
        ({"node.kubernetes.io/instance-type": "Standard_ND96asr_v4"}, {"nvidia.com/gpu": "8"}, "a100-40gb"),
        ({"node.kubernetes.io/instance-type": "g6e.12xlarge"}, {"nvidia.com/gpu": "4"}, "l40s"),
        ({"node.kubernetes.io/instance-type": "g7e.24xlarge"}, {"nvidia.com/gpu": "4"}, "rtxpro6000"),
        ({"eks.amazonaws.com/instance-gpu-name": "h200", "eks.amazonaws.com/instance-gpu-memory": "144384"},
         {"nvidia.com/gpu": "8"}, "h200"),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, {"nvidia.com/gpu": "4"}, "l40s"),
        ({"beta.amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/gpu": "8"}, "mi300x"),
        # labels of virtual machines after ROCm/gpu-operator, issue 266, and the oldest form of the labeller's
        ({"amd.com/gpu.device-id": "74b5", "amd.com/gpu.family": "AI", "amd.com/gpu.vram": "192G"}, {"amd.com/gpu": "8"}, "mi300x"),
        ({"beta.amd.com/gpu.device-id.74a5": "8", "beta.amd.com/gpu.family.AI": "8"}, {"amd.com/gpu": "8"}, "mi325x"),
        ({"amd.com/gpu.device-id": "75a3", "beta.amd.com/gpu.device-id": "75a3"}, {"amd.com/gpu": "8"}, "mi355x"),
    ],
)  # fmt: skip
def test_clouds_and_older_labels_tell_the_product(
    labels: dict[str, str], capacity: dict[str, str], chip: str, tmp_path: Path
) -> None:
    found = found_in(tmp_path, "n.json", listed(node(labels, capacity)))
    assert found.cluster.chip_names == (chip,)
    assert sizes(found) == [int(*capacity.values())]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"amd.com/gpu.device-id": "740f"}, "no chip of the catalogue is 0x740f"),
        ({"amd.com/gpu.device-id": "74a2"}, "no chip of the catalogue is AMD Instinct MI308X"),
        ({"beta.amd.com/gpu.device-id.74a1": "4", "beta.amd.com/gpu.device-id.740f": "4"}, "no file tells its chips"),
    ],
)  # fmt: skip
def test_an_amd_device_that_the_catalogue_lacks_is_refused(
    labels: dict[str, str], said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, "n.json", listed(node(labels, {"amd.com/gpu": "8"})))


@pytest.mark.parametrize("product", ["NVIDIA-L40S-48Q", "GRID-T4-16C", "NVIDIA-GeForce-RTX-4090-D"])
def test_a_virtual_gpu_or_a_slower_card_is_not_the_whole_one(product: str, tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "1"}
    said = refusal(tmp_path, "n.json", listed(node(labels, {"nvidia.com/gpu": "1"})))
    assert f"no chip of the catalogue is {product}" in said


NODES = [node(H100, {"nvidia.com/gpu": "8"}, name) for name in ("n1", "n2")]


def without_kind(item: Any) -> Any:
    return {key: value for key, value in item.items() if key != "kind"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", json.dumps({"kind": "NodeList", "items": [without_kind(item) for item in NODES]})),
        ("comment.yaml", "# of must-gather\n" + yaml.safe_dump({"kind": "List", "items": NODES})),
        ("order.yaml", yaml.safe_dump({"metadata": {}, "items": NODES, "kind": "List"}, sort_keys=False)),
        ("many.yaml", yaml.safe_dump_all(NODES)),
        ("marked.yaml", "---\n" + yaml.safe_dump_all(NODES) + "---\n"),
        ("ended.yaml", yaml.safe_dump_all(NODES) + "---"),
        ("lists.yaml", yaml.safe_dump_all([{"kind": "List", "items": [item]} for item in NODES])),
        ("lines.jsonl", "\n".join(map(json.dumps, NODES)) + "\n"),
        ("joined.json", "".join(json.dumps({"kind": "List", "items": [item]}, indent=1) for item in NODES)),
        ("marked.json", "\n---\n".join(map(json.dumps, NODES))),
        ("warned.json", "Warning: no current context\n" + listed(*NODES)),
        ("answer.json", "HTTP/1.1 200 OK\nContent-Type: application/json\n\n" + listed(*NODES)),
    ],
)  # fmt: skip
def test_forms_of_kubernetes_files(name: str, text: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, name, text)
    assert list(found.hosts.values()) == [["n1"], ["n2"]]


def test_too_much_yaml_says_what_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_YAML_BYTES", 1000)
    said = refusal(tmp_path, "n.yaml", yaml.safe_dump_all(NODES * 3))
    assert "at most 1,000 are read; save it with -o json" in said


def test_a_mistake_in_one_of_several_documents_has_its_place(tmp_path: Path) -> None:
    said = refusal(tmp_path, "n.yaml", yaml.safe_dump_all(NODES) + "---\nkind: [Node\n")
    assert "n.yaml: document 3" in said


def test_a_mistake_in_one_of_several_json_values_has_its_line(tmp_path: Path) -> None:
    whole = [json.dumps(item) for item in NODES]
    said = refusal(tmp_path, "n.jsonl", "\n".join([*whole, whole[0][:-3]]))
    assert "n.jsonl:3:" in said
    assert "not JSON" in said
    twice = whole[0].replace('"kind"', '"kind": "Node", "kind"', 1)
    assert "the key kind is given twice" in refusal(tmp_path, "n.jsonl", f"{whole[0]}\n{twice}")


def device(name: str, kind: str, product: str = "NVIDIA B200", **inside: Any) -> dict[str, Any]:
    told = {"type": kind, "productName": product}
    told |= {key: inside.pop(key) for key in ("uuid", "parentUUID") if key in inside}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in told.items()},
        "capacity": {"memory": {"value": "183359Mi" if "B200" in product else "81559Mi"}},
        **inside,
    }


def slices(*devices: dict[str, Any], kind: str | None = "ResourceSlice") -> str:
    item: dict[str, Any] = {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1",
                                     "pool": {"generation": 1}, "devices": list(devices)}}  # fmt: skip
    if kind:
        item["kind"] = kind
    return json.dumps({"kind": "List" if kind else "ResourceSliceList", "items": [item]})


WHOLE = [device(f"gpu-{number}", "gpu", uuid=f"GPU-{number}") for number in range(4)]


def part(number: int, **inside: Any) -> dict[str, Any]:
    return device(f"gpu-{number}-mig-1g23gb-19-0", "mig", parentUUID=f"GPU-{number}", **inside)


def test_parts_that_could_be_made_take_nothing(tmp_path: Path) -> None:
    """After kubernetes-sigs/dra-driver-nvidia-gpu with dynamic MIG: each profile and place is a device with counters."""
    counters = [{"counterSet": "gpu-0-counter-set", "counters": {"memory": {"value": "22528Mi"}}}]
    abstract = [part(number, consumesCounters=counters) for number in range(4)]
    assert not found_in(tmp_path, "s.json", slices(*WHOLE, *abstract)).taken
    made = part(2, uuid="MIG-1", consumesCounters=counters)
    found = found_in(tmp_path, "s.json", slices(*WHOLE, *abstract, made))
    assert found.taken == {"r0g2": "n1: split by MIG"}
    found = found_in(tmp_path, "s.json", slices(*WHOLE[:3], *abstract))
    assert found.taken == {"r0g3": "n1: split by MIG"}


def test_gpus_kept_for_virtual_machines_are_taken(tmp_path: Path) -> None:
    passed_on = [device(f"gpu-vfio-{number}", "vfio", uuid=f"GPU-{number}") for number in (2, 3)]
    found = found_in(tmp_path, "s.json", slices(*WHOLE[:2], *passed_on))
    assert sizes(found) == [4]
    assert found.taken == {f"r0g{n}": "n1: kept for virtual machines" for n in (2, 3)}
    # offered in both ways: free until a virtual machine has it
    assert not found_in(tmp_path, "s.json", slices(*WHOLE, *passed_on)).taken


def test_several_kinds_in_one_node_are_refused(tmp_path: Path) -> None:
    other = device("gpu-4", "gpu", "NVIDIA H100 80GB HBM3", uuid="GPU-4")
    said = refusal(tmp_path, "s.json", slices(*WHOLE, other))
    assert "n1: several kinds of GPU in one host: NVIDIA B200, NVIDIA H100 80GB HBM3" in said
    assert "--hosts" in said


def test_items_of_a_typed_list_have_its_kind(tmp_path: Path) -> None:
    assert sizes(found_in(tmp_path, "s.json", slices(*WHOLE, kind=None))) == [4]

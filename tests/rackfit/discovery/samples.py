"""Listings of real machines, each written anew after a public one that is named beside it.

Products, counts, states, links and quirks of form are those found there; hosts, addresses and serial numbers are not.
What was counted there by hand stands in ``test_samples.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.rackfit.discovery import slurm_samples as slurm


def _gpu(product: str, **inside: str) -> str:
    parts = "".join(f"<{tag}>{text}</{tag}>" for tag, text in inside.items())
    return f"<gpu id='00000000:01:00.0'><product_name>{product}</product_name>{parts}</gpu>"


def _log(attached: int, *gpus: str) -> str:
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
    body = f"<attached_gpus>{attached}</attached_gpus>" + "".join(gpus)
    return f"{head}<nvidia_smi_log>{body}</nvidia_smi_log>"


def smi_h100() -> str:
    """After NVIDIA/aicr (Apache-2.0), pkg/collector/gpu/gpu.xml: eight H100, driver 570.86.15; reset fields deprecated."""
    old = "Requested functionality has been deprecated"
    health = "<bandwidth>N/A</bandwidth><route_unhealthy>N/A</route_unhealthy>"
    gpu = _gpu(
        "NVIDIA H100 80GB HBM3",
        mig_mode="<current_mig>Disabled</current_mig>",
        gpu_reset_status=f"<reset_required>{old}</reset_required>"
        f"<drain_and_reset_recommended>{old}</drain_and_reset_recommended>",
        gpu_recovery_action="None",
        fb_memory_usage="<total>81559 MiB</total>",
        fabric="<state>Completed</state><status>Success</status><cliqueId>0</cliqueId>"
        f"<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid><health>{health}</health>",
    )
    return _log(8, *[gpu] * 8)


def smi_mig() -> str:
    """After influxdata/telegraf (MIT), plugins/inputs/nvidia_smi/testdata/a100-sxm4-v12.xml: one of four GPUs, split."""
    return _log(4, _gpu(
        "NVIDIA A100-SXM4-80GB",
        mig_mode="<current_mig>Enabled</current_mig>",
        mig_devices="<mig_device><fb_memory_usage><total>19968 MiB</total></fb_memory_usage></mig_device>" * 4,
        gpu_reset_status="<reset_required>No</reset_required>",
        fb_memory_usage="<total>81920 MiB</total>",
        fabric="<state>N/A</state><status>N/A</status>",
    ))  # fmt: skip


def smi_fabric(state: str, **health: str) -> str:
    """After leptonai/gpud, pull requests 1108, 1140 and 1147: what drivers say of a fabric that is not there or unwell."""
    told = "".join(f"<{tag}>{text}</{tag}>" for tag, text in health.items())
    fabric = f"<state>{state}</state><status>Success</status><health>{told}</health>"
    memory = "<total>81559 MiB</total>"
    return _log(1, _gpu("NVIDIA H100 80GB HBM3", fb_memory_usage=memory, fabric=fabric))


def matrix(gpus: int, path: str, *, apart: int | None = None, tail: str = "0-55\t0\tN/A") -> str:
    """``nvidia-smi topo -m`` with one path between all pairs; GPU ``apart`` is reached over NODE."""
    rows = [
        "\t"
        + "\t".join(f"GPU{n}" for n in range(gpus))
        + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    ]
    for a in range(gpus):
        paths = [" X " if a == b else "NODE" if apart in (a, b) else path for b in range(gpus)]
        rows.append("\t".join([f"GPU{a}", *paths, tail]))
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n"  # fmt: skip


TOPO = {
    # after vllm-project/vllm, issue 16336: eight B200, GPU 2 without NVLink
    "b200.txt": matrix(8, "NV18", apart=2),
    # after NVIDIA/nccl, issue 1617: four H100 wired to each other, six links a pair
    "h100x4.txt": matrix(4, "NV6"),
    # after NVIDIA/nccl, issue 933: eight GPUs with eight links each on switches
    "nv8.txt": matrix(8, "NV8"),
    # after NVIDIA/nccl-tests, issue 78: sixteen V100 on switches
    "dgx2.txt": matrix(16, "NV6", tail="0-23,48-71"),
    # after NVIDIA/go-gpuallocator, issue 17: eight RTX 4090 without NVLink
    "cards.txt": matrix(8, "SYS"),
    # after sgl-project/sglang, issue 11208: a tray of GB200
    "tray.txt": matrix(4, "NV18", tail="0-71\t0,3-9,11-17\t2"),
}


def slices() -> str:
    """After NVIDIA/aicr (Apache-2.0), docs/conformance/cncf/evidence: two nodes of eight H100, devices out of order."""
    text = "apiVersion: v1\nitems:\n"
    for node, first in (("n1", 1), ("n2", 2)):
        text += f"""- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  spec:
    devices:
    - attributes: {{id: {{int: 0}}, type: {{string: daemon}}}}
      name: daemon-0
    driver: compute-domain.nvidia.com
    nodeName: {node}
    pool: {{generation: 1, name: {node}, resourceSliceCount: 1}}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  spec:
    devices:
"""
        for number in [(first + step) % 8 for step in range(8)]:
            text += f"""    - attributes:
        productName: {{string: NVIDIA H100 80GB HBM3}}
        type: {{string: gpu}}
        uuid: {{string: GPU-{node}-{number}}}
      capacity: {{memory: {{value: 81559Mi}}}}
      name: gpu-{number}
"""
        text += f"    driver: gpu.nvidia.com\n    nodeName: {node}\n    pool: {{generation: 1, name: {node}}}\n"
    return text + "kind: List\n"


def amd_slices() -> str:
    """After ROCm/k8s-gpu-dra-driver (Apache-2.0), docs/demo.md and pull request 21: whole MI300X, and one in two parts."""

    def device(name: str, kind: str, memory: str, **ids: str) -> dict[str, object]:
        told = {"productName": "AMD_Instinct_MI300X_OAM", "type": kind, **ids}
        return {"name": name, "attributes": {key: {"string": text} for key, text in told.items()},
                "capacity": {"memory": {"value": memory}}}  # fmt: skip

    whole = [device(f"gpu-{n}-{128 + n}", "amdgpu", "196592Mi", deviceID="0x740f") for n in (0, 8)]
    parts = [
        device(f"gpu-{n}-{128 + n}", "amdgpu-partition", "98296Mi", parentDeviceID="7066866330502360227")
        for n in (32, 40)
    ]  # fmt: skip
    spec = {
        "driver": "gpu.amd.com",
        "nodeName": "amd-1",
        "pool": {"generation": 1},
        "devices": whole + parts,
    }
    return json.dumps({"kind": "List", "items": [{"kind": "ResourceSlice", "spec": spec}]})


def mig_nodes() -> str:
    """After NVIDIA/cloud-native-docs (Apache-2.0), gpu-operator/gpu-operator-mig.rst and openshift/mig-ocp.rst.

    The node of the pages in its states, as four nodes: waiting to be split, each GPU in parts of one kind, in parts of
    several kinds, and eight GPUs in parts of several kinds.
    """

    def node(name: str, product: str, count: str, capacity: dict[str, str], **mig: str) -> object:
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": count}
        labels |= {f"nvidia.com/mig.{key.replace('_', '.')}": text for key, text in mig.items()}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": capacity, "allocatable": capacity, "conditions": ready}
        return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}

    whole, gpu = "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu"
    parts = {
        gpu: "0",
        "nvidia.com/mig-1g.10gb": "2",
        "nvidia.com/mig-2g.20gb": "1",
        "nvidia.com/mig-3g.40gb": "1",
    }
    eight = {
        gpu: "0",
        "nvidia.com/mig-1g.10gb": "16",
        "nvidia.com/mig-2g.20gb": "8",
        "nvidia.com/mig-3g.40gb": "8",
    }
    small, balanced = (
        {"strategy": "single", "config": "all-1g.10gb"},
        {"strategy": "mixed", "config": "all-balanced"},
    )
    return json.dumps({"kind": "List", "items": [
        node("a", whole, "1", {gpu: "1"}, config_state="pending", **small),
        node("b", f"{whole}-MIG-1g.10gb", "7", {gpu: "7"}, config_state="success", **small),
        node("c", whole, "1", parts, config_state="success", **balanced),
        node("d", whole, "8", eight, config_state="success", **balanced),
    ]})  # fmt: skip


def custom_mig() -> str:
    """After NVIDIA/gpu-operator, issue 1602: two of eight GPUs in parts, six whole."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "8",
              "nvidia.com/gpu.memory": "81920", "nvidia.com/mig.strategy": "mixed",
              "nvidia.com/mig.config": "2g-2g-2g-1g-and-4g-3g", "nvidia.com/mig.config.state": "success"}  # fmt: skip
    capacity = {"nvidia.com/gpu": "6", "nvidia.com/mig-2g.20gb": "3", "nvidia.com/mig-1g.10gb": "1",
                "nvidia.com/mig-4g.40gb": "1", "nvidia.com/mig-3g.40gb": "1"}  # fmt: skip
    status = {"capacity": capacity, "allocatable": capacity}
    return json.dumps({"kind": "Node", "metadata": {"name": "m1", "labels": labels}, "status": status})  # fmt: skip


# after NVIDIA/topograph (Apache-2.0), tests/ci/expected.slinky-dra-block.conf: twelve racks of eight hosts
BLOCKS = "".join(
    f"# rack{n}{half}=nvl-{n}-{half}\nBlockName=rack{n}{half} Nodes=srv[{n}{half}01-{n}{half}08]\n"
    for n in range(1, 7)
    for half in (1, 2)
) + "BlockSizes=8,16,32\n"  # fmt: skip
# after NVIDIA/topograph (Apache-2.0), tests/ci/expected.slinky-oci-sim-tree.conf: three levels, twelve leaves
TREE = "# switch.3.1=core\nSwitchName=switch.3.1 Switches=switch.2.[1-6]\n" + "".join(
    f"SwitchName=switch.2.{n} Switches=switch.1.[{2 * n - 1}-{2 * n}]\n" for n in range(1, 7)
) + "".join(
    f"# switch.1.{2 * n - 2 + half}=leaf-{n}-{half}\n"
    f"SwitchName=switch.1.{2 * n - 2 + half} Nodes=srv[{n}{half}01-{n}{half}08]\n"
    for n in range(1, 7)
    for half in (1, 2)
)  # fmt: skip
# after nebius/soperator, docs/topology.md: racks of one partition, a tree of the hosts without GPUs as the default
TOPOLOGY = """- topology: ib-gpu
  cluster_default: false
  block:
    block_sizes:
        - 4
        - 16
    blocks:
        - block: nvl0
          nodes: h100-[0-7]
        - block: nvl1
          nodes: h200-[0-7]
- topology: eth-cpu
  cluster_default: true
  tree:
    switches:
        - switch: root
          children: unknown
        - switch: unknown
          nodes: cpu-[0-31]
"""


def fabric() -> str:
    """After NVIDIA/topograph (Apache-2.0), tests/output/ibnetdiscover/example.out, cut down to two leaves.

    Hosts on both leaves and one on one, adapters that name no host, the fabric's manager, an aggregation node; leaves
    below two spines with two cables each.
    """
    ports = {
        "a1": ["dgx-c01 mlx5_5", "dgx-c02 HCA-6", "dgx-c03 HCA-6", "localhost HCA-6"],
        "a2": ["dgx-c01 mlx5_4", "dgx-c02 HCA-5", "MT4129 ConnectX7   Mellanox Technologies", "CUFM-02 mlx5_0"],
    }  # fmt: skip
    text = "#\n# Topology file: generated on Wed Aug  6 16:11:23 2025\n#\n# Initiated from node e09d port e09d\n"
    for leaf, names in ports.items():
        text += f'\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{leaf}\nswitchguid=0x{leaf}({leaf})\nSwitch\t65 "S-{leaf}"\t\t# "MF0;{leaf}-IBLEAF:MQM9701/U1" enhanced port 0 lid 73 lmc 0\n'
        for port, name in enumerate(names, 1):
            text += f'[{port}]\t"H-e{leaf}{port}"[1](e{leaf}{port}) \t\t# "{name}" lid 64 4xNDR\n'
        for port, spine in enumerate(["c1", "c1", "c2", "c2"], 35):
            text += f'[{port}]\t"S-{spine}"[{port}]\t\t# "MF0;{spine}-IBSPINE:MQM9701/U1" lid 236 4xNDR\n'
        text += f'[65]\t"H-f{leaf}"[1](f{leaf}) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xNDR\n'
    return text


def write(folder: Path) -> None:
    """Every listing as a file; those of nvidia-smi are named like their host."""
    files = {
        "slurm-mig.txt": slurm.SLURM_MIG, "slurm-oneline.txt": slurm.SLURM_ONELINE,
        "slurm-drained.txt": slurm.SLURM_DRAINED, "slurm-no-gpu.txt": slurm.SLURM_NO_GPU, "slurm-kinds.txt": slurm.SLURM_KINDS,
        "slurm-0040.json": slurm.JSON_0040, "slurmrestd-0037.txt": slurm.RESTD_0037,
        "h100.xml": smi_h100(), "mig.xml": smi_mig(), **TOPO, "slices.yaml": slices(), "amd.json": amd_slices(),
        "mig-nodes.json": mig_nodes(), "custom-mig.json": custom_mig(), "blocks.conf": BLOCKS, "tree.conf": TREE,
        "topology.yaml": TOPOLOGY, "ib.out": fabric(),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)

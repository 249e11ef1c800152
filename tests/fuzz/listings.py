"""Listings in the form that the tools print, small enough to be counted by hand.

Forms are those of Kubernetes 1.34 with GPU feature discovery and the DRA driver 25.8, GKE, Slurm 25.05,
nvidia-smi 535 to 580 and ibnetdiscover of rdma-core 50; hosts, addresses and states are made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import amd_listings
import slurm_listings
import table_listings
import text_listings


def node(
    name: str, labels: dict[str, str], resource: str, chips: int, free: int, **spec: Any
) -> dict[str, Any]:
    """One node of ``kubectl get nodes -o json``; ``ready`` says whether it is."""
    ready = "True" if spec.pop("ready", True) else "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"podCIDR": "10.0.0.0/24", **spec},
        "status": {
            "capacity": {"cpu": "192", "memory": "2113452Ki", resource: str(chips)},
            "allocatable": {"cpu": "191", "memory": "2113352Ki", resource: str(free)},
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletStopped"}],
        },
    }


def nodes(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=1)


H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": "8"}  # fmt: skip
GPU = "nvidia.com/gpu"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def hgx() -> str:
    """Four nodes of 8, one GPU not allocatable, one node cordoned, one kept for a team; one node without."""
    team = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    return nodes(
        node("control-1", {}, "pods", 110, 110),
        node("gpu-1", H100, GPU, 8, 8, taints=[TAINT]),
        node("gpu-2", H100, GPU, 8, 7),
        node("gpu-3", H100, GPU, 8, 8, unschedulable=True),
        node("gpu-10", H100, GPU, 8, 8, taints=[TAINT, team]),
    )


def racks() -> str:
    """Two NVLink cliques of GB200 trays: three trays, and two of which one is not ready."""

    def tray(name: str, clique: str, **spec: Any) -> dict[str, Any]:
        labels = {"nvidia.com/gpu.product": "NVIDIA-GB200", "nvidia.com/gpu.memory": "189471",
                  "nvidia.com/gpu.clique": f"8f3c1f5e-3a1b-4f6e-9c55-0d6a3e2b7c11.{clique}"}  # fmt: skip
        return node(name, labels, GPU, 4, 4, **spec)

    return nodes(
        tray("t1", "1"), tray("t2", "1"), tray("t3", "1"), tray("t4", "2"), tray("t5", "2", ready=False)
    )  # fmt: skip


def tpus() -> str:
    """A v5e slice of 4x4 on four nodes, one not ready, and two single nodes of 2x2."""

    def worker(name: str, pool: str, shape: str, **spec: Any) -> dict[str, Any]:
        labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                  "cloud.google.com/gke-tpu-topology": shape, "cloud.google.com/gke-nodepool": pool}  # fmt: skip
        return node(name, labels, "google.com/tpu", 4, 4, **spec)

    return nodes(
        *(worker(f"gke-a-{n}", "big", "4x4", ready=n != 2) for n in range(4)),
        *(worker(f"gke-b-{n}", "small", "2x2") for n in range(2)),
    )


def slices() -> str:
    """Eight H200 of one node: one tainted, one split by MIG and offered in two parts."""

    def gpu(number: int, **more: Any) -> dict[str, Any]:
        attributes = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{number:08d}"},
                      "productName": {"string": "NVIDIA H200"}}  # fmt: skip
        return {
            "name": f"gpu-{number}",
            "attributes": attributes,
            "capacity": {"memory": {"value": "143771Mi"}},
            **more,
        }

    def part(parent: int, start: int) -> dict[str, Any]:
        attributes = {"type": {"string": "mig"}, "parentUUID": {"string": f"GPU-{parent:08d}"},
                      "productName": {"string": "NVIDIA H200"}, "profile": {"string": "3g.71gb"}}  # fmt: skip
        return {"name": f"gpu-{parent}-mig-9-{start}-4", "attributes": attributes}

    taint = {"key": "gpu.nvidia.com/xid", "effect": "NoExecute"}
    devices = [gpu(n, **({"taints": [taint]} if n == 6 else {})) for n in (3, 4, 5, 6, 7, 0, 1)]

    def piece(name: str, driver: str, held: list[dict[str, Any]]) -> dict[str, Any]:
        spec = {
            "driver": driver,
            "nodeName": "dra-1",
            "pool": {"generation": 2, "name": "dra-1"},
            "devices": held,
        }
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": spec,
        }

    daemon = [{"name": "daemon-0", "attributes": {"type": {"string": "daemon"}}}]
    return nodes(
        piece("dra-1-compute-domain", "compute-domain.nvidia.com", daemon),
        piece("dra-1-gpu-1", "gpu.nvidia.com", devices),
        piece("dra-1-gpu-2", "gpu.nvidia.com", [part(2, 0), part(2, 4)]),
    )


BLOCKS = """# two racks
BlockName=b1 Nodes=t[1-3]
BlockName=b2 Nodes=t[04-05],t6
BlockSizes=2,4
"""

TREE = """SwitchName=leaf1 Nodes=gpu-[1-2]
SwitchName=leaf2 Nodes=gpu-3,gpu-10
SwitchName=leaf3 Nodes=login1
SwitchName=top Switches=leaf[1-3]
"""

TOPOLOGY = """- topology: racks
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: 't[1-3]'}
      - {block: b2, nodes: 't[4-5]'}
- topology: all
  tree:
    switches:
      - {switch: top, children: 'l[1-2]'}
      - {switch: l1, nodes: 't[1-3]'}
      - {switch: l2, nodes: 't[4-5]'}
- topology: none
  flat: true
"""

SCONTROL = """NodeName=cpu-1 Arch=x86_64 CoresPerSocket=32
   Gres=(null)
   State=IDLE ThreadsPerCore=2
   CfgTRES=cpu=64,mem=500G,billing=64

NodeName=gpu-1 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=0 CPUTot=224 CPULoad=0.10
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=gpu-1 NodeHostName=gpu-1 Version=25.05.1
   OS=Linux 6.8.0-57-generic #59-Ubuntu SMP PREEMPT_DYNAMIC
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A
   CfgTRES=cpu=224,mem=2000G,billing=224,gres/gpu=8,gres/gpu:h100=8
   AllocTRES=

NodeName=gpu-2 Arch=x86_64 CoresPerSocket=56
   Gres=gpu:h100:8(S:0-1)
   GresUsed=gpu:h100:3(IDX:0-1,5)
   State=MIXED ThreadsPerCore=2
   CfgTRES=cpu=224,mem=2000G,billing=224,gres/gpu=8,gres/gpu:h100=8
   AllocTRES=cpu=90,mem=700G,gres/gpu=3,gres/gpu:h100=3

NodeName=gpu-3 Arch=x86_64 CoresPerSocket=56
   Gres=gpu:h100:8(S:0-1)
   State=IDLE+DRAIN ThreadsPerCore=2
   CfgTRES=cpu=224,mem=2000G,billing=224,gres/gpu=8,gres/gpu:h100=8
   AllocTRES=
   Reason=GPU 3 fell off the bus [root@2026-11-02T10:01:02]

NodeName=gpu-10 Arch=x86_64 CoresPerSocket=56
   Gres=gpu:h100:8(S:0-1)
   State=MIXED ThreadsPerCore=2
   CfgTRES=cpu=224,mem=2000G,billing=224,gres/gpu=8,gres/gpu:h100=8
   AllocTRES=cpu=90,mem=700G,gres/gpu=2,gres/gpu:h100=2
"""


def smi_xml() -> str:
    """Eight H100: 1 needs a reset, 2 runs a process, 4 is lost, 5 is split by MIG, 7 has half its NVLink rate."""

    def gpu(number: int) -> str:
        reset = "Yes" if number == 1 else "No"
        name = "GPU is lost" if number == 4 else "NVIDIA H100 80GB HBM3"
        mig = "Enabled" if number == 5 else "Disabled"
        width = "Degraded" if number == 7 else "Full"
        limit = 500 if number == 0 else 700
        process = "<process_info><pid>9</pid><type>C</type></process_info>" if number == 2 else ""
        return f"""<gpu id="00000000:{number + 16:x}:00.0">
  <product_name>{name}</product_name><uuid>GPU-{number:032d}</uuid>
  <mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode>
  <gpu_reset_status><reset_required>{reset}</reset_required></gpu_reset_status>
  <fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
  <fabric><state>Completed</state><status>Success</status><cliqueId>0</cliqueId>
    <clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid><health><bandwidth>{width}</bandwidth></health></fabric>
  <gpu_power_readings><current_power_limit>{limit}.00 W</current_power_limit><default_power_limit>700.00 W</default_power_limit></gpu_power_readings>
  <processes>{process}</processes>
</gpu>"""

    body = "\n".join(gpu(number) for number in range(8))
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<timestamp>Mon Nov  2 10:00:00 2026</timestamp><driver_version>570.86.10</driver_version>
<attached_gpus>8</attached_gpus>
{body}
</nvidia_smi_log>
"""


def smi_topo(lost: int = 5) -> str:
    """Eight GPUs and two NICs; GPU ``lost`` has 16 of 18 links."""
    head = [
        "",
        *(f"GPU{n}" for n in range(8)),
        "NIC0",
        "NIC1",
        "CPU Affinity",
        "NUMA Affinity",
        "GPU NUMA ID",
    ]
    rows = [head]
    for a in range(8):
        paths = [" X " if a == b else "NV16" if lost in (a, b) else "NV18" for b in range(8)]
        rows.append([f"GPU{a}", *paths, "PXB", "SYS", "0-55,112-167", "0", "", "N/A"])
    rows.append(["NIC0", *["PXB"] * 8, " X ", "SYS"])
    return "\n".join("\t".join(row) for row in rows) + "\n\nLegend:\n\n  X    = Self\n"


def ibnet(ports: int = 2) -> str:
    """Two leaves under two spines; gpu-1 and gpu-2 on both with NDR, gpu-3 on one, a manager, an unnamed card."""
    leaves = {"a1": ["gpu-1", "gpu-2", "gpu-3"], "a2": ["gpu-1", "gpu-2"]}
    text = "#\n# Topology file: generated on Mon Nov  2 10:00:00 2026\n#\n"
    for leaf, hosts in leaves.items():
        text += f"\nvendid=0x2c9\ndevid=0xd2f2\nswitchguid=0x{leaf}00({leaf}00)\n"
        text += (
            f'Switch\t65 "S-{leaf}00"\t\t# "MF0;{leaf}:MQM9700/U1" enhanced port 0 lid 7 lmc 0\n'
        )
        for port, host in enumerate(hosts, 1):
            text += f'[{port}]\t"H-b{leaf}{port}"[1](b{leaf}{port}) \t\t# "{host} mlx5_{leaf[1]}" lid 64 4xNDR\n'
        text += f'[20]\t"H-c{leaf}"[1](c{leaf}) \t\t# "MT4129 ConnectX7   Mellanox Technologies" lid 65 4xNDR\n'
        text += f'[21]\t"H-d{leaf}"[1](d{leaf}) \t\t# "Mellanox Technologies Aggregation Node" lid 66 4xNDR\n'
        for port, spine in enumerate(("e1", "e2")[:ports], 31):
            text += f'[{port}]\t"S-{spine}00"[1]\t\t# "MF0;{spine}:MQM9700/U1" lid 2 4xNDR\n'
    return (
        text
        + 'vendid=0x2c9\ncaguid=0xba11\nCa\t1 "H-ba11"\t\t# "gpu-1 mlx5_1"\n[1](ba11) \t"S-a100"[1]\t\t# lid 64 lmc 0 "MF0;a1:MQM9700/U1" lid 7 4xNDR\n'
    )


def pools() -> str:
    """Two pools of TPUs, v6e of 4x4 on four nodes and single nodes of v5e; one pool of CPUs."""
    return json.dumps([
        {"name": "v6e", "config": {"machineType": "ct6e-standard-4t"}, "initialNodeCount": 4,
         "locations": ["us-east5-b"], "placementPolicy": {"tpuTopology": "4x4", "type": "COMPACT"}, "status": "RUNNING"},
        {"name": "one", "config": {"machineType": "ct5lp-hightpu-8t"}, "initialNodeCount": 2, "status": "RUNNING"},
        {"name": "cpu", "config": {"machineType": "e2-standard-8"}, "initialNodeCount": 3, "status": "RUNNING"},
    ])  # fmt: skip


def write(folder: Path) -> None:
    """Every listing as a file; those of nvidia-smi are named like their host."""
    files = {
        "nodes.json": hgx(), "racks.json": racks(), "tpus.json": tpus(), "slices.json": slices(),
        "blocks.conf": BLOCKS, "topology.conf": TREE, "topology.yaml": TOPOLOGY, "scontrol.txt": SCONTROL,
        "gpu-1.xml": smi_xml(), "gpu-1.txt": smi_topo(), "ibnet.out": ibnet(), "node-pools.json": pools(),
        "slurm.json": slurm_listings.scontrol(), **amd_listings.FILES, **text_listings.FILES, **table_listings.FILES,
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)

"""Tables between commas, links that are alive, and the dump of a whole cluster.

Forms: amd-smi of ROCm 6.2 and rocm_smi.py (MIT, ``flatten_dict`` and ``formatCsv`` say which keys are columns);
``nvidia-smi nvlink -s`` after Azure/azhpc-diagnostics, issue 73, NVIDIA/nccl-tests, issue 228, and NVIDIA/k8s-test-infra,
issue 371; ``--query-gpu`` after a table in kwai's and other public guides; markers of logs after kubectl's cluster-info dump.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


def table(head: str, *rows: str) -> str:
    return "\n".join([head, *rows]) + "\n"


def amd_csv(count: int = 8, used: Mapping[int, int] | None = None) -> str:
    """Eight MI300X of ``amd-smi static``, ``metric`` and ``process``: the memory of 5 is in use, a process is on 2."""
    static = table(
        "gpu,market_name,vendor_id,vendor_name,device_id,asic_serial,oam_id,bdf,type,vendor,size,bit_width",
        *(f'{n},AMD Instinct MI300X,0x1002,"Advanced Micro Devices, Inc. [AMD/ATI]",0x74a1,0x{n},{n},0000:{n:02x}:00.0,HBM,SAMSUNG,196592,8192'
          for n in range(count)),
    )  # fmt: skip
    memory = {5: 121344} if used is None else used
    metric = table(
        "gpu,gfx_activity,total_vram,used_vram,free_vram",
        *(f"{n},\"['N/A', 'N/A']\",196592,{memory.get(n, 283)},196309" for n in range(count)),
    )
    process = table(
        "gpu,process_info,name,pid",
        *(f"{n},N/A,python3,4123" if n == 2 else f"{n},No running processes detected,N/A,N/A" for n in range(count)),
    )  # fmt: skip
    return "\n".join(["", static, metric, process])


def rocm_csv(count: int = 8, apart: tuple[int, int] = (2, 7)) -> str:
    """Eight MI300X of ``rocm-smi --showproductname --showmeminfo vram --showtopo --csv``; one pair meets over PCIe."""
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    system = table("name, value", *(
        f'"(Topology) Link type between DRM devices {a} and {b}", "{"PCIE" if (a, b) == apart else "XGMI"}"' for a, b in pairs
    ))  # fmt: skip
    cards = table(
        "device,Card Series,Card Model,VRAM Total Memory (B),VRAM Total Used Memory (B)",
        *(f"card{n},AMD Instinct MI300X,0x74a1,206141652992,297611264" for n in range(count)),
    )
    return f"{system}\n{cards}"


def nvlink(
    name: str = "NVIDIA GB200", count: int = 4, links: int = 18, rate: float = 53.125,
    dead: Mapping[int, tuple[int, ...]] | None = None,
) -> str:  # fmt: skip
    """Four GB200, two links of GPU 2 dead."""
    gone = {2: (3, 4)} if dead is None else dead
    return "".join(
        f"GPU {n}: {name} (UUID: GPU-d1b93026-6d5b-03bd-3a71-f85b47a61b{n:02d})\n"
        + "".join(f"\t Link {k}: {'<inactive>' if k in gone.get(n, ()) else f'{rate:g} GB/s'}\n" for k in range(links))
        for n in range(count)
    )  # fmt: skip


def query() -> str:
    """Four H100: the memory of 1 is in use, 2 is lost, 3 has rows that could not be remapped."""
    head = "index, name, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], remapped_rows.failure"
    rows = [
        f"{n}, NVIDIA H100 80GB HBM3, GPU-{n}, 81559 MiB, {13928 if n == 1 else 4} MiB, 0 %, {'Yes' if n == 3 else 'No'}"
        for n in range(4)
    ]
    rows[2] = (
        "2, NVIDIA H100 80GB HBM3, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]"
    )
    return table(head, *rows)


def pod(
    name: str, node: str, chips: int, phase: str = "Running", **spec: object
) -> dict[str, object]:
    """A pod that asks for chips."""
    held = {"resources": {"limits": {"nvidia.com/gpu": str(chips)}, "requests": {"cpu": "500m"}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node, "containers": [held], **spec}, "status": {"phase": phase}}  # fmt: skip


def dump() -> str:
    """Two nodes of eight H100 whose pods ask for two chips of one, and what a container has logged between."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    held = {"cpu": "192", "nvidia.com/gpu": "8"}
    ready = {
        "capacity": held,
        "allocatable": held,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    nodes = [
        {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": ready}
        for name in ("n1", "n2")
    ]
    pods = [
        pod("server", "n1", 2),
        pod("done", "n1", 4, "Succeeded"),
        pod("gone", "n3", 8),
        pod("plain", "n2", 0),
    ]
    return "\n".join([
        json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": nodes}, indent=4),
        json.dumps({"kind": "EventList", "apiVersion": "v1", "items": []}, indent=4),
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": pods}, indent=4),
        "==== START logs for container main of pod default/server ====",
        'started {"kind": "Node"',
        "==== END logs for container main of pod default/server ====",
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": []}, indent=4), "",
    ])  # fmt: skip


FILES = {"amd-4.csv": amd_csv(), "amd-5.csv": rocm_csv(), "links-1.txt": nvlink(), "query-1.csv": query(), "dump.json": dump()}  # fmt: skip

"""Listings of Slurm nodes (``scontrol show node``, also as JSON), written anew as those of ``samples``."""

from __future__ import annotations

import json
from typing import Any

# after a node of the University of British Columbia in the tests of a public queue tool (September 2026): four whole
# B200 and twelve parts of MIG, no GRES line
SLURM_MIG = """NodeName=nv2 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=156 CPUTot=224 CPULoad=21.17
   State=MIXED+PLANNED ThreadsPerCore=2
   CfgTRES=cpu=224,mem=2060000M,billing=448,gres/gpu=16,gres/gpu:nvidia_b200=4,gres/gpu:nvidia_b200_2g.45gb=8,gres/gpu:nvidia_b200_3g.90gb=4
   AllocTRES=cpu=156,mem=1186G,gres/gpu=13,gres/gpu:nvidia_b200=1,gres/gpu:nvidia_b200_2g.45gb=8,gres/gpu:nvidia_b200_3g.90gb=4
"""
# after samggreenberg/VTSearch, tests of scripts/slurm/pick_gpu.py: two nodes of a Slurm 23.11 cluster that writes no
# GresUsed, one line each; four A100 in use, eight idle V100
SLURM_ONELINE = (
    "NodeName=r5n06 Arch=x86_64 CoresPerSocket=24  CPUAlloc=32 CPUTot=96 AvailableFeatures=a100,intel,40gb "
    "Gres=gpu:a100:4 Version=23.11.6 OS=Linux 5.14.0 #1 SMP Tue Jun 2 State=MIXED ThreadsPerCore=2 Owner=N/A "
    "CfgTRES=cpu=96,mem=750000M,billing=1950,gres/gpu=4,gres/gpu:a100=4 "
    "AllocTRES=cpu=32,mem=384G,gres/gpu=4,gres/gpu:a100=4 CapWatts=n/a\n"
    "NodeName=r10n01 Arch=x86_64 CoresPerSocket=20 Gres=gpu:v100:8 Version=23.11.6 State=IDLE ThreadsPerCore=2 "
    "CfgTRES=cpu=80,mem=1000000M,billing=3208,gres/gpu=8,gres/gpu:v100=8 AllocTRES= CapWatts=n/a\n"
)
# after awslabs/awsome-distributed-ai, issue 195: drained, with a card that the catalogue lacks
SLURM_DRAINED = """NodeName=dev-68 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.99
   Gres=gpu:nvidia-rtx-3090:1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0
   CfgTRES=cpu=8,mem=1M,billing=8,gres/gpu=1
   AllocTRES=
   Reason=gres/gpu count reported lower than configured (0 < 1) [slurm@2024-12-19T11:03:34]
"""
# after radiasoft/sirepo, issue 2136: no GPU at all
SLURM_NO_GPU = """NodeName=localhost Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUTot=2 CPULoad=0.21
   Gres=(null)
   State=DOWN ThreadsPerCore=1 TmpDisk=0
"""
# after the comments of a public node lister: three kinds of GPU in one node, beside an ordinary node
SLURM_KINDS = """NodeName=mixed-1 Arch=x86_64
   Gres=gpu:rtx4000:4,gpu:rtx8000:2,gpu:v100:2
   State=MIXED ThreadsPerCore=2
   CfgTRES=cpu=36,mem=1505G,billing=36,gres/gpu=8,gres/gpu:rtx4000=4,gres/gpu:rtx8000=2,gres/gpu:v100=2
   AllocTRES=cpu=15,mem=450G,gres/gpu=5,gres/gpu:rtx4000=2,gres/gpu:rtx8000=2,gres/gpu:v100=1

NodeName=gpu-1 Arch=x86_64
   Gres=gpu:v100:4
   State=IDLE ThreadsPerCore=2
   CfgTRES=cpu=36,mem=1505G,gres/gpu=4,gres/gpu:v100=4
   AllocTRES=
"""


def _node(
    name: str, state: Any, gres: str, used: str, tres: str = "", tres_used: Any = "", **told: Any
) -> dict[str, Any]:
    return {"name": name, "state": state, "gres": gres, "gres_used": used, "gres_drained": "N/A", "tres": tres,
            "tres_used": tres_used, "reason": "", **told}  # fmt: skip


# after lcrownover/prometheus-slurm-exporter (GPL-3.0), testdata/V0040OpenapiNodesResp.json, a cluster of Slurm 23.11:
# seven of its twelve nodes have GPUs, three of these parts of MIG alone, two are drained
JSON_0040 = json.dumps({"nodes": [
    _node("c1", ["ALLOCATED"], "", "", "cpu=40,mem=192000M,billing=40", "cpu=40,mem=190G"),
    _node("pcie1", ["ALLOCATED"], "gpu:nvidia_a100_80gb_pcie:1(S:1)", "gpu:nvidia_a100_80gb_pcie:1(IDX:0)",
          "cpu=48,mem=246385M,billing=48,gres/gpu=1", "cpu=48,mem=238G,gres/gpu=1"),
    _node("part1", ["ALLOCATED"], "gpu:1g.10gb:21(S:1)", "gpu:1g.10gb:1(IDX:0)", "cpu=48,mem=504433M,gres/gpu=21",
          "cpu=48,mem=228G,gres/gpu=1"),
    _node("part2", ["MIXED"], "gpu:1g.10gb:21(S:1)", "gpu:1g.10gb:9(IDX:0-3,5-9)", "cpu=48,gres/gpu=21"),
    _node("part3", ["ALLOCATED"], "gpu:1g.10gb:21(S:1)", "gpu:1g.10gb:5(IDX:0-4)", "cpu=48,gres/gpu=21"),
    _node("pcie2", ["IDLE", "DRAIN"], "gpu:nvidia_a100_80gb_pcie:3(S:1)", "gpu:nvidia_a100_80gb_pcie:0(IDX:N/A)",
          "cpu=48,mem=504433M,billing=48,gres/gpu=3", reason="Kill task failed"),
    _node("sxm1", ["IDLE", "DRAIN"], "gpu:nvidia_h100_80gb_hbm3:4(S:0-1)", "gpu:nvidia_h100_80gb_hbm3:0(IDX:N/A)",
          "cpu=48,gres/gpu=4", reason="gpu_board"),
    _node("sxm2", ["MIXED"], "gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", "gpu:nvidia_h100_80gb_hbm3:0(IDX:N/A)",
          "cpu=112,gres/gpu=8", "cpu=96,mem=600000M"),
], "last_update": {"set": True, "infinite": False, "number": 1}, "errors": [], "warnings": []})  # fmt: skip

# after 2maz/slurm-monitor (BSD-3-Clause), tests/mock/slurmrestd.response.nodes: Slurm 21.08, a state of one word beside
# flags, the log and the head of the answer above the JSON; a node without kind, MI210 in use, nodes without GPUs
RESTD_0037 = "slurmrestd: operations_router: [fd:0->/dev/pts/7] GET /slurm/v0.0.37/nodes\nHTTP/1.1 200 OK\n" \
    "Content-Type: application/json\n\n" + json.dumps({"meta": {"plugin": {"type": "openapi/v0.0.37"}}, "errors": [], "nodes": [
        _node("dgx1", "mixed", "gpu:tesla:16", "gpu:tesla:8(IDX:0-7)", "cpu=96,gres/gpu=16", "cpu=6,gres/gpu=8", state_flags=[]),
        _node("dgx2", "mixed", "gpu:a100:8", "gpu:a100:8(IDX:0-7)", "cpu=256,gres/gpu=8", "cpu=49,gres/gpu=8", state_flags=[]),
        _node("x1", "idle", "gpu:1", "gpu:0", "cpu=64,gres/gpu=1", None, state_flags=["DRAIN"]),
        _node("x2", "mixed", "gpu:mi210:2", "gpu:mi210:1(IDX:0)", "cpu=256,gres/gpu=2", "cpu=4,gres/gpu=1", state_flags=[]),
        _node("login1", "down", "", "gpu:0,fpga:0", "cpu=8,mem=1M", None, state_flags=["NOT_RESPONDING"]),
    ]}, indent=1)  # fmt: skip

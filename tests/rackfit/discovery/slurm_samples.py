"""Listings of Slurm nodes (``scontrol show node``), written anew as those of ``samples``."""

from __future__ import annotations

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

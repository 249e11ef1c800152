"""Listings as people read them: ``nvidia-smi -q`` and ``kubectl describe nodes``."""

from __future__ import annotations

GPU = """GPU 00000000:{bus:02X}:00.0
    Product Name                          : {product}
    MIG Mode
        Current                           : {mig}
        Pending                           : {mig}
    GPU Reset Status
        Reset Required                    : No
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 1 MiB
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : {failure}
    Fabric
        State                             : {state}
        Status                            : Success
        CliqueId                          : 0
        ClusterUUID                       : 00000000-0000-0000-0000-000000000000
        Health
            Bandwidth                     : N/A
{processes}
"""
NONE = "    Processes                             : None"
SOME = """    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4123
            Type                          : C
            Name                          : python3"""
DESCRIBED = """Name:               {name}
Labels:             kubernetes.io/hostname={name}
                    nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3
Taints:             nvidia.com/gpu=present:NoSchedule
Unschedulable:      {cordoned}
Conditions:
  Type    Status  LastHeartbeatTime                 LastTransitionTime                Reason        Message
  ----    ------  -----------------                 ------------------                ------        -------
  Ready   True    Thu, 17 Mar 2025 10:16:37 +0100   Thu, 17 Mar 2025 10:12:47 +0100   KubeletReady  ready
Capacity:
  cpu:             128
  nvidia.com/gpu:  8
Allocatable:
  cpu:             127
  nvidia.com/gpu:  {free}
Allocated resources:
  Resource        Requests    Limits
  --------        --------    ------
  cpu             850m (21%)  0 (0%)
  nvidia.com/gpu  {used}           {used}
Events:           <none>
"""


def smi_text() -> str:
    """Four H100: 1 runs a process, 2 has rows that could not be remapped, 3 is split by MIG."""
    usual = {"product": "NVIDIA H100 80GB HBM3", "mig": "Disabled", "failure": "No", "state": "Completed", "processes": NONE}  # fmt: skip
    told = [{}, {"processes": SOME}, {"failure": "Yes"}, {"mig": "Enabled"}]
    gpus = "".join(GPU.format(bus=16 + n, **{**usual, **more}) for n, more in enumerate(told))
    head = "==============NVSMI LOG==============\n\nDriver Version                            : 570.86.10\n\n"
    return f"{head}Attached GPUs                             : 4\n{gpus}"


def described() -> str:
    """Two nodes of eight H100: one with two chips in use and one that is not allocatable, one cordoned."""
    nodes = [("n1", "false", 7, 2), ("n2", "true", 8, 0)]
    return "\n".join(
        DESCRIBED.format(name=name, cordoned=cordoned, free=free, used=used)
        for name, cordoned, free, used in nodes
    )


FILES = {"smi-1.txt": smi_text(), "described.txt": described()}

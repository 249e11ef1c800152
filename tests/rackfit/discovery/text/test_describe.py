"""``kubectl describe nodes`` tells what the nodes' JSON tells, and which chips pods have asked for.

Form and columns are those of NVIDIA/gpu-operator, issue 209, kubernetes/kubectl, issue 938, and NVIDIA/k8s-device-plugin,
issues 721 and 990; names and addresses are not.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes

NODE = """Name:               {name}
Roles:              <none>
Labels:             beta.kubernetes.io/arch=amd64
                    kubernetes.io/hostname={name}
                    node-role.kubernetes.io/worker=
                    {labels}
Annotations:        csi.volume.kubernetes.io/nodeid: {{"csi.tigera.io":"{name}"}}
                    node.alpha.kubernetes.io/ttl: 0
CreationTimestamp:  Thu, 17 Mar 2025 10:11:37 +0100
Taints:             {taints}
Unschedulable:      {cordoned}
Lease:
  HolderIdentity:  {name}
  AcquireTime:     <unset>
  RenewTime:       Thu, 17 Mar 2025 10:17:39 +0100
Conditions:
  Type                 Status  LastHeartbeatTime                 LastTransitionTime                Reason                       Message
  ----                 ------  -----------------                 ------------------                ------                       -------
  NetworkUnavailable   False   Wed, 09 Oct 2025 09:41:27 +0900   Wed, 09 Oct 2025 09:41:27 +0900   CalicoIsUp                   Calico is running on this node
  Ready                {ready}    Thu, 17 Mar 2025 10:16:37 +0100   Thu, 17 Mar 2025 10:12:47 +0100   {reason}                 kubelet says so
Addresses:
  InternalIP:   10.0.0.1
  Hostname:     {name}
Capacity:
  cpu:                128
  ephemeral-storage:  14625108Ki
  memory:             1056410708Ki
  nvidia.com/gpu:     {gpus}
  pods:               110
Allocatable:
  cpu:                128
  memory:             1056410708Ki
  nvidia.com/gpu:     {free}
  pods:               110
System Info:
  Machine ID:                 f7b72f135bcc4a0195cd924d62fd6437
  Kubelet Version:            v1.33.1
Non-terminated Pods:          (1 in total)
  Namespace                   Name                 CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age
  ---------                   ----                 ------------  ----------  ---------------  -------------  ---
  default                     sglang-0             8 (6%)        0 (0%)      0 (0%)           0 (0%)         7d8h
Allocated resources:
  (Total limits may be over 100 percent, i.e., overcommitted.)
  Resource           Requests    Limits
  --------           --------    ------
  cpu                850m (21%)  0 (0%)
  ephemeral-storage  0 (0%)      0 (0%)
  nvidia.com/gpu     {used}           {used}
Events:              <none>
"""
LABELS = "\n                    ".join(
    ("nvidia.com/gpu.count=8", "nvidia.com/gpu.memory=81559", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3")
)  # fmt: skip
USUAL = {
    "labels": LABELS, "taints": "nvidia.com/gpu=present:NoSchedule", "cordoned": "false", "ready": "True",
    "reason": "KubeletReady", "gpus": "8", "free": "8", "used": "0",
}  # fmt: skip


def node(name: str, **more: str) -> str:
    return NODE.format(name=name, **{**USUAL, **more})


#: four nodes of eight H100: one with a chip that is not allocatable and three in use, one cordoned, one not ready
FOUR = "\n\n".join(
    (
        node("gpu-1"),
        node("gpu-2", free="7", used="3"),
        node("gpu-3", cordoned="true", taints="node.kubernetes.io/unschedulable:NoSchedule"),
        node("gpu-4", ready="Unknown", reason="NodeStatusUnknown"),
        node("cpu-1", labels="a=b", gpus="0", free="0"),
    )
)
AROUND = [
    FOUR,
    "$ kubectl describe nodes\n" + FOUR + "\n$ date\nmon: 3\n",
    textwrap.indent(FOUR, "    "),
    FOUR.replace("\n", "\r\n"),
]


@pytest.mark.parametrize("text", AROUND)
def test_nodes_are_as_their_words_say(text: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, "n.txt", text)
    assert sizes(found) == [8] * 4
    assert found.failed == {
        "r1g7": "gpu-2: not allocatable",
        "r2": "gpu-3: cordoned",
        "r3": "gpu-4: not ready: NodeStatusUnknown",
    }
    assert found.taken == {f"r1g{chip}": "gpu-2: requested by pods" for chip in (4, 5, 6)}
    assert any("1 nodes without accelerators" in note for note in found.notes)
    assert found.data["domains"][0]["chips"][0]["chip"] == "h100"


def test_another_taint_keeps_the_host_for_others(tmp_path: Path) -> None:
    taints = "nvidia.com/gpu:NoSchedule\n                    team=vision:NoExecute"
    found = found_in(tmp_path, "n.txt", node("gpu-1", taints=taints))
    assert set(found.taken.values()) == {"gpu-1: taint team=vision"}
    assert not found_in(tmp_path, "n.txt", node("gpu-1", taints="<none>")).taken


def test_requests_of_shares_are_no_chips(tmp_path: Path) -> None:
    found = found_in(tmp_path, "n.txt", node("gpu-1", gpus="32", free="32", used="9"))
    assert (sizes(found), found.taken) == ([8], {})


def test_a_node_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, "n.txt", FOUR + node("gpu-5").partition("Allocated")[0])
    assert "gpu-5: no Allocated resources; the file seems cut off" in said


def test_who_may_not_list_pods_learns_no_requests(tmp_path: Path) -> None:
    text = node("gpu-1", used="3").partition("Non-terminated")[0] + "Pods: not authorized\n"
    assert not found_in(tmp_path, "n.txt", text).taken


def test_a_wrong_number_is_named_with_its_node(tmp_path: Path) -> None:
    said = refusal(tmp_path, "n.txt", node("gpu-1", gpus="eight"))
    assert "gpu-1: nvidia.com/gpu: expected a number of chips, got eight" in said

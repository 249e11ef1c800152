"""What runs on nodes of Kubernetes: where no file tells it, that is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackfit.discovery.discover import Discovered, discover
from tests.rackfit.discovery.kubernetes.test_kubernetes import listed, node

LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
GPUS = {"nvidia.com/gpu": "8"}
DESCRIBED = """Name:               n1
Labels:             nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3
                    nvidia.com/gpu.count=8
Conditions:
  Type   Status  LastHeartbeatTime  LastTransitionTime  Reason        Message
  Ready  True    Mon                Mon                 KubeletReady  kubelet
Capacity:
  nvidia.com/gpu:  8
Allocatable:
  nvidia.com/gpu:  8
"""
ALLOCATED = """Allocated resources:
  Resource        Requests  Limits
  nvidia.com/gpu  2         2
"""
#: who may not list pods is told so
FORBIDDEN = (
    'Pods:               not authorized: pods is forbidden: User "me" cannot list resource "pods"\n'
)


def pod(gpus: str, host: str = "n1") -> Any:
    """A pod of a namespace of its own that runs on a host."""
    container = {"resources": {"requests": {"nvidia.com/gpu": gpus}}}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "mine"},
        "spec": {"nodeName": host, "containers": [container]},
        "status": {"phase": "Running"},
    }


def slices(host: str) -> str:
    """Resource slices of a host of eight GPUs."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{number}"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
        }
        for number in range(8)
    ]
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": host,
        "pool": {"name": host},
        "devices": devices,
    }
    return listed({"kind": "ResourceSlice", "metadata": {"name": host}, "spec": spec})


def said(found: Discovered) -> list[str]:
    """What is assumed of pods."""
    return [word for word in found.assumed if word.startswith("no pods are told of ")]


NODES = listed(node(LABELS, GPUS), node(LABELS, GPUS, "n2"))
#: files by name, chips in use, of how many hosts nothing is told
FILES: dict[str, tuple[dict[str, str], int, int]] = {
    "nodes alone": ({"nodes.json": NODES}, 0, 2),
    "slices alone": ({"slices.json": slices("n1")}, 0, 1),
    "with pods": ({"all.json": listed(*json.loads(NODES)["items"], pod("3"))}, 3, 0),
    "described": ({"described.txt": DESCRIBED + ALLOCATED}, 2, 0),
    "described to who may not list pods": ({"described.txt": DESCRIBED + FORBIDDEN}, 0, 1),
    "one of two is described": ({"nodes.json": NODES, "n1.txt": DESCRIBED + ALLOCATED}, 2, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_chips_that_nobody_tells_to_be_in_use_are_said_to_count_as_free(
    case: str, tmp_path: Path
) -> None:
    files, used, untold = FILES[case]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in files]
    found = discover(paths)
    assert len(found.taken) == used
    if untold:
        (word,) = said(found)
        assert word.startswith(
            f"no pods are told of {untold} of {len(found.cluster.domains)} hosts"
        )
        assert (
            "count as free (kubectl describe nodes, or kubectl get nodes,pods -A -o json," in word
        )
        assert f"assumed: {word}" in found.data["notes"]
    else:
        assert said(found) == []
    assert said(discover(paths, free=True)) == []  # asked for, not assumed

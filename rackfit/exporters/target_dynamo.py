"""``dynamo``: a DynamoGraphDeployment of SGLang workers, with expert maps as config maps.

``resources.limits.gpu`` is per pod and ``nodeCount`` pods make a worker, so that replicas x nodeCount x
gpu adds up to the chips of the layout. A worker of several pods is kept in its rack
(``packDomain: rack``); the scheduler chooses which rack and which devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replay.router import AHEAD
from rackfit.exporters import target_sglang
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.options import option_table
from rackfit.exporters.launch.routers import QUEUE, holds_back
from rackfit.quoting import yaml_text
from topology.errors import on_command_line

NAME = "dynamo"
ENGINE = "sglang"
LAUNCHES = True
#: services of one resource, its frontend among them
_MOST_SERVICES = 25
SUMMARY = "Kubernetes manifest for NVIDIA Dynamo (SGLang workers)"


@dataclass(frozen=True)
class Worker:
    """Replicas that differ only in where they lie."""

    name: str
    servers: tuple[Server, ...]
    words: tuple[str, ...]
    environment: dict[str, str]
    map_file: str | None

    @property
    def pods(self) -> int:
        """Pods of one replica."""
        return len(self.servers[0].launchers)

    @property
    def gpus(self) -> int:
        """GPUs of one pod."""
        return len(self.servers[0].launchers[0].places)


def limits(deployment: Deployment) -> list[Limit]:
    """Those of SGLang, and the services that the resource takes."""
    found = target_sglang.limits(deployment)
    kinds = 0 if found else len(workers(deployment, {}))
    if kinds >= _MOST_SERVICES:
        message = (
            f"{kinds} kinds of workers and a frontend; the resource takes {_MOST_SERVICES} services"
        )
        found.append(Limit("services", message, False))
    return found


def approximate(instance: Instance, layout: Layout) -> Layout:
    """As for SGLang."""
    return target_sglang.approximate(instance, layout)


def notes(deployment: Deployment) -> list[str]:
    """What a cluster administrator has to provide."""
    found = target_sglang.engine_notes(deployment)
    found.append(deployment.context_note("--context-length"))
    if any(len(server.launchers) > 1 for server in deployment.servers):
        found.append(
            f"workers of several pods need the ClusterTopology {deployment.options.topology_profile!r}"
            " with the level rack (and block), and multi-node NVLink a ComputeDomain"
        )
    options = deployment.options
    if _volume(deployment):
        found.append(
            f"the volume claim {options.weights_claim!r} holds the weights ({options.model_path} in its pods)"
            + on_command_line("; --weights-claim names yours")
        )
    if options.rdma_resource and _needs_rdma(deployment):
        found.append(
            f"workers ask for {options.rdma_resource}, one for each GPU"
            + on_command_line("; --rdma-resource names what your cluster calls it")
        )
    if deployment.disaggregated:
        found.append(
            "KV goes over NICs from pod to pod, also inside a scale-up domain: Kubernetes keeps NVLink from "
            "joining pods of one host"
        )
    if holds_back(deployment):
        found.append(
            "the frontend sends the shortest waiting prompt on first, while workers have fewer than "
            f"{AHEAD} passes of prompts: it counts a pass by the max_num_batched_tokens that a worker publishes, which has to be "
            f"{deployment.instance.limits.prefill_chunk_tokens:,} tokens of an attention rank; {QUEUE[0]} needs Dynamo 1.2 or later"
        )
    label = option_table(deployment.engine_name).version
    found.append(f"options are those of {label}: the image must hold it or a later version")
    if "REGISTRY" in deployment.options.image:
        found.append(
            on_command_line("give the container image with --image", "put in the container image")
        )
    return found


def render(deployment: Deployment) -> dict[str, str]:
    """``deployment.yaml``: config maps and the graph deployment."""
    maps: dict[str, str] = {}
    found = workers(deployment, maps)
    documents = [_config_map(deployment, name, text) for name, text in sorted(maps.items())]
    documents.append(_graph(deployment, found))
    return {"deployment.yaml": yaml_text(documents, width=4096)}


def workers(deployment: Deployment, maps: dict[str, str]) -> list[Worker]:
    """Servers grouped by everything but their place; ``maps`` receives the expert files."""
    groups: dict[object, list[Server]] = {}
    parts: dict[object, tuple[list[str], dict[str, str], str | None]] = {}
    for server in deployment.servers:
        files: dict[str, str] = {}
        words, environment = target_sglang.engine_words(deployment, server, files)
        words = _without(words, "--disaggregation-bootstrap-port")
        file = next(iter(files), None)
        words = [f"/rackfit/{word}" if word == file else word for word in words]
        maps.update(files)
        several = len(server.racks) > 1
        key = (tuple(words), tuple(environment.items()), len(server.launchers), several)
        groups.setdefault(key, []).append(server)
        parts[key] = (words, environment, file)
    result, seen = [], dict.fromkeys(("prefill", "decode", "mixed"), 0)
    for group, servers in groups.items():
        role = servers[0].role
        words, environment, file = parts[group]
        name = f"{role}{seen[role]}"
        seen[role] += 1
        result.append(Worker(name, tuple(servers), tuple(words), environment, file))
    return result


def _without(words: list[str], name: str) -> list[str]:
    if name not in words:
        return words
    at = words.index(name)
    return words[:at] + words[at + 2 :]


def _graph(deployment: Deployment, found: list[Worker]) -> dict[str, Any]:
    name = object_name(f"{deployment.instance.model.name}-rackfit")
    services: dict[str, Any] = {
        "Frontend": {
            "componentType": "frontend",
            "replicas": 1,
            **_volume(deployment),
            "extraPodSpec": {
                "mainContainer": {
                    "image": deployment.options.image,
                    "command": ["python3", "-m", "dynamo.frontend"],
                    "args": ["--http-port", "8000", *(QUEUE if holds_back(deployment) else ())],
                }
            },
        }
    }
    for worker in found:
        services[worker.name] = _service(deployment, worker)
    spec: dict[str, Any] = {"backendFramework": "sglang", "services": services}
    if _volume(deployment):
        spec["pvcs"] = [{"name": deployment.options.weights_claim}]
    if any(worker.pods > 1 for worker in found):
        spec["topologyConstraint"] = {"topologyProfile": deployment.options.topology_profile}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name, "namespace": deployment.options.namespace},
        "spec": spec,
    }


def _volume(deployment: Deployment) -> dict[str, Any]:
    """Where a service sees the weights; nothing for a model that is named and not a path."""
    folder = PurePosixPath(deployment.options.model_path).parent
    if not folder.is_absolute() or folder == PurePosixPath("/"):
        return {}
    mount = {"name": deployment.options.weights_claim, "mountPoint": str(folder)}
    return {"volumeMounts": [mount]}


def _needs_rdma(deployment: Deployment) -> bool:
    """Whether pods send each other KV or activations."""
    return deployment.disaggregated or any(
        len(server.launchers) > 1 for server in deployment.servers
    )


def _service(deployment: Deployment, worker: Worker) -> dict[str, Any]:
    role = worker.servers[0].role
    container: dict[str, Any] = {
        "image": deployment.options.image,
        "command": ["python3", "-m", "dynamo.sglang"],
        # prefill pods are asked for KV at SGLang's own server, which listens to its own host unless told
        "args": [*worker.words, "--host", "0.0.0.0"],
    }
    pod: dict[str, Any] = {"mainContainer": container}
    if worker.map_file is not None:
        container["volumeMounts"] = [{"name": "experts", "mountPath": "/rackfit"}]
        config = {"name": object_name(worker.map_file)}
        pod["volumes"] = [{"name": "experts", "configMap": config}]
    service: dict[str, Any] = {
        "componentType": "worker",
        "replicas": len(worker.servers),
        "resources": {"limits": {"gpu": str(worker.gpus)}},
        "sharedMemory": {"size": "80Gi"},
        **_volume(deployment),
    }
    rdma = deployment.options.rdma_resource
    if rdma and _needs_rdma(deployment):
        service["resources"]["limits"]["custom"] = {rdma: str(worker.gpus)}
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    if role != "mixed":
        service["subComponentType"] = role
    if worker.environment:
        service["envs"] = [{"name": k, "value": v} for k, v in worker.environment.items()]
    if worker.pods > 1:
        service["multinode"] = {"nodeCount": worker.pods}
        several = any(len(server.racks) > 1 for server in worker.servers)
        service["topologyConstraint"] = {"packDomain": "block" if several else "rack"}
    service["extraPodSpec"] = pod
    return service


def _config_map(deployment: Deployment, name: str, text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": object_name(name), "namespace": deployment.options.namespace},
        "data": {name: text},
    }


def object_name(text: str) -> str:
    """A Kubernetes object name: lower-case letters, digits and hyphens, at most 63."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    return cleaned[:63].rstrip("-") or "rackfit"

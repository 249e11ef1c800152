"""``dynamo``: a DynamoGraphDeployment of SGLang workers, with expert maps as config maps.

``resources.limits.gpu`` is per pod and ``nodeCount`` pods make a worker, so that replicas x nodeCount x
gpu adds up to the chips of the layout. A worker of several pods is kept in its rack
(``packDomain: rack``); the scheduler chooses which rack and which devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.exporters import target_sglang
from rackfit.exporters.deployment import Deployment, Server
from rackfit.exporters.registry import Limit
from rackfit.quoting import yaml_text

NAME = "dynamo"
ENGINE = "sglang"
LAUNCHES = True
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
    """Those of SGLang."""
    return target_sglang.limits(deployment)


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
    if "REGISTRY" in deployment.options.image:
        found.append("give the container image with --image")
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
            "dynamoNamespace": name,
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {
                "mainContainer": {
                    "image": deployment.options.image,
                    "command": ["python3", "-m", "dynamo.frontend"],
                    "args": ["--http-port", "8000"],
                }
            },
        }
    }
    for worker in found:
        services[worker.name] = _service(deployment, worker, name)
    spec: dict[str, Any] = {"backendFramework": "sglang", "services": services}
    if any(worker.pods > 1 for worker in found):
        spec["topologyConstraint"] = {"topologyProfile": deployment.options.topology_profile}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name, "namespace": deployment.options.namespace},
        "spec": spec,
    }


def _service(deployment: Deployment, worker: Worker, name: str) -> dict[str, Any]:
    role = worker.servers[0].role
    container: dict[str, Any] = {
        "image": deployment.options.image,
        "command": ["python3", "-m", "dynamo.sglang"],
        "args": list(worker.words),
    }
    pod: dict[str, Any] = {"mainContainer": container}
    if worker.map_file is not None:
        container["volumeMounts"] = [{"name": "experts", "mountPath": "/rackfit"}]
        config = {"name": object_name(worker.map_file)}
        pod["volumes"] = [{"name": "experts", "configMap": config}]
    service: dict[str, Any] = {
        "dynamoNamespace": name,
        "componentType": "worker",
        "replicas": len(worker.servers),
        "resources": {"limits": {"gpu": str(worker.gpus)}},
        "sharedMemory": {"size": "80Gi"},
    }
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

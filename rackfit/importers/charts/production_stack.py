"""Values of vLLM's production stack (``vllm-stack``) and its operator's ``VLLMRuntime``.

Source: helm/templates/deployment-vllm-multi.yaml and operator/internal/controller of vllm-project/production-stack (Apache-2.0).
"""

from __future__ import annotations

from typing import Any

from rackfit.importers.wrapped import Wrapped, listed, mapped, number
from topology.errors import InstanceError, Problem
from topology.names import brief, shown

#: options by the key that gives their value
_VALUES = {
    "tensorParallelSize": "--tensor-parallel-size", "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs", "maxModelLen": "--max-model-len", "dtype": "--dtype",
    "gpuMemoryUtilization": "--gpu-memory-utilization", "maxLoras": "--max-loras",
}  # fmt: skip
_FLAGS = {"enableLoRA": "--enable-lora", "enableLora": "--enable-lora"}


def fits(document: Any) -> bool:
    """Whether a document is such values, or one ``VLLMRuntime``."""
    if not isinstance(document, dict):
        return False
    if document.get("kind") == "VLLMRuntime":
        return isinstance(document.get("spec"), dict)
    engines = document.get("servingEngineSpec")
    return "kind" not in document and isinstance(engines, dict) and bool(engines.get("modelSpec"))


def commands(document: dict[str, Any], name: str) -> list[Wrapped]:
    """One command for each model entry. Raises ``InstanceError`` where entries serve several models, and for wrong sizes."""
    if "kind" in document:
        return [_runtime(document, name)]
    found, models = [], {}
    for one in listed(document["servingEngineSpec"], "modelSpec", f"{name}: servingEngineSpec"):
        if not isinstance(one, dict):
            message = f"expected a model with its settings, got {brief(one)}"
            raise InstanceError(Problem(f"{name}: modelSpec", message))
        place = f"{name}: modelSpec {shown(str(one.get('name', '')), 60)}"
        copies = number(one, "replicaCount", place, 1)
        if copies:
            models[str(one.get("modelURL", ""))] = place
            config = mapped(one, "vllmConfig", place)
            cache = mapped(one, "lmcacheConfig", place)
            found.append(_command(place, one, [one, config], cache, copies))
    if len(models) > 1:
        message = f"serves {', '.join(shown(one, 80) for one in models)}; expected one model, as one is priced"
        raise InstanceError(Problem(f"{name}: modelSpec", message))
    return found


def _runtime(document: dict[str, Any], name: str) -> Wrapped:
    title = mapped(document, "metadata", name).get("name", "")
    place, spec = f"{name}: VLLMRuntime {shown(str(title), 60)}", document["spec"]
    model, config, deployed, cache = (
        mapped(spec, key, place)
        for key in ("model", "vllmConfig", "deploymentConfig", "lmCacheConfig")
    )
    copies = number(deployed, "replicas", place, 1)
    return _command(place, model, [model, config], cache, copies)


def _command(
    place: str,
    model: dict[str, Any],
    settings: list[dict[str, Any]],
    cache: dict[str, Any],
    copies: int,
) -> Wrapped:
    """The command of one entry; ``cache``: how it hands KV over, which says its role."""
    words = ["vllm", "serve", str(model.get("modelURL", ""))]
    for part in settings:
        for key, option in _VALUES.items():
            if part.get(key) not in (None, ""):
                words += [option, str(part[key])]
        words += [option for key, option in _FLAGS.items() if part.get(key) is True]
        words += [str(word) for word in listed(part, "extraArgs", place)]
    role = cache.get("kvRole") if cache.get("enabled") is True else None
    remarks = {"count": str(copies)}
    if role in ("kv_producer", "kv_consumer"):
        remarks["role"] = role
    return Wrapped(place, words, remarks=remarks)

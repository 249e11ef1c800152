"""KServe's ``LLMInferenceService``: pools by their parallelism, and options in a variable.

Source: config/llmisvcconfig of kserve/kserve (Apache-2.0), whose templates write the command: sizes of ``parallelism``,
``VLLM_ADDITIONAL_ARGS``, the container's ``args``. A service with ``prefill`` has two pools.
"""

from __future__ import annotations

from typing import Any

from rackfit.importers.wrapped import Wrapped, listed, mapped, number, shell_words
from topology.names import shown

_MORE = "VLLM_ADDITIONAL_ARGS"
_SIZES = {
    "tensor": "--tensor-parallel-size", "data": "--data-parallel-size", "pipeline": "--pipeline-parallel-size",
}  # fmt: skip


def fits(document: Any) -> bool:
    """Whether a document is such a service whose containers give no command of their own."""
    if not isinstance(document, dict) or document.get("kind") != "LLMInferenceService":
        return False
    spec = document.get("spec")
    return isinstance(spec, dict) and not any(
        one.get("command")
        for pool in (spec, spec.get("prefill"))
        for one in _containers(pool if isinstance(pool, dict) else {})
    )


def commands(document: dict[str, Any], name: str) -> list[Wrapped]:
    """One command for each pool. Raises ``InstanceError`` for sizes that are no whole numbers."""
    spec, title = document["spec"], document.get("metadata")
    called = title.get("name", "") if isinstance(title, dict) else ""
    place = f"{name}: LLMInferenceService {shown(str(called), 60)}"
    model = spec.get("model")
    served = str(model.get("name", model.get("uri", ""))) if isinstance(model, dict) else ""
    prefill = spec.get("prefill")
    if not isinstance(prefill, dict):
        return _pool(spec, served, place, {})
    return [
        *_pool(prefill, served, f"{place}, prefill", {"role": "prefill"}),
        *_pool(spec, served, place, {"role": "decode"}),
    ]


def _pool(pool: dict[str, Any], model: str, place: str, remarks: dict[str, str]) -> list[Wrapped]:
    copies = number(pool, "replicas", place, 1)
    parallel = mapped(pool, "parallelism", place)
    words = ["vllm", "serve", model]
    for key, option in _SIZES.items():
        size = number(parallel, key, f"{place}.parallelism", 1)
        words += [option, str(size)] if size > 1 else []
    words += ["--enable-expert-parallel"] if parallel.get("expert") is True else []
    environment: dict[str, str] = {}
    for one in _containers(pool)[:1]:
        environment = {
            str(each["name"]): str(each["value"])
            for each in listed(one, "env", place)
            if isinstance(each, dict) and "name" in each and "value" in each
        }
        words += shell_words(environment.get(_MORE, ""), f"{place}: {_MORE}")
        words += [str(word) for word in listed(one, "args", place) if word != "--"]
    found = Wrapped(
        place, words, environment=environment, remarks={"count": str(copies), **remarks}
    )
    return [found] if copies else []


def _containers(pool: dict[str, Any]) -> list[dict[str, Any]]:
    template = pool.get("template")
    below = template.get("containers") if isinstance(template, dict) else None
    return [one for one in below if isinstance(one, dict)] if isinstance(below, list) else []

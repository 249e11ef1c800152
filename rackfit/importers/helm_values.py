"""Values of llm-d's Helm chart for model servers (``llm-d-modelservice``), from which its pods' commands come.

Source: charts/llm-d-modelservice/templates/_helpers.tpl of llm-d-incubation/llm-d-modelservice (Apache-2.0).
"""

from __future__ import annotations

from typing import Any

from rackfit.importers.wrapped import Wrapped, container
from topology.errors import InstanceError, Problem
from topology.names import brief

_ROLES = ("prefill", "decode")


def is_values(document: Any) -> bool:
    """Whether a document of a YAML file is such values: they have no kind."""
    return (
        isinstance(document, dict)
        and "kind" not in document
        and isinstance(document.get("modelArtifacts"), dict)
        and any(isinstance(document.get(role), dict) for role in _ROLES)
    )


def commands(document: dict[str, Any], name: str) -> list[Wrapped]:
    """Commands of the prefill and decode pods; of one role alone those of servers of both phases.

    Raises ``InstanceError`` for a size that is no whole number.
    """
    made = {
        role: document[role]
        for role in _ROLES
        if isinstance(document.get(role), dict) and document[role].get("create", True) is not False
    }
    found = []
    for role, part in made.items():
        place = f"{name}: {role}"
        copies = _whole(part, "replicas", place, 1)
        if not copies:
            continue
        remarks = {"count": str(copies)} | ({"role": role} if len(made) > 1 else {})
        sizes = _sizes(part.get("parallelism") or {}, f"{place}.parallelism")
        variables = [{"name": key, "value": str(value)} for key, value in sizes.items()]
        for one in part.get("containers") or ():
            if isinstance(one, dict):
                given = [*(one.get("env") or ()), *variables]  # the chart's own come last and count
                data = one | {"env": given} | _command(one, document["modelArtifacts"], sizes)
                found.append(container(data, place, remarks, []))
    return found


def _sizes(parallelism: dict[str, Any], place: str) -> dict[str, int]:
    """The variables that the chart sets, and the workers of a group, which LeaderWorkerSet sets."""
    if not isinstance(parallelism, dict):
        raise InstanceError(Problem(place, f"expected sizes by name, got {brief(parallelism)}"))
    tensor = _whole(parallelism, "tensor", place, 1)
    workers = _whole(parallelism, "workers", place, 0)
    data, local = (_whole(parallelism, key, place, 0) for key in ("data", "dataLocal"))
    data = data or local * max(workers, 1) or 1
    workers = workers or (data // local if local else 1)
    return {"TP_SIZE": tensor, "DP_SIZE": data, "DP_SIZE_LOCAL": local or data // workers,
            "LWS_GROUP_SIZE": workers}  # fmt: skip


def _command(one: dict[str, Any], artifacts: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:  # fmt: skip
    """``command`` and ``args`` that the chart writes; nothing where the values give their own."""
    if one.get("modelCommand") not in ("vllmServe", "imageDefault"):
        return {}
    model = str(artifacts.get("uri", "")).partition("://")[2] or str(artifacts.get("name", ""))
    words = ["vllm", "serve", model]
    options = {"--tensor-parallel-size": "TP_SIZE", "--data-parallel-size": "DP_SIZE",
               "--data-parallel-size-local": "DP_SIZE_LOCAL"}  # fmt: skip
    for option, size in options.items():
        if sizes[size] > 1:
            words += [option, str(sizes[size])]
    return {"command": words, "args": list(one.get("args") or ())}


def _whole(data: dict[str, Any], key: str, place: str, default: int) -> int:
    value = data.get(key, default)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= 100_000:
        message = f"expected a whole number from 0 to 100,000, got {brief(value)}"
        raise InstanceError(Problem(f"{place}.{key}", message))
    return value

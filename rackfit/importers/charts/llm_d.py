"""Values of llm-d's Helm chart for model servers (``llm-d-modelservice``), from which its pods' commands come.

Source: charts/llm-d-modelservice/templates/_helpers.tpl of llm-d-incubation/llm-d-modelservice (Apache-2.0).
"""

from __future__ import annotations

from typing import Any

from rackfit.importers.wrapped import Wrapped, container, listed, mapped, number

_ROLES = ("prefill", "decode")


def fits(document: Any) -> bool:
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
        copies = number(part, "replicas", place, 1)
        if not copies:
            continue
        remarks = {"count": str(copies)} | ({"role": role} if len(made) > 1 else {})
        sizes = _sizes(mapped(part, "parallelism", place), f"{place}.parallelism")
        variables = [{"name": key, "value": str(value)} for key, value in sizes.items()]
        for one in listed(part, "containers", place):
            if isinstance(one, dict):
                given = [
                    *listed(one, "env", place),
                    *variables,
                ]  # the chart's own come last and count
                data = (
                    one | {"env": given} | _command(one, document["modelArtifacts"], sizes, place)
                )
                found.append(container(data, place, remarks, []))
    return found


def _sizes(parallelism: dict[str, Any], place: str) -> dict[str, int]:
    """The variables that the chart sets, and the workers of a group, which LeaderWorkerSet sets."""
    tensor = number(parallelism, "tensor", place, 1)
    workers = number(parallelism, "workers", place, 0)
    data, local = (number(parallelism, key, place, 0) for key in ("data", "dataLocal"))
    data = data or local * max(workers, 1) or 1
    workers = workers or (data // local if local else 1)
    return {"TP_SIZE": tensor, "DP_SIZE": data, "DP_SIZE_LOCAL": local or data // workers,
            "LWS_GROUP_SIZE": workers}  # fmt: skip


def _command(one: dict[str, Any], artifacts: dict[str, Any], sizes: dict[str, int], place: str) -> dict[str, Any]:  # fmt: skip
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
    return {"command": words, "args": listed(one, "args", place)}

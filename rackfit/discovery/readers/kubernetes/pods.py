"""Chips that pods have asked for, by node: as ``kubectl describe nodes`` adds them up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rackfit.discovery.document import mapping, sequence
from topology.errors import InstanceError, Problem
from topology.names import shown

#: phases of pods that hold nothing any more
_OVER = ("Succeeded", "Failed")


def requested(
    pods: Iterable[dict[str, Any]], resources: Collection[str], place: str
) -> dict[str, dict[str, int]]:
    """Chips by node and resource. Raises ``InstanceError`` for requests that are no number of chips."""
    asked: dict[str, dict[str, int]] = {}
    for pod in pods:
        spec, phase = mapping(pod.get("spec")), mapping(pod.get("status")).get("phase")
        node = spec.get("nodeName")
        if not isinstance(node, str) or not node or phase in _OVER:
            continue
        where = f"{place}: pod {shown(mapping(pod.get('metadata')).get('name'), 80)}"
        for name in resources:
            if number := _of_pod(spec, name, where):
                counts = asked.setdefault(node, {})
                counts[name] = counts.get(name, 0) + number
    return asked


def _of_pod(spec: dict[str, Any], name: str, place: str) -> int:
    """What all containers hold together, or one that runs before them; those that stay beside them count as well."""
    beside = first = 0
    for container in map(mapping, sequence(spec.get("initContainers"))):
        number = _of_container(container, name, place)
        if container.get("restartPolicy") == "Always":
            beside += number
        first = max(first, number + (0 if container.get("restartPolicy") == "Always" else beside))
    for container in map(mapping, sequence(spec.get("containers"))):
        beside += _of_container(container, name, place)
    return max(beside, first)


def _of_container(container: dict[str, Any], name: str, place: str) -> int:
    resources = mapping(container.get("resources"))
    for key in ("requests", "limits"):
        value = mapping(resources.get(key)).get(name)
        if value is None:
            continue
        text = str(value)
        if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 6:
            message = f"expected a number of chips, got {shown(value, 40)}"
            raise InstanceError(Problem(f"{place}: {key}: {name}", message))
        return int(text)
    return 0

"""Commands in Kubernetes manifests, those of Dynamo among them, and in what charts and operators read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rackfit.importers import charts
from rackfit.importers.charts import kserve_refs
from rackfit.importers.scripts.fill import fill
from rackfit.importers.wrapped import Wrapped, container, listed, mapped
from rackfit.shelf import modules
from topology.errors import InstanceError, Problem
from topology.reading import parse_yaml_documents


def manifests(text: str, name: str, others: Mapping[str, str] | None = None) -> list[Wrapped]:
    """Commands of every container of Kubernetes objects, or of what a chart or an operator reads.

    ``others``: texts of files beside it by name, whose configs its services may name. Raises ``InstanceError``.
    """
    beside = [
        document
        for called, other in (others or {}).items()
        if kserve_refs.CONFIG in other
        for document in _documents(other, called)
    ]
    documents = kserve_refs.joined(_documents(text, name), beside, name)
    found: list[Wrapped] = []
    files = {
        str(key): str(value)
        for document in documents
        if isinstance(document, dict) and document.get("kind") == "ConfigMap"
        for key, value in mapped(document, "data", f"{name}: ConfigMap").items()
    }
    for document in documents:
        shelf = (one for one in modules(charts).values() if hasattr(one, "fits"))
        chart = next((one for one in shelf if one.fits(document)), None)
        if chart is not None:
            found += chart.commands(document, name)
        elif isinstance(document, dict) and "kind" in document:
            title = document.get("metadata") or {}
            called = title.get("name", "") if isinstance(title, dict) else ""
            inside = _containers(document, f"{name}: {document['kind']} {called}", {}, [], 0)
            grouped = document["kind"] == "StatefulSet"
            found += [_grouped(one) for one in inside] if grouped else inside
    for one in found:  # a file that a config map mounts stands in its words as it is
        one.words = [
            files.get(word.rpartition("/")[2], word) if word.startswith("/") else word
            for word in one.words
        ]
    return found


def _documents(text: str, name: str) -> list[Any]:
    try:
        return parse_yaml_documents(text, name)
    except InstanceError as error:
        if "{{" not in text:
            raise
        (problem,) = error.problems
        message = f"a template of Helm, to be rendered first: {problem.message}"
        raise InstanceError(Problem(problem.place, message)) from None


def _grouped(one: Wrapped) -> Wrapped:
    """A stateful set's pod: with ``--nnodes N``, N of its pods are one server. Raises ``InstanceError``."""
    text = fill(one.script or " ".join(one.words), one.environment)
    nodes = re.search(r"--nnodes[ =]+(\d{1,5})\b", text)
    if nodes is None:
        return one
    pods, size = int(one.remarks.get("count", "1")), max(int(nodes[1]), 1)
    if pods % size:
        message = f"{pods} pods do not make servers of --nnodes {size}"
        raise InstanceError(Problem(one.place, message))
    return replace(one, remarks={**one.remarks, "count": str(pods // size)})


def _containers(
    data: Any, place: str, remarks: dict[str, str], variables: list[Any], depth: int
) -> Iterator[Wrapped]:
    """Containers below a part of an object, with the copies and the role that stand above them."""
    if depth > 40 or not isinstance(data, dict | list):
        return
    if isinstance(data, list):
        for each in data:
            yield from _containers(each, place, remarks, variables, depth + 1)
        return
    remarks = dict(remarks)
    copies = data.get("replicas")
    if type(copies) is int:
        remarks["count"] = str(copies * int(remarks.get("count", "1")))
    size = data.get("size")
    if "leaderTemplate" in data or "workerTemplate" in data:  # what a LeaderWorkerSet sets itself
        group = [{"name": "LWS_GROUP_SIZE", "value": size}] if type(size) is int else []
        variables = [*variables, *group]
    role = data.get("subComponentType", data.get("type"))
    if role in ("prefill", "decode"):
        remarks["role"] = role
    variables = [*variables, *listed(data, "envs", place)]
    for key, value in data.items():
        if key == "workerTemplate" and "leaderTemplate" in data:
            continue  # the leader's command names the whole group
        parts = _named(key, value)
        if parts:
            for part, each in parts:
                yield from _containers(each, f"{place}, {part}", remarks, variables, depth + 1)
            continue
        below = value if isinstance(value, list) else [value]
        if key not in ("containers", "mainContainer"):
            yield from _containers(value, place, remarks, variables, depth + 1)
            continue
        for each in below:
            if isinstance(each, dict) and remarks.get("count") != "0":
                yield container(each, place, remarks, variables)


def _named(key: str, value: Any) -> list[tuple[str, Any]]:
    """The parts of a Dynamo graph with their names; none for anything else."""
    if key == "services" and isinstance(value, dict):
        return [(str(name), part) for name, part in value.items()]
    if key == "components" and isinstance(value, list):
        return [(str(part.get("name")), part) for part in value if isinstance(part, dict)]
    return []

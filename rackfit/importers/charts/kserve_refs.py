"""KServe's ``LLMInferenceServiceConfig``: what services name in ``baseRefs`` and take from there.

Source: pkg/controller/v1alpha2/llmisvc/config_merge.go of kserve/kserve (Apache-2.0): configs in their order, the service
over them; lists of things with names are joined by these. Those that the operator brings itself
(``kserve-config-..``) are its templates and set no sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rackfit.importers.wrapped import listed
from topology.errors import InstanceError, Problem
from topology.names import shown

CONFIG, _SERVICE = "LLMInferenceServiceConfig", "LLMInferenceService"
_OWN, _MORE = "kserve-config-", "VLLM_ADDITIONAL_ARGS"
_VALUE = re.compile(r"\{\{-?\s{0,9}\.Spec((?:\.\w{1,60}){1,9})\s{0,9}-?\}\}")
_DEEPEST = 40


def joined(documents: Iterable[Any], others: Iterable[Any], name: str) -> list[Any]:
    """Documents with their services as the operator makes them of the configs among all documents, which start nothing.

    Raises ``InstanceError`` for a service that names a config that is not given: its sizes may stand there.
    """
    documents = list(documents)
    configs = {
        str(_named(one)): one["spec"]
        for one in [*others, *documents]
        if _is(one, CONFIG) and isinstance(one.get("spec"), dict)
    }
    kept = [one for one in documents if not _is(one, CONFIG)]
    return [_service(one, configs, name) if _is(one, _SERVICE) else one for one in kept]


def _is(document: Any, kind: str) -> bool:
    return isinstance(document, dict) and document.get("kind") == kind


def _named(document: Mapping[str, Any]) -> Any:
    title = document.get("metadata")
    return title.get("name", "") if isinstance(title, dict) else ""


def _service(document: dict[str, Any], configs: Mapping[str, Any], name: str) -> dict[str, Any]:
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    place = f"{name}: {_SERVICE} {shown(_named(document), 60)}"
    whole: Any = {}
    for one in listed(spec, "baseRefs", place):
        called = str(one.get("name", "")) if isinstance(one, dict) else str(one)
        if called in configs:
            whole = _over(whole, configs[called], 0)
        elif not called.startswith(_OWN):
            message = f"names {shown(called, 80)}, which no file that is given holds; put its {CONFIG} into the same file or folder"
            raise InstanceError(Problem(f"{place}: baseRefs", message))
    whole = _filled(_over(whole, spec, 0), _over(whole, spec, 0), 0)
    return {**document, "spec": _without_more(whole)}


def _without_more(spec: dict[str, Any]) -> dict[str, Any]:
    """A service whose own commands may ask for more options in a variable, which is empty where nothing sets it."""
    found = dict(spec)
    if isinstance(spec.get("prefill"), dict):
        found["prefill"] = _without_more(spec["prefill"])
    template = spec.get("template")
    containers = template.get("containers") if isinstance(template, dict) else None
    if isinstance(template, dict) and _has_names(containers):
        unset = {
            "containers": [
                {"name": one["name"], "env": [{"name": _MORE, "value": ""}]}
                for one in containers or []
            ]
        }
        found["template"] = _over(unset, template, 0)
    return found


def _over(below: Any, above: Any, depth: int) -> Any:
    """One part over another: mappings and lists of things with names key by key, others as a whole."""
    if depth > _DEEPEST or above is None:
        return below if above is None else above
    if isinstance(below, dict) and isinstance(above, dict):
        return {
            **below,
            **{key: _over(below.get(key), value, depth + 1) for key, value in above.items()},
        }
    if _has_names(below) and _has_names(above):
        found = {one["name"]: one for one in below}
        for one in above:
            found[one["name"]] = _over(found.get(one["name"]), one, depth + 1)
        return list(found.values())
    return above


def _has_names(data: Any) -> bool:
    return isinstance(data, list) and all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in data
    )


def _filled(data: Any, spec: Mapping[str, Any], depth: int) -> Any:
    """Texts with the service's own values in the place of templates; what other templates make is not known."""
    if depth > _DEEPEST:
        return data
    if isinstance(data, dict):
        return {key: _filled(value, spec, depth + 1) for key, value in data.items()}
    if isinstance(data, list):
        return [_filled(value, spec, depth + 1) for value in data]
    if not isinstance(data, str) or "{{" not in data:
        return data
    text = _VALUE.sub(lambda found: _value(found, spec), data)
    return re.sub(r"\{\{[^{}]{0,500}\}\}", "$TEMPLATE", text)


def _value(found: re.Match[str], spec: Any) -> str:
    """The value that ``.Spec.Model.Name`` stands for; the template itself if there is none."""
    for word in found[1].split(".")[1:]:
        spec = spec.get(word[:1].lower() + word[1:]) if isinstance(spec, dict) else None
    return found[0] if spec is None or isinstance(spec, dict | list) else str(spec)

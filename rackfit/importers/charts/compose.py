"""Docker Compose: services with their commands, environment and replicas.

Source: the Compose specification (compose-spec/compose-spec, 05-services.md): ``entrypoint`` and ``command`` as words or as one
text, ``environment`` as a mapping or a list of ``NAME=value``, ``deploy.replicas`` or ``scale``.
"""

from __future__ import annotations

from typing import Any

from rackfit.importers.scripts.fill import fill
from rackfit.importers.wrapped import Wrapped, container, mapped, number, shell_words
from topology.errors import InstanceError, Problem
from topology.names import brief, shown


def fits(document: Any) -> bool:
    """Whether a document is such a file: services, of which one has an image or a command."""
    if not isinstance(document, dict) or "kind" in document:
        return False
    services = document.get("services")
    return isinstance(services, dict) and any(
        isinstance(one, dict) and ("image" in one or "command" in one) for one in services.values()
    )


def commands(document: dict[str, Any], name: str) -> list[Wrapped]:
    """One command for each service. Raises ``InstanceError`` for what is no command or no number."""
    found = []
    for called, service in document["services"].items():
        place = f"{name}: service {shown(str(called), 60)}"
        if not isinstance(service, dict):
            raise InstanceError(Problem(place, f"expected a service, got {brief(service)}"))
        deploy = mapped(service, "deploy", place)
        copies = number(deploy, "replicas", place, number(service, "scale", place, 1))
        if not copies:
            continue
        environment = _environment(service.get("environment"), place)
        data = {
            "image": service.get("image", ""),
            "command": _words(service.get("entrypoint"), f"{place}.entrypoint"),
            "args": _words(service.get("command"), f"{place}.command"),
            "env": [{"name": key, "value": value} for key, value in environment.items()],
        }
        found.append(container(data, place, {"count": str(copies)}, []))
    return found


def _words(value: object, place: str) -> list[str]:
    """Words of a command; ``${NAME:-default}`` is its default, as nobody sets the variable here."""
    if value is None:
        return []
    if isinstance(value, list):
        return [fill(str(word), {}) for word in value]
    if not isinstance(value, str):
        raise InstanceError(Problem(place, f"expected a command, got {brief(value)}"))
    return shell_words(fill(value, {}), place)


def _environment(value: object, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(key): str(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        pairs = (str(one).partition("=") for one in value)
        return {key: one for key, equals, one in pairs if equals}
    message = f"expected variables, got {brief(value)}"
    raise InstanceError(Problem(f"{place}.environment", message))

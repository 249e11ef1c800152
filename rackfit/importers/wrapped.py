"""Commands inside other things: ``docker run``, containers of a pod, systemd units."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rackfit.importers.scripts.fill import fill, fill_bracketed
from topology.errors import InstanceError, Problem
from topology.names import brief

#: programs that start a container, and their options that take no value
_RUNNERS = frozenset({"docker", "podman", "nerdctl"})
_FLAGS = frozenset(
    """
    -d -i -t -it -ti -di -dit --detach --interactive --tty --rm --init --privileged --read-only --no-healthcheck -P
    --publish-all --oom-kill-disable --tls-verify
    """.split()  # noqa: SIM905
)
#: images whose entry point is ``vllm serve``
_SERVES = re.compile(r"(^|/)vllm-openai(:|@|$)|(^|/)vllm-(tpu|openai-rocm)(:|@|$)")
_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})


@dataclass
class Wrapped:
    """A command in a file: its words, or the script that holds it and the words ``given`` to that, its environment, and
    remarks on it.
    """

    place: str
    words: list[str] = field(default_factory=list)
    script: str = ""
    given: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)


def inside_container(words: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Words and environment that ``docker run`` hands to a container; ``None`` for other commands."""
    rest = list(words[1:] if words and words[0] == "sudo" else words)
    if len(rest) < 2 or rest[0] not in _RUNNERS or rest[1] not in ("run", "create"):
        return None
    rest, environment, entry = rest[2:], {}, ""
    while rest and rest[0].startswith("-"):
        option, _, joined = rest.pop(0).partition("=")
        if option in _FLAGS:
            continue
        value = joined or (rest.pop(0) if rest else "")
        if option in ("-e", "--env") and "=" in value:
            name, _, text = value.partition("=")
            environment[name] = text
        elif option == "--entrypoint":
            entry = value
    if not rest:
        return [], environment
    image, inner = rest[0], rest[1:]
    return _started(image, shell_words(entry, "docker: --entrypoint"), inner), environment


def shell_words(text: str, place: str) -> list[str]:
    """Words of a text as a shell splits it. Raises ``InstanceError`` for quotes that are left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InstanceError(Problem(place, f"not words of a shell: {error}")) from None


def inner_script(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The script that a shell among the words is given behind ``-c`` or ``-lc``, and the words for it behind its name."""
    for at, word in enumerate(words):
        if word in _SHELLS:
            given = (i for i, each in enumerate(words) if i > at and re.fullmatch(r"-\w*c", each))
            return next(
                ((words[i + 1], list(words[i + 3 :])) for i in given if i + 1 < len(words)), None
            )
    return None


def _started(image: str, entry: list[str], words: list[str]) -> list[str]:
    """What runs in a container: its entry point's words, or those of the image where none are given."""
    if entry or not _SERVES.search(image) or words[:2] == ["vllm", "serve"]:
        return [*entry, *words]
    return ["vllm", "serve", *words]


def units(text: str, name: str) -> list[Wrapped]:
    """Commands of a systemd unit: ``ExecStart`` with its ``Environment``."""
    joined = re.sub(r"\\\n\s*", " ", text)
    environment: dict[str, str] = {}
    found = []
    for number, line in enumerate(joined.splitlines(), start=1):
        key, _, value = line.strip().partition("=")
        if key.strip() == "Environment":
            pairs = (word.partition("=") for word in shell_words(value, f"{name}:{number}"))
            environment |= {first: last for first, _, last in pairs}
        elif key.strip() == "ExecStart":
            command = value.strip().lstrip("@-:+!")
            parts = shell_words(command, f"{name}:{number}")
            words = [fill(word, environment) for word in parts]
            found.append(Wrapped(f"{name}:{number}", words, environment=environment))
    return found


def container(
    data: dict[str, Any], place: str, remarks: dict[str, str], variables: list[Any]
) -> Wrapped:
    """The command of one container with its environment and that of what stands above it."""
    where = f"{place}, {data['name']}" if isinstance(data.get("name"), str) else place
    environment = {
        str(one["name"]): str(one["value"])
        for one in [*variables, *listed(data, "env", where)]
        if isinstance(one, dict) and "name" in one and "value" in one
    }
    command, words = (
        [str(word) for word in listed(data, key, where)] for key in ("command", "args")
    )
    whole = _started(str(data.get("image", "")), command, words)
    if whole and whole[0] in _SHELLS:
        script, given = inner_script([fill_bracketed(word, environment) for word in whole]) or (
            "",
            [],
        )
        return Wrapped(where, script=script, given=given, environment=environment, remarks=remarks)
    whole = [fill(word, environment) for word in whole]
    return Wrapped(where, whole, environment=environment, remarks=remarks)


def number(data: dict[str, Any], key: str, place: str, default: int) -> int:
    """A size of a chart's values; ``default`` where it is left out. Raises ``InstanceError`` for what is no whole number."""
    value = data.get(key, default)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= 100_000:
        message = f"expected a whole number from 0 to 100,000, got {brief(value)}"
        raise InstanceError(Problem(f"{place}.{key}", message))
    return value


def listed(data: dict[str, Any], key: str, place: str) -> list[Any]:
    """A list of a manifest; empty where it is left out. Raises ``InstanceError`` for anything else."""
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InstanceError(Problem(f"{place}.{key}", f"expected a list, got {brief(value)}"))
    return value


def mapped(data: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    """Settings by name; empty where they are left out. Raises ``InstanceError`` for anything else."""
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"expected settings by name, got {brief(value)}"
        raise InstanceError(Problem(f"{place}.{key}", message))
    return value

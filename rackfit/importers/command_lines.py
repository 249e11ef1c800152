"""Command files: one process per line, as a shell would read it, with optional remarks.

A line may be a ``docker run``; manifests and systemd units are read too (:mod:`rackfit.importers.wrapped`, :mod:`rackfit.importers.kubernetes`).

A line ``# rackfit: role=decode count=2 chips=r0g0,r0g1`` applies to the next process; all keys are
optional. Lines may be continued with a backslash.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rackfit.importers.kubernetes import manifests
from rackfit.importers.wrapped import Wrapped, inside_container, units
from topology.errors import InstanceError, Problem
from topology.reading import read_text

#: A file larger than this is refused.
MAX_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Process:
    """One process of a command file."""

    place: str
    remarks: dict[str, str]
    environment: dict[str, str]
    words: tuple[str, ...]


#: options that say where a process of a group runs; one command of a pod stands for the whole group
_PLACES = frozenset(
    """
    --data-parallel-start-rank --data-parallel-rank --data-parallel-address --node-rank --master-addr
    --dist-init-addr
    """.split()  # noqa: SIM905
)


def without_hidden_places(words: Sequence[str]) -> tuple[str, ...]:
    """Words without places that a variable of the pod hides: they change no size."""
    hidden = {
        place + step
        for place, word in enumerate(words[:-1])
        if word in _PLACES and "$" in words[place + 1]
        for step in (0, 1)
    }
    return tuple(word for place, word in enumerate(words) if place not in hidden)


def read_processes(path: Path) -> list[Process]:
    """Every process of a command file, a Kubernetes manifest or a systemd unit. Raises ``InstanceError``."""
    text = read_text(path, MAX_BYTES)
    if path.suffix in (".yaml", ".yml"):
        return _unwrapped(manifests(text, path.name))
    if path.suffix == ".service" or "[Service]" in text.splitlines():
        return _unwrapped(units(text, path.name))
    return shell_processes(text, path.name)


def _unwrapped(found: list[Wrapped]) -> list[Process]:
    """Processes of commands that stand in another file; of a script all its lines."""
    processes = []
    for one in found:
        if one.script:
            inner = shell_processes(one.script, one.place)
        else:
            made = _process(one.place, {}, one.words)
            inner = [] if made is None else [made]
        processes += [
            replace(
                process,
                remarks={**one.remarks, **process.remarks},
                environment={**one.environment, **process.environment},
            )
            for process in inner
        ]
    return processes


def shell_processes(text: str, name: str) -> list[Process]:
    """Every process of the lines of a shell, said to be in a file ``name``. Raises ``InstanceError``."""
    found: list[Process] = []
    remarks: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("# rackfit:"):
            remarks = dict(
                part.split("=", 1)
                for part in line.removeprefix("# rackfit:").split()
                if "=" in part
            )
            continue
        if not pending and (not line or line.startswith("#")):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        place = f"{name}:{number}"
        try:
            words = shlex.split(pending + line, comments=True)
        except ValueError as error:
            raise InstanceError(Problem(place, f"not a shell command: {error}")) from None
        pending = ""
        process = _process(place, remarks, words)
        if process is not None:
            found.append(process)
            remarks = {}
    return found


def _process(place: str, remarks: dict[str, str], words: list[str]) -> Process | None:
    """Words without redirections and the trailing ``&``; leading assignments as environment."""
    words = [word for word in words if word not in ("&", "2>&1", "exec", "nohup")]
    environment: dict[str, str] = {}
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    inside = inside_container(words)
    if inside is not None:
        words, given = inside
        environment |= given
    return Process(place, remarks, environment, tuple(words)) if words else None


def started(
    processes: Sequence[Process], program: str, modules: Sequence[str]
) -> Iterator[tuple[Process, tuple[str, ...]]]:
    """Processes that start ``program serve`` or one of its modules, each with the options behind that."""
    for process in processes:
        words = process.words
        for at, word in enumerate(words):
            serves = word.endswith(program) and words[at + 1 : at + 2] == ("serve",)
            if serves or word in modules:
                yield process, without_hidden_places(words[at + (1 if word in modules else 2) :])
                break

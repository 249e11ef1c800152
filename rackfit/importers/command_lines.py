"""Command files: one process per line, as a shell would read it, with optional remarks.

A line may be a ``docker run``; manifests and systemd units are read too (:mod:`rackfit.importers.wrapped`, :mod:`rackfit.importers.kubernetes`).

A line ``# rackfit: role=decode count=2 chips=r0g0,r0g1`` applies to the next process; all keys are
optional. Lines may be continued with a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rackfit.importers.kubernetes import manifests
from rackfit.importers.scripts.follow import followed
from rackfit.importers.scripts.lexer import PLACEHOLDER, STARTS
from rackfit.importers.wrapped import Wrapped, inner_script, inside_container, units
from topology.catalogue import is_file, read_data
from topology.errors import InstanceError, Problem
from topology.names import shown
from topology.reading import parse_yaml, read_text

_MANIFESTS = (".yaml", ".yml")
#: A file larger than this is refused.
MAX_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Process:
    """One process of a command file.

    ``doubtful`` are variables in it that a condition sets, ``container`` what it starts in, if a manifest says so;
    ``written``: texts of files that its script has written before, by name; ``open``: why it may not start, or not once.
    """

    place: str
    remarks: dict[str, str]
    environment: dict[str, str]
    words: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    container: str = ""
    written: Mapping[str, str] = field(default_factory=dict)
    open: str = ""

    def config(self, name: str, folder: Path) -> Any:
        """The data of a file that the command names: what its script wrote, or one in ``folder``; ``None`` if there is none.

        Raises ``InstanceError`` where it is no YAML.
        """
        if name in self.written:
            # what the shell alone knows is a word of its own
            text = re.sub(
                r"\$\{(\w{1,200})[^{}\n]{0,200}\}|\$\([^()\n]{0,500}\)", r"$\1", self.written[name]
            )
            return parse_yaml(text, f"{self.place}: {shown(name, 200)}")
        path = file_beside(name, folder)
        return None if path is None else read_data(path)


def file_beside(name: str, folder: Path) -> Path | None:
    """The file that a command names, in its own folder or below; one of another place by its last name alone.

    Commands come from elsewhere, over HTTP too: what else lies on this machine is not theirs to read.
    """
    inside = folder.resolve()
    for path in (folder / name, folder / Path(name).name):
        try:
            if path.resolve().is_relative_to(inside) and is_file(path):
                return path
        except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
            continue
    return None


#: options that say where a process of a group runs; one command of a pod stands for the whole group
_PLACES = frozenset(
    """
    --data-parallel-start-rank --data-parallel-rank --data-parallel-address --node-rank --master-addr
    --dist-init-addr
    """.split()  # noqa: SIM905
)


#: words of a command before those of another one that it is given
_BEFORE = 6
#: programs that print or look for a command and start none
_SAY = frozenset("echo printf cat tee grep sed awk ps pgrep pkill which type trap".split())  # noqa: SIM905
#: where a command ends: another one, a pipe or a redirection
_NEXT = re.compile(rf":|&&|\|\|?|;|&>.*|\d?>{{1,2}}.*|(?!{PLACEHOLDER})<.*|\}}|\)")


def without_hidden_places(words: Sequence[str]) -> tuple[str, ...]:
    """Words without places that a variable of the pod hides: they change no size."""
    hidden = {
        place + step
        for place, word in enumerate(words[:-1])
        if word in _PLACES and "$" in words[place + 1]
        for step in (0, 1)
    }
    return tuple(word for place, word in enumerate(words) if place not in hidden)


def read_processes(path: Path, beside: Sequence[Path] = ()) -> list[Process]:
    """Every process of a command file, a Kubernetes manifest or a systemd unit.

    ``beside``: files that are given with it. Raises ``InstanceError``.
    """
    text = read_text(path, MAX_BYTES)
    if path.suffix in _MANIFESTS:
        others = {
            one.name: read_text(one, MAX_BYTES)
            for one in beside
            if one.suffix in _MANIFESTS and one != path and "baseRefs" in text
        }
        return _unwrapped(manifests(text, path.name, others))
    if path.suffix == ".service" or "[Service]" in text.splitlines():
        return _unwrapped(units(text, path.name))
    return shell_processes(text, path.name)


def _unwrapped(found: list[Wrapped]) -> list[Process]:
    """Processes of commands that stand in another file; of a script all its lines."""
    processes = []
    for one in found:
        if one.script:
            inner = shell_processes(one.script, one.place, one.environment, one.given)
        else:
            inner = _processes(one.place, {}, one.words)
        processes += [
            replace(
                process,
                container=one.place,
                remarks={**one.remarks, **process.remarks},
                environment={**one.environment, **process.environment},
            )
            for process in inner
        ]
    return processes


def shell_processes(
    text: str,
    name: str,
    environment: Mapping[str, str] | None = None,
    given: Sequence[str] | None = None,
) -> list[Process]:
    """Every process of the lines of a shell, said to be in a file ``name``. Raises ``InstanceError``.

    ``environment`` is what the script is given, ``given`` are the words behind its name, ``None`` if they are not known.
    """
    done = followed(text, name, environment or {}, given)
    found: list[Process] = []
    for command in done.found:
        place = f"{name}:{command.line}"
        remarks = _remarks(command.remark)
        inside = (
            _unwrapped(manifests(command.manifest, place))
            if command.manifest
            else _processes(place, remarks, list(command.words), command.environment)
        )
        found += [
            replace(
                one,
                doubtful=tuple(sorted({*command.doubtful, *one.doubtful})),
                written={**command.written, **one.written},
                open=command.open or one.open,
            )
            for one in inside
        ]
    starts = any(STARTS.search(" ".join(one.words)) for one in found)
    if done.ended and not starts and STARTS.search("\n".join(text.splitlines()[done.ended :])):
        message = "the script ends here, before it starts a server, with the values that it has"
        raise InstanceError(Problem(f"{name}:{done.ended}", message))
    return found


def _remarks(text: str) -> dict[str, str]:
    parts = text.removeprefix("# rackfit:").split()
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _processes(
    place: str,
    remarks: dict[str, str],
    words: list[str],
    exported: Mapping[str, str] | None = None,
) -> list[Process]:
    """Words without redirections and the trailing ``&``; leading assignments as environment, beside what is exported.

    What a shell is given as ``-c`` is a script of its own.
    """
    words = [word for word in words if word not in ("&", "2>&1", "exec", "nohup")]
    environment = dict(exported or {})
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    inside = inside_container(words)
    if inside is not None:
        words, given = inside
        environment |= given
    script = inner_script(words)
    if script is not None and STARTS.search(script[0]):
        inner = shell_processes(script[0], place, environment, script[1])
        return [
            replace(one, remarks=remarks | one.remarks, environment=environment | one.environment)
            for one in inner
        ]
    return [Process(place, remarks, environment, tuple(words))] if words else []


def started(
    processes: Sequence[Process], program: str, modules: Sequence[str]
) -> Iterator[tuple[Process, tuple[str, ...]]]:
    """Processes that start ``program serve`` or one of its modules, each with the options behind that.

    A program whose name ends in ``-serve`` needs no such word. A command that is given the words of another one, as to
    write them down, starts none.
    """
    whole = {process.words for process in processes}
    for process in processes:
        words = process.words
        if words and words[0].rpartition("/")[2] in _SAY:
            continue
        if any(words[at:] in whole for at in range(1, min(len(words), _BEFORE))):
            continue
        for at, word in enumerate(words):
            second = words[at + 1 : at + 2] == ("serve",)
            alone = word in modules or (word.endswith(program) and program.endswith("-serve"))
            if alone or (word.endswith(program) and second):
                options = words[at + (2 if second else 1) :]
                yield process, without_hidden_places(_of_one_command(options))
                break


def _of_one_command(words: Sequence[str]) -> Sequence[str]:
    """Words up to the next command or redirection."""
    for at, word in enumerate(words):
        if _NEXT.fullmatch(word):
            return words[:at]
        ended = re.fullmatch(r"([^;]+);|(--[\w-]+)>{1,2}.*", word)
        if ended is not None:
            return [*words[:at], ended[1] or ended[2]]
    return words

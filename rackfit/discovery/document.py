"""A file that an operator gave: read once within the bounds of :mod:`topology.reading`, parsed when asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topology.catalogue import is_file, is_folder
from topology.errors import InstanceError, Problem
from topology.names import check_name, shown
from topology.reading import MAX_YAML_BYTES, parse_json, parse_json_values, parse_yaml, read_text

#: more than any listing of 200,000 chips needs
_MOST_BYTES = 64 * 2**20
#: a key that every Kubernetes object or list has, in whatever order
_KUBERNETES = re.compile(r"(?m)^(?:apiVersion|kind|items):")
#: what stands around logs in a dump of the whole cluster
_LOGS, _LOGS_END = "==== START logs for container ", "==== END logs for container "
#: the line where JSON begins: warnings of a tool or the head of an answer over HTTP may stand above it
_JSON = re.compile(r"(?m)^[ \t]{0,80}[{\[](?=\s{0,4000}(?:[\"{\[\]}]|\Z))")


@dataclass(frozen=True)
class Document:
    """The text of one file; ``place`` is how errors name it, ``stem`` its name without ending."""

    path: Path
    text: str

    @property
    def place(self) -> str:
        """What errors call the file."""
        return shown(self.path, 200)

    @property
    def stem(self) -> str:
        """The file's name up to its first dot of an ending: the host's name, for listings that hold none."""
        return check_name(self.path.stem, self.place)

    @cached_property
    def data(self) -> Any:
        """The data of a JSON or YAML text. Raises ``InstanceError``."""
        if self.text.lstrip()[:1] in ("{", "["):
            return parse_json(self.text, self.place)
        return parse_yaml(self.text, self.place)

    @cached_property
    def json_start(self) -> int:
        """Where the text's JSON begins, -1 if it holds none."""
        if self.text.lstrip().startswith("{"):
            return 0
        found = _JSON.search(self.text, 0, 20_000)
        return found.start() if found else -1

    @cached_property
    def values(self) -> list[Any]:
        """The values of a JSON text, one or several after each other, or of YAML documents between ``---``.

        Raises ``InstanceError``.
        """
        marked = re.search(r"(?m)^---\s*$", self.text)  # which makes YAML of JSON
        if self.json_start >= 0 and not marked:
            return parse_json_values(self.text, self.place, self.json_start)
        if len(self.text) > MAX_YAML_BYTES:
            message = f"{len(self.text):,} characters of YAML, at most {MAX_YAML_BYTES:,} are read; save it with -o json"
            raise InstanceError(Problem(self.place, message))
        parts = [part for part in re.split(r"(?m)^---(?=\s|\Z)", self.text) if part.strip()]
        if len(parts) == 1:
            return [parse_yaml(self.text, self.place)]  # its mistakes have the lines of the file
        return [
            parse_yaml(part, f"{self.place}: document {number}")
            for number, part in enumerate(parts, 1)
        ]

    @cached_property
    def items(self) -> list[dict[str, Any]]:
        """The objects of Kubernetes listings, or single ones, one or several in the file; empty if there are none.

        An object of a typed list, such as ``NodeList``, may leave its kind to the list. Raises ``InstanceError`` if
        the text looks like a listing and cannot be read.
        """
        yaml = self.text.lstrip()[:1] == "-" or _KUBERNETES.search(self.text)
        if self.json_start < 0 and not yaml:
            return []
        return [item for value in self.values for item in _objects(value)]

    def kinds(self) -> set[str]:
        """Values of ``kind`` of the objects."""
        try:
            return {str(item.get("kind")) for item in self.items}
        except InstanceError:
            return set()


def _objects(data: Any) -> list[dict[str, Any]]:
    """The objects of a list, of a mapping with ``items``, or the one object."""
    kind = ""
    if isinstance(data, dict):
        inside = data.get("items")
        kind = str(data.get("kind")).removesuffix("List") if isinstance(inside, list) else ""
        data = inside if isinstance(inside, list) else [data]
    objects = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    return [{"kind": kind, **item} if kind and "kind" not in item else item for item in objects]


def read_document(path: Path) -> Document:
    """The document of a file, or of a folder of ``kubectl cluster-info dump``. Raises ``InstanceError``."""
    if is_folder(path):
        return Document(path, _dumped(path))
    text = read_text(path, _MOST_BYTES)
    return Document(path, _without_logs(text, shown(path, 200)) if _LOGS in text else text)


def _dumped(folder: Path) -> str:
    """Nodes and pods of a dump, one listing after the other. Raises ``InstanceError`` for another folder."""
    for ending, between in ((".json", "\n"), (".yaml", "\n---\n")):
        if not is_file(folder / f"nodes{ending}"):
            continue
        found, size = [], 0
        for path in [folder / f"nodes{ending}", *sorted(folder.glob(f"*/pods{ending}"))]:
            found.append(read_text(path, _MOST_BYTES - size))
            size += len(found[-1])
        return between.join(found)
    message = "a folder without nodes.json; one that kubectl cluster-info dump --output-directory wrote is read, or files"
    raise InstanceError(Problem(shown(folder, 200), message))


def _without_logs(text: str, place: str) -> str:
    """A dump without what containers have logged between its listings. Raises ``InstanceError`` where it ends there."""
    kept: list[str] = []
    inside = ""
    for line in text.splitlines():
        if not inside and line.startswith(_LOGS):
            inside = line
        elif inside:
            inside = "" if line.startswith(_LOGS_END) else inside
        else:
            kept.append(line)
    if inside:
        message = f"ends within {shown(inside.strip('= '), 120)}; the file seems cut off"
        raise InstanceError(Problem(place, message))
    return "\n".join(kept)


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []

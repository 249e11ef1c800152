"""A file that an operator gave: read once within the bounds of :mod:`topology.reading`, parsed when asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topology.errors import InstanceError
from topology.names import check_name, shown
from topology.reading import MAX_YAML_BYTES, parse_json, parse_yaml, read_text

#: more than any listing of 200,000 chips needs
_MOST_BYTES = 64 * 2**20


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
    def items(self) -> list[dict[str, Any]]:
        """The objects of a Kubernetes listing, or of one object; empty if the text is none.

        Raises ``InstanceError`` if the text begins like a listing and cannot be read.
        """
        head = self.text.lstrip()
        if head[:1] not in ("{", "[") and not head.startswith(
            ("apiVersion:", "kind:", "items:", "---", "-")
        ):
            return []
        if head[:1] not in ("{", "[") and len(self.text) > MAX_YAML_BYTES:
            return []
        data = self.data
        if isinstance(data, dict):
            data = data["items"] if isinstance(data.get("items"), list) else [data]
        return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []

    def kinds(self) -> set[str]:
        """Values of ``kind`` of the objects."""
        try:
            return {str(item.get("kind")) for item in self.items}
        except InstanceError:
            return set()


def read_document(path: Path) -> Document:
    """The document of a path. Raises ``InstanceError``."""
    return Document(path, read_text(path, _MOST_BYTES))


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []

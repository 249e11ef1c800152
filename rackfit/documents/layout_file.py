"""A file that should hold a layout: what it holds, or what it is instead and which file to name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from topology.catalogue import is_file, read_data
from topology.errors import InstanceError, Problem, on_command_line
from topology.names import shown


def read_layout_data(path: Path) -> dict[str, Any]:
    """The document in a file that may hold a layout. Raises ``InstanceError`` for what is no such file."""
    if not is_file(path):
        raise InstanceError(Problem(shown(path, 300), _no_file(path)))
    data = read_data(path)
    if not isinstance(data, dict):
        raise InstanceError(
            Problem(
                str(path), f"expected a JSON object written by {on_command_line('rackfit ')}solve"
            )
        )
    if "layout" not in data and isinstance(data.get("models"), list) and "schema_version" in data:
        message = "holds several models: name one of layouts/*.json beside it, each with the layout of a model"
        raise InstanceError(Problem(str(path), message))
    if "layout" not in data and "schema_version" not in data:
        message = on_command_line(
            "is not a layout: write one with rackfit solve ... --out FILE",
            "is not a layout: give the whole document that solve answers",
        )
        raise InstanceError(Problem(str(path), message))
    return data


def _no_file(path: Path) -> str:
    try:
        if not path.is_dir():
            return "no such file"
        if (path / "layouts").is_dir():
            return "is a folder: name one of its layouts/*.json"
    except (OSError, ValueError):
        return "no such file"
    return "is a folder: name the layout in it that rackfit solve ... --out FILE wrote"

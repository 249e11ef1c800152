"""Where the data lives, and how a YAML or JSON file is read safely. Knows nothing of what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from topology.errors import InstanceError, Problem

#: A data file larger than this is refused before it is parsed.
MAX_FILE_BYTES = 16 * 2**20

#: what ends the name of a data file; other names without a slash are those of the catalogue
_DATA_SUFFIXES = (".json", ".yaml", ".csv", ".npy", ".npz", ".pt")


def data_dir(kind: str) -> Path:
    """Folder of the shipped data of one ``kind`` (``"chips"``, ``"clusters"``, ``"models"``, ...)."""
    root = Path(__file__).resolve().parent.parent
    for base in (root / "rackfit" / "instances", root / "instances"):
        if base.is_dir():
            return base / kind
    raise InstanceError(f"the shipped data is missing: no instances folder beside {root}")


def catalogue_names(kind: str, suffixes: tuple[str, ...] = (".yaml", ".json")) -> list[str]:
    """Sorted names of the shipped entries of one kind."""
    folder = data_dir(kind)
    return sorted({path.stem for path in folder.iterdir() if path.suffix in suffixes})


def resolve(name: str, kind: str, suffixes: tuple[str, ...] = (".yaml", ".json")) -> Path:
    """Path of a catalogue name or of a file the user names. Raises ``InstanceError`` with what exists."""
    text = str(name)
    if "\0" in text or len(text) > 4096:
        raise InstanceError(Problem(kind, "not a usable name or path"))
    if "/" in text or text.endswith(suffixes):
        path = Path(text)
        if path.is_file():
            return path
        raise InstanceError(Problem(text, "no such file"))
    for suffix in suffixes:
        path = data_dir(kind) / f"{text}{suffix}"
        if path.is_file():
            return path
    raise InstanceError(
        Problem(kind, f"unknown name {text[:80]!r}; {_known(text, kind, suffixes)}")
    )


def beside(file: Path, name: str) -> str:
    """``name`` as the text of ``file`` means it: a relative path that exists from its folder, else as it is.

    ``my-rack.yaml@2`` keeps its count.
    """
    stem, at, count = name.rpartition("@")
    path = stem if at and count.isdecimal() else name
    found = file.parent / path
    meant = "/" in path or path.endswith(_DATA_SUFFIXES)
    if not meant or Path(path).is_absolute() or len(path) > 4096 or "\0" in path:
        return name
    if not found.exists():
        return name
    return str(found) + name[len(path) :]


def _known(text: str, kind: str, suffixes: tuple[str, ...]) -> str:
    """What exists: everything if it is little, else what is closest and where the rest is listed."""
    names = catalogue_names(kind, suffixes)
    if len(names) <= 12:
        return f"known: {', '.join(names)}; or give a path"
    close = get_close_matches(text.lower(), names, n=4, cutoff=0.5)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{meant}`rackfit catalogue {kind}` lists all {len(names)}; or give a path"


def read_data(path: Path) -> Any:
    """Parse one YAML (safe loader) or JSON file. Raises ``InstanceError`` with file, line and column."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InstanceError(
                Problem(str(path), f"{size} bytes; at most {MAX_FILE_BYTES} are read")
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InstanceError(Problem(str(path), error.strerror or "cannot be read")) from None
    except UnicodeDecodeError as error:
        raise InstanceError(Problem(str(path), f"not UTF-8 text (byte {error.start})")) from None
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.safe_load(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise InstanceError(Problem(place, f"not JSON: {error.msg}")) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        reason = getattr(error, "problem", None) or "not YAML"
        raise InstanceError(Problem(place, f"not YAML: {reason}")) from None
    except RecursionError:
        raise InstanceError(Problem(str(path), "nested too deeply")) from None
    except ValueError as error:
        raise InstanceError(Problem(str(path), str(error))) from None


@contextmanager
def checked(place: str) -> Iterator[None]:
    """Around ``model_validate``: every problem that pydantic finds as one ``InstanceError`` with its place."""
    try:
        yield
    except ValidationError as error:
        raise InstanceError(problems_of(error, place)) from None


def problems_of(error: ValidationError, place: str) -> list[Problem]:
    """The problems of a pydantic error as ``place: path`` and a sentence."""
    problems = []
    for item in error.errors(include_url=False):
        # parts such as <name> tell alternatives of one field apart and are not in the file
        parts = [part for part in item["loc"] if not str(part).startswith(("<", "function-"))]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] not in ("missing", "value_error", "extra_forbidden"):
            message = f"{message}, got {item['input']!r:.80}"
        if item["type"] == "extra_forbidden":
            message = "unknown key (a typing mistake?)"
        if item["type"] == "missing":
            message = "is missing"
        problems.append(Problem(f"{place}: {path.lstrip('.')}".rstrip(": "), message))
    return problems

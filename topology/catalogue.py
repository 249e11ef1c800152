"""Where the data lives, and how a YAML or JSON file is read safely. Knows nothing of what is in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from topology.errors import InstanceError, Problem
from topology.names import brief, shown
from topology.reading import MAX_YAML_BYTES, parse_json, parse_yaml, read_text

#: problems of one file that are told one by one
_MOST_PROBLEMS = 20

#: what ends the name of a data file; other names without a slash are those of the catalogue
_DATA_SUFFIXES = (".json", ".yaml", ".csv", ".csv.gz", ".npy", ".npz", ".pt")


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
        if is_file(path):
            return path
        there = os.path.exists(path)
        raise InstanceError(
            Problem(shown(text, 200), "is not an ordinary file" if there else "no such file")
        )
    for suffix in suffixes:
        path = data_dir(kind) / f"{text}{suffix}"
        if is_file(path):
            return path
    raise InstanceError(
        Problem(kind, f"unknown name {text[:80]!r}; {_known(text, kind, suffixes)}")
    )


def is_file(path: Path) -> bool:
    """Whether there is an ordinary file; also for names that no file can have."""
    return os.path.isfile(path)


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
    return str(found) + name[len(path) :] if is_file(found) or is_folder(found) else name


def is_folder(path: Path) -> bool:
    """Whether there is a folder; also for names that nothing can have."""
    return os.path.isdir(path)


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
    place = shown(path)
    if path.suffix == ".json":
        return parse_json(read_text(path), place)
    return parse_yaml(read_text(path, MAX_YAML_BYTES), place)


@contextmanager
def checked(place: str) -> Iterator[None]:
    """Around ``model_validate``: every problem that pydantic finds as one ``InstanceError`` with its place."""
    try:
        yield
    except ValidationError as error:
        raise InstanceError(problems_of(error, place)) from None


def problems_of(error: ValidationError, place: str) -> list[Problem]:
    """The problems of a pydantic error as ``place: path`` and a sentence; of very many the first ones."""
    problems = []
    every = error.errors(include_url=False)
    # a list whose items are all wrong is not too short: pydantic counts those that were right
    said = [one for one in every if not (one["type"] == "too_short" and one["input"])] or every
    for item in said[:_MOST_PROBLEMS]:
        # parts such as <name> tell alternatives of one field apart and are not in the file
        parts = [part for part in item["loc"] if not str(part).startswith(("<", "function-"))]
        path = "".join(
            f"[{part}]" if isinstance(part, int) else f".{shown(part, 60)}" for part in parts
        )
        message = shown(plain_words(item["msg"]), 1000)
        if item["type"] not in ("missing", "value_error", "extra_forbidden"):
            given = "nothing" if item["input"] is None else brief(item["input"])
            message = f"{message}, got {given}"
        if item["type"] == "extra_forbidden":
            message = "unknown key (a typing mistake?)"
        if item["type"] == "missing":
            message = "is missing"
        problems.append(Problem(f"{place}: {path.lstrip('.')}".rstrip(": "), message))
    more = len(said) - len(problems)
    return [*problems, Problem(place, f"and {more} more problems")] if more else problems


#: what pydantic says, by its beginning, and the words for it here
_WORDS = (
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to ", "must be at least "),
    (r"Input should be greater than ", "must be above "),
    (r"Input should be less than or equal to ", "must be at most "),
    (r"Input should be less than ", "must be below "),
    (
        r"Input should be (an object|a valid dictionary( or instance of \w+)?)",
        "expected keys with values",
    ),
    (
        r"Input should be a valid integer(, unable to parse .*|, got a number .*)?$",
        "expected a whole number",
    ),
    (r"Input should be a valid number(, unable to parse .*)?$", "expected a number"),
    (r"Input should be a valid boolean(, unable to .*)?$", "expected true or false"),
    (r"Input should be a valid string$", "expected text"),
    (r"Input should be a valid (list|tuple|set)$", "expected a list"),
    (r"Input should be ", "expected "),
    (
        r"(Tuple|List|Set|Dictionary) should have at least 1 item after validation, not 0",
        "must name at least one",
    ),
)


def plain_words(said: str) -> str:
    """A sentence of pydantic's in the words of all other messages."""
    for pattern, words in _WORDS:
        found = re.match(pattern, said)
        if found:
            return words + said[found.end() :]
    return said

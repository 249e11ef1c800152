"""Where the data lives, and how a YAML or JSON file is read safely. Knows nothing of what is in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from topology.errors import InstanceError, Problem, kind_of_data, on_command_line, told
from topology.names import brief, shown
from topology.reading import MAX_YAML_BYTES, parse_json, parse_yaml, read_text

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
        raise InstanceError(Problem(kind_of_data(kind), "not a usable name or path"))
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
        Problem(kind_of_data(kind), f"unknown name {text[:80]!r}; {_known(text, kind, suffixes)}")
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
    file = on_command_line("a path", "a file's name and its content in files")
    if text.endswith(_DATA_SUFFIXES):
        file = f"a file whose name ends in {' or '.join(suffixes)}"
    told = f"known: {', '.join(names)}; or give {file}"
    if len(names) <= 12:
        return told
    close = get_close_matches(text.lower(), names, n=4, cutoff=0.5)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    listed = f"`rackfit catalogue {kind}` lists all {len(names)}; or give {file}"
    return meant + on_command_line(listed, told)


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
    #: what is said of a value at a place; of no value where what is said is whole
    found: dict[tuple[str, str | None], list[str]] = {}
    every = error.errors(include_url=False)
    # a list whose items are all wrong is not too short: pydantic counts those that were right
    said = [one for one in every if not (one["type"] == "too_short" and one["input"])] or every
    paths = [_path(item["loc"], whole=item["type"] == "extra_forbidden") for item in said]
    # a list may be wrong in its entries: that it is no number, the other thing it might be, tells nothing
    lists = {path.rpartition("[")[0] for path in paths if path.endswith("]")}
    # and a value that is read and refused need not be a list
    read = {path for one, path in zip(said, paths, strict=True) if one["type"] == "value_error"}
    for item, path in zip(said, paths, strict=True):
        unknown = item["type"] == "extra_forbidden"
        if path in read and item["type"] in ("tuple_type", "list_type"):
            continue
        if (
            path in lists
            and isinstance(item["input"], list)
            and _BRANCH.fullmatch(str(item["loc"][-1]))
        ):
            continue
        where, given = f"{place}: {path.lstrip('.')}".rstrip(": "), None
        message = shown(plain_words(item["msg"]), 1000)
        if unknown:
            message = "unknown key (a typing mistake?)"
        elif item["type"] == "missing":
            message = "is missing"
        elif item["type"] != "value_error":
            given = "nothing" if item["input"] is None else brief(item["input"])
        found.setdefault((where, given), []).append(message)
    problems: list[Problem] = []
    for (where, given), messages in found.items():
        if given is not None:
            # each alternative of one field says what it expected
            first, *others = messages
            other = "".join(f" or {message.removeprefix('expected ')}" for message in others)
            messages = [f"{first}{other}, got {given}"]
        problems += [Problem(where, message) for message in messages]
    return told(problems, place)


def _path(places: Sequence[int | str], *, whole: bool) -> str:
    """A place of pydantic's as a path; ``whole``: the last part is a key of the file, whatever it looks like."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{shown(part, 60)}"
        for number, part in enumerate(places)
        if not _BRANCH.fullmatch(str(part)) or (whole and number == len(places) - 1)
    )


#: parts of a pydantic place that tell alternatives of one field, or a key from its value; no file holds them
_BRANCH = re.compile(
    r"<.*|function-.*|\[key\]|bool|int|float|str|constrained-\w+|(literal|tuple|list|dict|lax-or-strict)\[.*\]"
)


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
    (r"Input should be a valid string(, unable to .*)?$", "expected text"),
    (r"Unable to parse input string as an integer.*", "is too large for a whole number"),
    (r"String should have at least 1 character$", "must not be empty"),
    (r"String should have ", "must have "),
    (
        r"(Dictionary|List|Tuple|Set) should have (at most \d+) items? after validation, not .*",
        r"must have \2 entries",
    ),
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
            return found.expand(words) + said[found.end() :]
    return said

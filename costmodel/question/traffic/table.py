"""CSV files and lines of JSON of any length, gzip'd or not, read line by line within bounds."""

from __future__ import annotations

import csv
import gzip
import json
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from topology.errors import InstanceError, Problem
from topology.names import shown

#: characters of a line, of a file as it unpacks, and lines of it
MOST_LINE, MOST_TEXT, MOST_LINES = 2**20, 2**30, 5_100_000


def text_lines(path: Path) -> Iterator[str]:
    """Lines of an ordinary UTF-8 file. Raises ``InstanceError`` where it cannot be read or has no end."""
    place = shown(path)
    seen = 0
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InstanceError(Problem(place, "is not an ordinary file"))
        with _opened(path) as file:
            for number in range(1, MOST_LINES + 2):
                line = file.readline(MOST_LINE + 1)
                if not line:
                    return
                seen += len(line)
                if len(line) > MOST_LINE:
                    message = f"a line of more than {MOST_LINE:,} characters"
                    raise InstanceError(Problem(f"{place}:{number}", message))
                if seen > MOST_TEXT or number > MOST_LINES:
                    message = f"more than {MOST_TEXT:,} characters or {MOST_LINES:,} lines; cut it"
                    raise InstanceError(Problem(place, message))
                yield line
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"cannot be read: {error}"
        raise InstanceError(Problem(place, reason)) from None
    except UnicodeDecodeError as error:
        raise InstanceError(Problem(place, f"not UTF-8 text (byte {error.start})")) from None
    except ValueError:
        raise InstanceError(Problem(place, "not a usable path")) from None


def columns_of(line: str, place: str) -> list[str]:
    """The columns that a line names. Raises ``InstanceError`` where a name has no end."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise InstanceError(Problem(place, f"not CSV: {error}")) from None


def header_of(line: str, needed: tuple[str, ...], known: tuple[str, ...], place: str) -> list[str]:
    """The columns that a line names. Raises ``InstanceError`` where one is missing or there twice."""
    header = columns_of(line, place)
    missing = [name for name in needed if name not in header]
    if missing:
        message = f"columns missing: {', '.join(missing)}; known: {', '.join(known)}"
        raise InstanceError(Problem(place, message))
    twice = [name for name, count in Counter(header).items() if count > 1 and name in known]
    if twice:
        raise InstanceError(Problem(place, f"the column {twice[0]} is there twice"))
    return header


def cells_of(lines: Iterator[str], path: Path, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """Cells of the rows that are not empty, each with the number of its line."""
    rows = csv.reader(lines)
    try:
        for cells in rows:
            if cells:
                yield rows.line_num + skipped, cells
    except csv.Error as error:
        raise InstanceError(
            Problem(f"{shown(path)}:{rows.line_num + skipped}", f"not CSV: {error}")
        ) from None


def row_of(cells: list[str], header: list[str], place: str) -> dict[str, str]:
    """Cells by column. Raises ``InstanceError`` where there are more or fewer than columns."""
    if len(cells) != len(header):
        raise InstanceError(Problem(place, f"{len(cells)} cells under {len(header)} columns"))
    return dict(zip(header, cells, strict=True))


def objects_of(
    lines: Iterator[str], path: Path
) -> Iterator[tuple[int, Callable[[], Mapping[str, object]]]]:
    """Lines of JSON that are not empty: the number of each, and how its object is read, which raises ``InstanceError``."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, partial(_object, line, f"{shown(path)}:{number}")


def _object(line: str, place: str) -> Mapping[str, object]:
    try:
        found = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InstanceError(Problem(place, f"not JSON: {str(error).partition(':')[0]}")) from None
    if not isinstance(found, dict):
        raise InstanceError(Problem(place, "expected an object, a request"))
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")

"""Traces: CSV files of requests, read with every problem at its line.

Columns ``t_s,input_tokens,output_tokens`` and, where known, ``session`` and ``hash_ids`` (ids of the prompt's
leading blocks, separated by spaces; equal ids mean an equal prefix up to and including the block).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO

import numpy as np

from costmodel.question.spread import MAX_TOKENS
from costmodel.question.traffic.requests import Requests
from topology.errors import InstanceError, Problem

#: tokens of a block where nothing says otherwise
BLOCK_TOKENS = 512
MOST_REQUESTS = 5_000_000
_MOST_BYTES = 2 * 2**30
_MOST_PROBLEMS = 10
_NEEDED = ("t_s", "input_tokens", "output_tokens")
_KNOWN = (*_NEEDED, "session", "hash_ids")


def read_trace(
    path: Path, *, block_tokens: int | None = None, components: Path | None = None
) -> Requests:
    """Read a trace, gzip'd or not.

    ``block_tokens``: tokens of a block (else what the file's first line says, else :data:`BLOCK_TOKENS`).
    ``components``: a CSV ``hash_id,tokens`` for blocks of unlike sizes.
    Raises ``InstanceError`` with file and line of the first problems.
    """
    try:
        with _opened(path) as file:
            return _Reader(path, file, block_tokens, _sizes(components)).read()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"cannot be read: {error}"
        raise InstanceError(Problem(str(path), reason)) from None
    except UnicodeDecodeError as error:
        raise InstanceError(Problem(str(path), f"not UTF-8 text (byte {error.start})")) from None
    except csv.Error as error:
        raise InstanceError(Problem(str(path), f"not CSV: {error}")) from None


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _sizes(path: Path | None) -> dict[int, int] | None:
    """Tokens by block id."""
    if path is None:
        return None
    found: dict[int, int] = {}
    try:
        with _opened(path) as file:
            rows = csv.DictReader(file)
            if not {"hash_id", "tokens"} <= set(rows.fieldnames or ()):
                raise InstanceError(Problem(f"{path}:1", "expected columns hash_id and tokens"))
            for row in rows:
                place = f"{path}:{rows.line_num}"
                found[_whole(row["hash_id"], "hash_id", place)] = _whole(
                    row["tokens"], "tokens", place, least=1
                )
    except OSError as error:
        raise InstanceError(Problem(str(path), error.strerror or "cannot be read")) from None
    return found


class _Reader:
    """One pass over a file; problems are collected up to :data:`_MOST_PROBLEMS`."""

    def __init__(
        self, path: Path, file: IO[str], block_tokens: int | None, sizes: dict[int, int] | None
    ) -> None:
        self.path, self.file, self.sizes = path, file, sizes
        self.block_tokens = block_tokens
        self.problems: list[Problem] = []

    def read(self) -> Requests:
        arrival: list[float] = []
        given: list[int] = []
        asked: list[int] = []
        blocks: list[tuple[int, ...]] = []
        before = 0.0
        for line, row in self._rows():
            place = f"{self.path}:{line}"
            try:
                at = _seconds(row["t_s"], place)
                if at < before:
                    message = f"t_s {at:g} comes after {before:g}: sort the requests by time"
                    raise InstanceError(Problem(place, message))
                before = at
                lengths = [_whole(row[name], name, place, least=1) for name in _NEEDED[1:]]
                if row.get("session") == "":
                    raise InstanceError(Problem(place, "session is empty: give each request one"))
                ids = row.get("hash_ids")
                own = () if not ids else tuple(_whole(i, "hash_ids", place) for i in ids.split())
                if self.sizes is not None:
                    self._known(own, place)
            except InstanceError as error:
                self.problems += error.problems
                if len(self.problems) >= _MOST_PROBLEMS:
                    break
                continue
            if len(arrival) == MOST_REQUESTS:
                raise InstanceError(
                    Problem(place, f"more than {MOST_REQUESTS:,} requests; cut or thin the trace")
                )
            arrival.append(at)
            given.append(lengths[0])
            asked.append(lengths[1])
            blocks.append(own)
        if self.problems:
            raise InstanceError(self.problems)
        if not arrival:
            raise InstanceError(Problem(str(self.path), "holds no request"))
        known = any(blocks)
        return Requests(
            np.array(arrival) - arrival[0],
            np.array(given, dtype=np.int64),
            np.array(asked, dtype=np.int64),
            np.zeros(len(given), dtype=np.int64),
            blocks if known else (),
            [self._block_sizes(ids, n) for ids, n in zip(blocks, given, strict=True)]
            if known
            else (),
        )

    def _rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Lines with their cells by column."""
        lines = self._lines()
        first = next(lines, "")
        skipped = 1
        if first.startswith("#"):
            self._comment(first)
            first = next(lines, "")
            skipped = 2
        header = next(csv.reader([first]), [])
        missing = [name for name in _NEEDED if name not in header]
        if missing:
            raise InstanceError(
                Problem(
                    f"{self.path}:{skipped}",
                    f"columns missing: {', '.join(missing)}; known: {', '.join(_KNOWN)}",
                )
            )
        rows = csv.reader(lines)
        for cells in rows:
            line = rows.line_num + skipped
            if not cells:
                continue
            if len(cells) != len(header):
                message = f"{len(cells)} cells under {len(header)} columns"
                self.problems.append(Problem(f"{self.path}:{line}", message))
                if len(self.problems) >= _MOST_PROBLEMS:
                    return
                continue
            yield line, dict(zip(header, cells, strict=True))

    def _lines(self) -> Iterator[str]:
        """Lines, refused where the unpacked file would fill the memory."""
        seen = 0
        for line in self.file:
            seen += len(line)
            if seen > _MOST_BYTES:
                raise InstanceError(
                    Problem(str(self.path), f"more than {_MOST_BYTES:,} bytes; cut the trace")
                )
            yield line

    def _comment(self, line: str) -> None:
        """``# block_tokens: N`` before the header."""
        name, _, value = line.lstrip("# ").partition(":")
        if name.strip() == "block_tokens" and self.block_tokens is None:
            self.block_tokens = _whole(value, "block_tokens", f"{self.path}:1", least=1)

    def _known(self, ids: tuple[int, ...], place: str) -> None:
        assert self.sizes is not None
        unknown = [block for block in ids if block not in self.sizes]
        if unknown:
            raise InstanceError(Problem(place, f"hash_ids {unknown[0]} is not in the components"))

    def _block_sizes(self, ids: tuple[int, ...], tokens: int) -> tuple[int, ...]:
        """Tokens of each block; the last one holds what is left of the prompt."""
        sizes = []
        left = tokens
        for block in ids:
            size = (self.block_tokens or BLOCK_TOKENS) if self.sizes is None else self.sizes[block]
            sizes.append(max(min(size, left), 0))
            left -= sizes[-1]
        return tuple(sizes)


def _seconds(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < 1e10:
        raise InstanceError(Problem(place, f"t_s: expected seconds from 0, got {text!r:.40}"))
    return value


def _whole(text: str | None, name: str, place: str, *, least: int = 0) -> int:
    try:
        value = int(text or "")
    except ValueError:
        value = least - 1
    if not least <= value <= max(MAX_TOKENS, 10**12 if name == "hash_ids" else 0):
        message = f"{name}: expected a whole number from {least}, got {text!r:.40}"
        raise InstanceError(Problem(place, message))
    return value

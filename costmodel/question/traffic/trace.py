"""Traces: files of requests, read with every problem at its line.

A CSV has columns ``t_s,input_tokens,output_tokens`` and, where known, ``session`` and ``hash_ids`` (ids of the prompt's
leading blocks, separated by spaces; equal ids mean an equal prefix up to and including the block). Others' formats are in
:mod:`costmodel.question.traffic.formats`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from costmodel.question.spread import MAX_TOKENS
from costmodel.question.traffic.formats import NEEDED, TraceFormat, format_of
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.table import (
    cells_of,
    columns_of,
    header_of,
    objects_of,
    row_of,
    text_lines,
)
from topology.errors import InstanceError, Problem, either, option
from topology.quantity import is_number

#: what names of traces end with: of tables, and of lines of JSON
TABLES, LINES = (".csv", ".csv.gz"), (".jsonl", ".jsonl.gz")
#: tokens of a block where nothing says otherwise
BLOCK_TOKENS = 512
MOST_REQUESTS = 5_000_000
#: ids of blocks in all, and the largest
_MOST_IDS, _MOST_ID = 20_000_000, 10**12
_MOST_PROBLEMS = 10
_COMPONENTS = ("hash_id", "tokens")


def read_trace(
    path: Path, *, block_tokens: int | None = None, components: Path | None = None
) -> Requests:
    """Read a trace, gzip'd or not.

    ``block_tokens``: tokens of a block (else what the file's first line says, else :data:`BLOCK_TOKENS`).
    ``components``: a CSV ``hash_id,tokens`` for blocks of unlike sizes.
    Raises ``InstanceError`` with file and line of the first problems.
    """
    return _Reader(path, block_tokens, _sizes(components)).read()


def _sizes(path: Path | None) -> dict[int, int] | None:
    """Tokens by block id."""
    if path is None:
        return None
    lines = text_lines(path)
    header = header_of(next(lines, ""), _COMPONENTS, _COMPONENTS, f"{path}:1")
    found: dict[int, int] = {}
    for line, cells in cells_of(lines, path, 1):
        place = f"{path}:{line}"
        row = row_of(cells, header, place)
        block = whole(row["hash_id"], "hash_id", place, most=_MOST_ID)
        if block in found:
            raise InstanceError(Problem(place, f"hash_id {block} is there twice"))
        found[block] = whole(row["tokens"], "tokens", place, least=1)
    return found


#: a line's number, how its cells are read, and their format
_Line = tuple[int, Callable[[], Mapping[str, object]], TraceFormat]


class _Reader:
    """One pass over a file; problems are collected up to :data:`_MOST_PROBLEMS`."""

    def __init__(self, path: Path, block_tokens: int | None, sizes: dict[int, int] | None) -> None:
        self.path, self.sizes = path, sizes
        self.block_tokens = block_tokens
        self.problems: list[Problem] = []
        self._ids: dict[str, int] = {}
        self._smaller = False

    def read(self) -> Requests:
        arrival: list[float] = []
        given: list[int] = []
        asked: list[int] = []
        blocks: list[tuple[int, ...]] = []
        before = 0.0
        ids_read = 0
        for line, row in self._rows():
            place = f"{self.path}:{line}"
            try:
                at = seconds(row["t_s"], place)
                if at < before:
                    message = f"t_s {at:g} comes after {before:g}: sort the requests by time"
                    raise InstanceError(Problem(place, message))
                before = at
                lengths = [whole(row[name], name, place, least=1) for name in NEEDED[1:]]
                if row.get("session") == "":
                    raise InstanceError(Problem(place, "session is empty: give each request one"))
                ids = row.get("hash_ids")
                own = tuple(whole(i, "hash_ids", place, most=_MOST_ID) for i in (ids or "").split())
                if self.sizes is not None:
                    self._known(own, place)
                else:
                    self._fit(own, lengths[0], place)
            except InstanceError as error:
                self.problems += error.problems
                if len(self.problems) >= _MOST_PROBLEMS:
                    break
                continue
            if len(arrival) == MOST_REQUESTS:
                raise InstanceError(
                    Problem(place, f"more than {MOST_REQUESTS:,} requests; cut or thin the trace")
                )
            ids_read += len(own)
            if ids_read > _MOST_IDS:
                message = f"more than {_MOST_IDS:,} hash_ids; cut the trace, or use larger blocks"
                raise InstanceError(Problem(place, message))
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
        """Lines with their cells by our columns."""
        for line, cells, form in (
            self._objects() if self.path.name.endswith(LINES) else self._cells()
        ):
            place = f"{self.path}:{line}"
            try:
                yield line, self._own(form, cells(), place)
            except InstanceError as error:
                self.problems += error.problems
                if len(self.problems) >= _MOST_PROBLEMS:
                    return

    def _cells(self) -> Iterator[_Line]:
        """The rows of a CSV."""
        lines = text_lines(self.path)
        first = next(lines, "")
        skipped = 1
        if first.startswith("#"):
            self._comment(first)
            first = next(lines, "")
            skipped = 2
        header = columns_of(first, f"{self.path}:{skipped}")
        form = format_of(header, f"{self.path}:{skipped}", lines=False)
        known = tuple(form.columns.values())
        header_of(first, form.needed, known, f"{self.path}:{skipped}")
        for line, cells in cells_of(lines, self.path, skipped):
            yield line, partial(row_of, cells, header, f"{self.path}:{line}"), form

    def _objects(self) -> Iterator[_Line]:
        """The objects of JSON lines."""
        form: TraceFormat | None = None
        for line, read in objects_of(text_lines(self.path), self.path):
            if form is None:
                form = format_of(read(), f"{self.path}:{line}", lines=True)
                self.block_tokens = self.block_tokens or form.block_tokens
            yield line, read, form

    def _own(self, form: TraceFormat, cells: Mapping[str, object], place: str) -> dict[str, str]:
        """A request's cells by our columns; ids of blocks become small numbers."""
        missing = [name for name in form.needed if cells.get(name) is None]
        if missing:
            raise InstanceError(Problem(place, f"{', '.join(missing)} missing"))
        if form.failed and cells[form.columns["output_tokens"]] == "0":
            raise InstanceError(Problem(place, f"the request failed; {form.failed}"))
        found = {
            ours: cells[name] for ours, name in form.columns.items() if cells.get(name) is not None
        }
        if form.columns["t_s"] != "t_s":
            try:
                found["t_s"] = form.seconds(str(found["t_s"]))
            except ValueError:
                message = f"{form.columns['t_s']}: expected a time, got {str(found['t_s'])!r:.40}"
                raise InstanceError(Problem(place, message)) from None
        blocks = found.get("hash_ids")
        if isinstance(blocks, list):
            found["hash_ids"] = " ".join(
                str(self._ids.setdefault(str(one), len(self._ids))) for one in blocks
            )
        return {ours: str(value) for ours, value in found.items()}

    def _comment(self, line: str) -> None:
        """``# block_tokens: N`` before the header."""
        name, _, value = line.lstrip("# ").partition(":")
        if name.strip() == "block_tokens" and self.block_tokens is None:
            self.block_tokens = whole(value, "block_tokens", f"{self.path}:1", least=1)

    def _known(self, ids: tuple[int, ...], place: str) -> None:
        assert self.sizes is not None
        unknown = [block for block in ids if block not in self.sizes]
        if unknown:
            raise InstanceError(Problem(place, f"hash_ids {unknown[0]} is not in the components"))

    def _fit(self, ids: tuple[int, ...], tokens: int, place: str) -> None:
        """Refuse more blocks than a prompt has: smaller ones, whose prefixes would be counted too long. Said once."""
        size = self.block_tokens or BLOCK_TOKENS
        if self._smaller or len(ids) <= -(-tokens // size):
            return
        self._smaller = True
        ways = either(option("block-tokens"), "block_tokens of a YAML file that names this trace")
        message = f"{len(ids):,} hash_ids for {tokens:,} tokens at {size:,} a block; give {ways}"
        likely = 1 << (-(-tokens // len(ids)) - 1).bit_length()  # the least power of two that fits
        if -(-tokens // likely) == len(ids):
            message += f" ({likely:,}?)"
        raise InstanceError(Problem(place, message))

    def _block_sizes(self, ids: tuple[int, ...], tokens: int) -> tuple[int, ...]:
        """Tokens of each block; the last one holds what is left of the prompt."""
        sizes = []
        left = tokens
        for block in ids:
            size = (self.block_tokens or BLOCK_TOKENS) if self.sizes is None else self.sizes[block]
            sizes.append(max(min(size, left), 0))
            left -= sizes[-1]
        return tuple(sizes)


def seconds(text: str, place: str, name: str = "t_s") -> float:
    """A cell of times. Raises ``InstanceError``."""
    value = float(text) if is_number(text) else float("nan")
    if not 0 <= value < 1e10:
        raise InstanceError(Problem(place, f"{name}: expected seconds from 0, got {text!r:.40}"))
    return value


def whole(
    text: str | None, name: str, place: str, *, least: int = 0, most: int = MAX_TOKENS
) -> int:
    """A cell that holds a whole number. Raises ``InstanceError``."""
    plain = text is not None and re.fullmatch(r"\s*\+?[0-9]{1,20}\s*", text)
    value = int(plain[0]) if plain else least - 1
    if not least <= value <= most:
        limit = f" to {most}" if value > most else ""
        message = f"{name}: expected a whole number from {least}{limit}, got {text!r:.40}"
        raise InstanceError(Problem(place, message))
    return value

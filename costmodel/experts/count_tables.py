"""Recorded expert counts in a table: a row per layer and a column per expert, or a row per layer and expert.

A spreadsheet or pandas adds numbers that are no counts: of columns above them, of rows before them. What is not
certainly one or the other is refused.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from costmodel.experts.raw_loads import RawLoads, as_windows
from costmodel.experts.unpacked import check_bytes
from topology.errors import InstanceError, Problem
from topology.quantity import is_number
from topology.reading import MAX_JSON_ELEMENTS, read_text

#: names of the column that says the layer, and of that which says the expert
_LAYER = frozenset({"layer", "layer_id", "layer_idx", "layer_index", "moe_layer"})
_EXPERT = frozenset({"expert", "expert_id", "expert_idx", "expert_index"})

#: a row that is not empty, by its place in the file
Row = tuple[int, list[str]]


def read_csv(path: Path) -> RawLoads:
    """A table of counts. A first row of names is skipped.

    A first column without a name, or named after layers, holds the layers' numbers. Three columns, one of
    them named after layers and one after experts, hold a count in each row, as older SGLang writes them.
    """
    text = read_text(path)
    cells = text.count(",") + text.count("\n")
    if cells > MAX_JSON_ELEMENTS:
        message = f"{cells:,} cells; at most {MAX_JSON_ELEMENTS:,} are read (.npy takes more)"
        raise InstanceError(Problem(str(path), message))
    lines = csv.reader(io.StringIO(text, newline=""))
    rows: list[Row] = [
        (lines.line_num, [cell.strip() for cell in row])
        for row in lines
        if any(cell.strip() for cell in row)
    ]
    names: list[str] = []
    if rows and not all(is_number(cell) for cell in rows[0][1]):
        names = [cell.lower() for cell in rows.pop(0)[1]]
    if not rows:
        raise ValueError("no rows of counts")
    if len({len(row) for _, row in rows}) > 1:
        raise ValueError("rows of different lengths")
    if names and len(names) != len(rows[0][1]):
        raise ValueError(f"{len(names)} names above rows of {len(rows[0][1])}")
    _check_numbers(rows)
    if len(names) == 3 and _LAYER & set(names) and _EXPERT & set(names):
        return _of_pairs(rows, names, path)
    layers: tuple[int, ...] = ()
    if names and (not names[0] or names[0] in _LAYER):
        layers = _layers(rows)
        rows = [(line, row[1:]) for line, row in rows]
    counts = np.array([[float(cell) for cell in row] for _, row in rows])
    numbered = len(rows) > 1 and np.array_equal(counts[0], np.arange(counts.shape[1]))
    if numbered and not names and counts.shape[1] > 2:
        line, last = rows[0][0], counts.shape[1] - 1
        raise ValueError(
            f"row {line} is 0 to {last}: leave it out where these number the experts; where they are counts, put "
            "a row of names before it"
        )
    raw = as_windows(counts, path.stem, str(path))
    return RawLoads(raw.windows, raw.names, layer_ids=layers)


def _check_numbers(rows: list[Row]) -> None:
    for line, row in rows:
        for cell in row:
            if not is_number(cell):
                raise ValueError(f"row {line}: {cell[:40]!r} is not a number")


def _layers(rows: list[Row]) -> tuple[int, ...]:
    """The first column as layers, one after the other."""
    found: list[int] = []
    for line, row in rows:
        layer = _whole(row[0], "a layer", line)
        if found and layer <= found[-1]:
            raise ValueError(f"row {line}: layer {layer} comes after layer {found[-1]}")
        found.append(layer)
    return tuple(found)


def _of_pairs(rows: list[Row], names: list[str], path: Path) -> RawLoads:
    """Counts of layers and experts, each in a row; what has no row was never chosen, and rows of one pair add up."""
    at_layer = next(place for place, name in enumerate(names) if name in _LAYER)
    at_expert = next(place for place, name in enumerate(names) if name in _EXPERT)
    at_count = 3 - at_layer - at_expert
    pairs = [
        (_whole(row[at_layer], "a layer", line), _whole(row[at_expert], "an expert", line), row)
        for line, row in rows
    ]
    layers = sorted({layer for layer, _, _ in pairs})
    experts = max(expert for _, expert, _ in pairs) + 1
    check_bytes(8 * len(layers) * experts, path)
    counts = np.zeros((len(layers), experts))
    row_of = {layer: place for place, layer in enumerate(layers)}
    for layer, expert, row in pairs:
        counts[row_of[layer], expert] += float(row[at_count])
    raw = as_windows(counts, path.stem, str(path))
    return RawLoads(raw.windows, raw.names, layer_ids=tuple(layers))


def _whole(cell: str, what: str, line: int) -> int:
    if not (cell.isascii() and cell.isdecimal() and len(cell) <= 9):
        raise ValueError(f"row {line}: expected the number of {what}, got {cell[:40]!r}")
    return int(cell)

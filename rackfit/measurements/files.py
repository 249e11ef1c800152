"""Files of measured runs: those that folders hold, and the JSON objects in one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from costmodel.measured.rows import ForeignFileError
from rackfit.measurements.readers import inference_perf, vllm_bench
from topology.catalogue import is_file, is_folder
from topology.errors import InstanceError, Problem
from topology.names import shown
from topology.reading import parse_json, read_text

#: runs of one call
MAX_FILES = 5000
#: entries of a folder that are looked at; a whole disk is no folder of results
MAX_ENTRIES = 20_000
#: of tools that also write all their runs into one file more
_SUMS = (inference_perf.is_sum, vllm_bench.is_sum)


def result_files(paths: Sequence[Path]) -> list[Path]:
    """Files as given, and the results in folders, each once: a run that is named twice was measured once. Raises ``InstanceError``."""
    found: list[Path] = []
    for path in paths:
        if not is_folder(path):
            found.append(path)
            continue
        inside = sorted(_results(path))
        if not inside:
            raise InstanceError(Problem(shown(path, 200), "holds no .json, .jsonl or .csv file"))
        found += inside
        if len(found) > MAX_FILES:
            break
    if len(found) > MAX_FILES:
        raise InstanceError(Problem("runs", f"more than {MAX_FILES:,} files"))
    once: dict[str, Path] = {}
    for path in found:
        once.setdefault(os.path.realpath(path), path)
    return list(once.values())


def _results(folder: Path) -> Iterator[Path]:
    """Result files below a folder. Raises ``InstanceError`` for a folder of so many entries that it is no such one."""
    seen = 0
    for parent, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            message = f"holds more than {MAX_ENTRIES:,} files and folders; name a folder of results"
            raise InstanceError(Problem(shown(folder, 200), message))
        for name in files:
            if (
                name.endswith((".json", ".jsonl", ".csv", ".csv.gz"))
                and not any(is_sum(name, files) for is_sum in _SUMS)
                and is_file(file := Path(parent, name))
            ):
                yield file


def entries(path: Path) -> Iterator[tuple[Any, str]]:
    """The JSON objects of a file, one or one per line, and their places.

    Raises ``ForeignFileError`` where it is too large for a result or no text, ``InstanceError`` where it is cut off.
    """
    place = shown(path, 200)
    try:
        text = read_text(path)
    except InstanceError as error:
        raise ForeignFileError(error.problems) from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix == ".jsonl" or (len(lines) > 1 and _is_whole(lines[0][1])):
        for number, line in lines:
            yield parse_json(line, f"{place}:{number}", python=True), f"{place}:{number}"
        return
    data = parse_json(text, place, python=True)
    if isinstance(data, list):
        for index, entry in enumerate(data):
            yield entry, f"{place}[{index}]"
    else:
        yield data, place


def _is_whole(line: str) -> bool:
    """Whether a line is an object: tools that append write one per line, whatever the file is called."""
    try:
        return isinstance(parse_json(line, "", python=True), dict)
    except InstanceError:
        return False

"""How much a file of arrays may unpack to, looked at before it is unpacked."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from topology.errors import InstanceError, Problem

#: Unpacked bytes that every file may have, and for each of its own bytes.
LEAST_BYTES, TIMES = 64 * 2**20, 20
#: Unpacked bytes that no file may pass.
MOST_BYTES = 2**30


def most_bytes(path: Path) -> int:
    """Bytes that a file's arrays may take together; a small file never takes much memory."""
    return min(MOST_BYTES, max(LEAST_BYTES, TIMES * path.stat().st_size))


def check_bytes(total: int, path: Path) -> None:
    """Raise ``InstanceError`` where the arrays of a file are larger than it may unpack to."""
    most = most_bytes(path)
    if total > most:
        message = f"unpacks to {total:,} bytes; at most {most:,} are read of a file of its size"
        raise InstanceError(Problem(str(path), message))


def check_archive(archive: zipfile.ZipFile, path: Path) -> None:
    """As :func:`check_bytes`, of all members of a zip; what a member unpacks to is written in its entry."""
    check_bytes(sum(entry.file_size for entry in archive.infolist()), path)


def check_arrays(path: Path) -> None:
    """As :func:`check_bytes`, of the shapes that the headers of an ``.npz`` or ``.npy`` file tell."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            check_bytes(_array_bytes(file), path)
        return
    with zipfile.ZipFile(path) as archive:
        check_archive(archive, path)
        total = 0
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    total += _array_bytes(file)
        check_bytes(total, path)


def _array_bytes(file: IO[bytes]) -> int:
    """Bytes of the array whose header comes next. Raises ``ValueError`` for another file."""
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("holds pickled objects, which are never loaded; save plain numbers")
    return elements(shape) * dtype.itemsize


def elements(shape: Sequence[int]) -> int:
    """Elements of an array of this shape. Raises ``ValueError`` for a negative side."""
    if any(side < 0 for side in shape):
        raise ValueError("an array of impossible shape")
    return math.prod(int(side) for side in shape)

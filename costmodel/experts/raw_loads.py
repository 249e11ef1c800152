"""Recorded expert loads as a file gives them, before anything is checked, and the limits of reading."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from topology.errors import InstanceError, Problem

#: A load file larger than this is refused before it is read.
MAX_FILE_BYTES = 2**30


#: Recorded passes or iterations are summed into at most this many windows.
MOST_WINDOWS = 8


@dataclass(frozen=True, slots=True)
class RawLoads:
    """Arrays as found: ``windows [window, layer, expert]`` and what the format says of its rows.

    ``has_dense_rows``: layers without experts have a row of zeros. ``top_k``: experts per token, where the file says it.
    """

    windows: NDArray[np.generic]
    names: tuple[str, ...]
    has_dense_rows: bool = False
    layer_ids: tuple[int, ...] = ()
    top_k: int | None = None


def as_windows(array: NDArray[np.generic], name: str, place: str) -> RawLoads:
    """``[layers, experts]`` as one window, ``[windows, layers, experts]`` as they are."""
    if array.ndim == 2:
        return RawLoads(array[None], (name,))
    if array.ndim == 3:
        return RawLoads(array, tuple(f"{name}[{index}]" for index in range(array.shape[0])))
    raise InstanceError(
        Problem(
            place,
            "expected counts [layers, experts] or [windows, layers, experts], got shape "
            f"{array.shape}",
        )
    )


def summed_windows(raw: RawLoads) -> RawLoads:
    """SGLang's recorded passes summed into up to :data:`MOST_WINDOWS` equal windows."""
    parts = np.array_split(raw.windows, min(MOST_WINDOWS, len(raw.windows)))
    sums = np.stack([part.sum(axis=0) for part in parts])
    names = raw.names if len(parts) == 1 else tuple(f"window {i}" for i in range(len(parts)))
    return replace(raw, windows=sums, names=names[: len(parts)], has_dense_rows=True)

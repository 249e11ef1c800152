"""FlashLB-like placement for several windows, written from its published description (vLLM-Ascend).

Replica counts by a small tree search over stages of the spare slots (each node tries several
splits of a stage's budget between window statistics and keeps the best few by largest piece), then
pieces are packed largest first onto the chip whose load over all windows grows least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def flashlb(
    windows: Floats, num_slots: int, num_chips: int, depth: int = 4, width: int = 8
) -> Ints:
    """``physical_to_logical [L, num_slots]`` for ``windows [W, L, E]``."""
    windows = windows / windows.sum(axis=2, keepdims=True)
    return np.stack(
        [
            _layer(windows[:, layer], num_slots, num_chips, depth, width)
            for layer in range(windows.shape[1])
        ]
    )


def _layer(windows: Floats, num_slots: int, num_chips: int, depth: int, width: int) -> Ints:
    counts = _tree(windows, num_slots - windows.shape[1], num_chips, depth, width)
    best, table = np.inf, np.empty(0, dtype=np.int64)
    for choice in counts:
        found = _pack(windows, choice, num_chips)
        peak = _peak(windows, choice, found, num_chips)
        if peak < best:
            best, table = peak, found
    return table


def _tree(windows: Floats, spare: int, most: int, depth: int, width: int) -> list[Ints]:
    """The ``width`` best replica counts after ``depth`` stages."""
    statistics = [
        windows.mean(axis=0),
        windows.max(axis=0),
        windows.mean(axis=0) + windows.std(axis=0),
    ]
    beam = [np.ones(windows.shape[1], dtype=np.int64)]
    for budget in np.diff(np.linspace(0, spare, depth + 1).astype(int)):
        grown = {}
        for counts in beam:
            for weight in statistics:
                child = counts.copy()
                for _ in range(int(budget)):
                    child[np.where(child < most, weight / child, -1).argmax()] += 1
                grown[child.tobytes()] = child
        ranked = sorted(grown.values(), key=lambda c: float((windows / c).max(axis=1).mean()))
        beam = ranked[:width]
    return beam


def _pack(windows: Floats, counts: Ints, num_chips: int) -> Ints:
    pieces = windows / counts
    room = int(counts.sum()) // num_chips
    load = np.zeros((len(windows), num_chips))
    rows: list[list[int]] = [[] for _ in range(num_chips)]
    for expert in np.argsort(-pieces.mean(axis=0), kind="stable"):
        for _ in range(counts[expert]):
            after = load + pieces[:, [expert]]
            cost = after.max(axis=0) + after.mean(axis=0)
            open_chips = np.array([len(row) < room for row in rows])
            fresh = np.array([expert not in row for row in rows])
            allowed = open_chips & fresh if (open_chips & fresh).any() else open_chips
            chip = int(np.where(allowed, cost, np.inf).argmin())
            rows[chip].append(int(expert))
            load[:, chip] += pieces[:, expert]
    return np.array([expert for row in rows for expert in row])


def _peak(windows: Floats, counts: Ints, table: Ints, num_chips: int) -> float:
    size = (windows / counts)[:, table].reshape(len(windows), num_chips, -1).sum(axis=2)
    return float(size.max(axis=1).mean())

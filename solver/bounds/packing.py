"""The best ways to fill a pool with items: an unbounded knapsack over its chips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Packing:
    """Best ways to fill a pool: ``best[c]`` on ``c`` chips; ``filling(c)`` lists the items used."""

    best: Array
    _chosen: NDArray[np.int64]
    _sizes: NDArray[np.int64]

    def filling(self, chips: int) -> list[int]:
        """Items (by position) of one best filling of ``chips`` chips."""
        items = []
        while chips > 0:
            item = int(self._chosen[chips])
            if item < 0:
                chips -= 1
                continue
            items.append(item)
            chips -= int(self._sizes[item])
        return items


def best_packing(values: Array, sizes: NDArray[np.int64], capacity: int) -> Packing:
    """Unbounded knapsack by dynamic programming over the chips of a pool."""
    best = np.zeros(capacity + 1)
    chosen = np.full(capacity + 1, -1, dtype=np.int64)
    top = np.zeros(capacity + 1)
    which = np.full(capacity + 1, -1, dtype=np.int64)
    for index in np.argsort(values, kind="stable"):
        if sizes[index] <= capacity:
            top[sizes[index]] = values[index]
            which[sizes[index]] = index
    useful = np.flatnonzero(which >= 0)
    worth_of = top[useful]
    count = np.searchsorted(useful, np.arange(capacity + 1), side="right").tolist()
    for room in range(1, capacity + 1):
        best[room] = best[room - 1]
        fitting = useful[: count[room]]
        if len(fitting):
            totals = best[room - fitting] + worth_of[: count[room]]
            at = int(totals.argmax())
            if totals[at] > best[room]:
                best[room], chosen[room] = totals[at], which[fitting[at]]
    return Packing(best, chosen, sizes)

"""Hops between chips of a grid, all pairs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: of a pair of chips that no path joins
UNREACHED = -1


def hop_counts(neighbours: Sequence[Sequence[int]]) -> NDArray[np.int16]:
    """Links on the shortest path between every two chips ``[chips, chips]``; ``UNREACHED`` without one.

    ``neighbours``: the chips at the other ends of each chip's links. Breadth first from all chips at once.
    """
    count = len(neighbours)
    most = max((len(ends) for ends in neighbours), default=0)
    ends = np.tile(np.arange(count)[:, None], (1, max(most, 1)))
    for chip, own in enumerate(neighbours):
        ends[chip, : len(own)] = own
    hops = np.full((count, count), UNREACHED, dtype=np.int16)
    reached = np.eye(count, dtype=bool)
    steps = 0
    fresh = reached
    while fresh.any():
        hops[fresh] = steps
        wider = reached.copy()
        for column in ends.T:
            wider |= reached[column]
        fresh, reached, steps = wider & ~reached, wider, steps + 1
    return hops

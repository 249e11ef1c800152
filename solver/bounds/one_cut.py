"""Longest stages of two kinds of passes that run on one cut of the layers.

The head makes the last stage of a pass that samples many tokens longer, and hardly that of a pass of prompts: the cut that is best
for one is not for the other. Of all pairs of longest stages that cuts have, those matter that no cut undercuts in both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: pairs looked for; beyond them the least of each kind stands in
_MOST_PAIRS = 12
#: share of a time that is taken for rounding
_ROUNDING = 1e-9


def longest_on_one_cut(
    layer_s: Array, head_s: Array, stages: int, allowed: NDArray[np.bool_] | None = None
) -> Array:
    """Pairs ``[2, pairs]`` of seconds; every cut into ``stages`` has longest stages no shorter than both of some pair.

    ``layer_s [2, layers]``, ``head_s [2]``: of each kind of pass; the head comes on top of the last stage.
    ``allowed [begin, end]``: stages of these layers that may be (``None``: all).
    """
    sums = np.concatenate([np.zeros((2, 1)), np.cumsum(layer_s, axis=1)], axis=1)
    places = sums.shape[1]
    begins, ends = np.ogrid[:places, :places]
    stage = ends > begins if allowed is None else allowed
    took = np.where(stage, sums[:, None, :] - sums[:, :, None], np.inf)

    def least(kind: int, below: float = np.inf) -> float:
        """Shortest longest stage of a kind where that of the other one is below so much; infinite: there is no such cut."""
        other = took[1 - kind]
        own = np.where(other < below, took[kind], np.inf)
        longest = own[0]
        for _ in range(stages - 2):
            longest = np.maximum(longest[:, None], own).min(axis=0)
        last = took[kind, :, -1] + head_s[kind]
        last = np.where(other[:, -1] + head_s[1 - kind] < below, last, np.inf)
        return float(np.maximum(longest, last).min())

    found: list[tuple[float, float]] = []
    shortest, second = least(0), least(1)
    while np.isfinite(second):
        if len(found) == _MOST_PAIRS:
            found.append((shortest, second))
            break
        first = least(0, second * (1.0 + _ROUNDING))
        found.append((first, second))
        if first <= shortest * (1.0 + _ROUNDING):
            break
        second = least(1, first * (1.0 - _ROUNDING))
    return np.array(found).reshape(-1, 2).T * (1.0 - _ROUNDING)

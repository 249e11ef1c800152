r"""What a replica serves whose decode passes hold now fewer, now more sequences.

Every token takes as long as its pass. So where a TPOT target lies between the passes of ``n`` and of ``n + 1`` sequences, both take
turns, and the mean over tokens meets it: with ``w_n`` of the tokens in passes of ``n`` sequences, which last ``t_n`` and serve a
request in ``c_n`` seconds of the replica, no replica serves more requests/s than

    ``1 / min sum w_n c_n`` with ``sum w_n t_n <= target``, ``sum w_n = 1``

which is a point on the lower hull of all ``(t_n, c_n)``, between two of them. With many sequences that is hardly more than the largest
batch in time serves; with one or two it may be twice as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: batches beside the largest that is in time: with so many sequences on every rank, so many more in each microbatch, and so many
#: times the largest
_FEW, _MORE = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0), (-1.0, 0.0, 1.0, 2.0, 3.0)
_TIMES = (0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 4.0)


def sizes(largest: Array, ranks: Array, pp: Array) -> Iterator[Array]:
    """Batches that may take turns, ``[shapes]`` each, in all sequences: passes grow in steps, and these lie around them.

    ``largest``: the largest that is in time; ``ranks`` that have sequences, ``pp`` microbatches.
    """
    each = ranks * pp
    full, wide = np.floor(largest / each), np.floor(largest / pp)
    yield from (np.ones_like(largest), largest, largest + 1.0)
    yield from (each * few for few in _FEW)
    yield from (pp * np.maximum(1.0, wide + more) for more in _MORE)
    yield from (each * np.maximum(1.0, full + more) for more in (0.0, 1.0))
    yield from (each * np.maximum(1.0, np.round(times * largest / each)) for times in _TIMES)


def most_in_turns(took_s: Array, tpot_s: Array, target_s: float) -> Array:
    """Requests/s ``[shapes]`` of the best turns of batches ``[sizes, shapes]`` whose tokens meet the target on average.

    ``took_s``: seconds per request, infinite for a batch that does not hold.
    """
    least = np.where(tpot_s <= target_s, took_s, np.inf).min(axis=0)
    for quick, slow in product(range(len(took_s)), repeat=2):
        apart = (tpot_s[quick] <= target_s) & (tpot_s[slow] > target_s)
        if apart.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                part = (target_s - tpot_s[quick]) / (tpot_s[slow] - tpot_s[quick])
                both = took_s[quick] + part * (took_s[slow] - took_s[quick])
            least = np.fmin(least, np.where(apart, both, np.inf))
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / least)

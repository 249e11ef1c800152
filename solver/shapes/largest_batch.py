"""The largest batch that is good, for many shapes at once and exactly: probes where it should end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: whether shapes are good at a batch each, and how near their limits they are (1: at one of them)
Probe = Callable[[Array], tuple[NDArray[np.bool_], Array]]


def largest_batch(
    probe: Probe,
    most: Array,
    strain_at_one: Array,
    narrowed: Callable[[Ints], Probe] | None = None,
) -> Array:
    """Largest whole batch up to ``most`` that is good, given that 1 is (``most`` 0: none is).

    What is good stays good with fewer sequences, so that any probe between a good and a bad batch halves
    the doubt for certain; the strain only says where to probe, and every third probe is in the middle.
    ``narrowed``: the probe of some shapes alone, for those left once half of them are settled.
    """
    low, low_strain = np.minimum(most, 1.0), strain_at_one + 0.0
    good, strain = probe(np.maximum(most, 1.0))
    low = np.where(good & (most > 0), most, low)
    high, high_strain = most + 0.0, strain + 0.0
    high = np.where(low == most, most + 1.0, most)
    rows = np.arange(len(most))
    turn = 0
    while len(left := np.flatnonzero(high - low > 1)):
        if narrowed is not None and 2 * len(left) <= len(rows):
            rows, probe = left, narrowed(left)
        turn += 1
        under, over = low[rows], high[rows]
        middle = (under + over) / 2
        if turn % 3:
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (1.0 - low_strain[rows]) / (high_strain[rows] - low_strain[rows])
            middle = np.where(np.isfinite(share), under + share * (over - under), middle)
        at = np.clip(np.floor(middle), under + 1, np.maximum(over - 1, under + 1))
        open_ = over - under > 1
        at = np.maximum(np.where(open_, at, under), 1.0)
        good, strain = probe(at)
        better, worse = open_ & good, open_ & ~good
        low[rows[better]], low_strain[rows[better]] = at[better], strain[better]
        high[rows[worse]], high_strain[rows[worse]] = at[worse], strain[worse]
    return low

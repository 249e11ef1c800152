"""The largest batch that is good, for many shapes at once and exactly: probes where it should end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: whether shapes are good at a batch each, and how near their limits they are (1: at one of them)
Probe = Callable[[Array], tuple[NDArray[np.bool_], Array]]


def largest_batch(probe: Probe, most: Array, strain_at_one: Array) -> Array:
    """Largest whole batch up to ``most`` that is good, given that 1 is (``most`` 0: none is).

    What is good stays good with fewer sequences, so that any probe between a good and a bad batch halves
    the doubt for certain; the strain only says where to probe, and every third probe is in the middle.
    """
    low, low_strain = np.minimum(most, 1.0), strain_at_one
    good, strain = probe(np.maximum(most, 1.0))
    low = np.where(good & (most > 0), most, low)
    high, high_strain = most + 0.0, strain
    high = np.where(low == most, most + 1.0, most)
    turn = 0
    while np.any(high - low > 1):
        turn += 1
        middle = (low + high) / 2
        if turn % 3:
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (1.0 - low_strain) / (high_strain - low_strain)
            middle = np.where(np.isfinite(share), low + share * (high - low), middle)
        at = np.clip(np.floor(middle), low + 1, np.maximum(high - 1, low + 1))
        at = np.maximum(np.where(high - low > 1, at, low), 1.0)
        good, strain = probe(at)
        open_, fine = high - low > 1, good
        low_strain = np.where(open_ & fine, strain, low_strain)
        low = np.where(open_ & fine, at, low)
        high_strain = np.where(open_ & ~fine, strain, high_strain)
        high = np.where(open_ & ~fine, at, high)
    return low

"""EPLB's placements and the load of each chip under them, tokens split evenly over replicas."""

from __future__ import annotations

import numpy as np

from solver.experts.eplb import Floats, Ints, eplb

__all__ = ["chip_loads", "eplb"]


def chip_loads(weight: Floats, physical_to_logical: Ints, num_chips: int) -> Floats:
    """Load of each chip ``[L, num_chips]`` when an expert's tokens split evenly over its slots."""
    layers, experts = weight.shape
    count = np.stack([np.bincount(row, minlength=experts) for row in physical_to_logical])
    pieces = np.take_along_axis(weight / np.maximum(count, 1), physical_to_logical, axis=1)
    return pieces.reshape(layers, num_chips, -1).sum(axis=2)

"""What a placement is asked for: loads and slots, checked once. Knows nothing of how slots are filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots per chip. ``counts[c]`` slots on chip ``c``; a slot table is ``num_chips x width``."""

    counts: tuple[int, ...]

    @property
    def num_chips(self) -> int:
        """Number of chips."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Number of slots on all chips."""
        return sum(self.counts)

    @property
    def width(self) -> int:
        """Most slots on one chip."""
        return max(self.counts)

    @property
    def least(self) -> int:
        """Fewest slots on one chip."""
        return min(self.counts)

    @property
    def even(self) -> bool:
        """Whether every chip has the same number of slots."""
        return self.width == self.least

    def mask(self) -> NDArray[np.bool_]:
        """``[num_chips, width]``: which places of the slot table are real slots."""
        return np.arange(self.width)[None, :] < np.array(self.counts)[:, None]


def check_loads(loads: ArrayLike) -> Floats:
    """``loads [layers, experts]`` as shares of a layer (rows sum to 1; an all-zero row is even).

    Raises ``InstanceError`` when a load is not a finite number at or above zero.
    """
    array = np.asarray(loads, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise InstanceError(
            Problem("loads", f"expected [layers, experts], got an array of shape {array.shape}")
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise InstanceError(Problem("loads", "every load must be a finite number, 0 or more"))
    scaled = array / np.maximum(array.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    total = scaled.sum(axis=1, keepdims=True)
    shares: Floats = np.where(total > 0, scaled / np.where(total > 0, total, 1), 1 / array.shape[1])
    return shares


def check_slots(slots_per_chip: Sequence[int], num_experts: int) -> Slots:
    """The slots asked for. Raises ``InstanceError`` when no valid placement has them.

    Every expert needs a slot, and no expert is useful twice on one chip, so
    ``experts <= slots <= experts x chips`` and no chip has more slots than there are experts.
    """
    counts = tuple(int(count) for count in slots_per_chip)
    problems = []
    if not counts or min(counts) < 1:
        problems.append(Problem("slots", "every chip needs at least one slot"))
    elif sum(counts) < num_experts:
        problems.append(
            Problem("slots", f"{sum(counts)} slots cannot hold {num_experts} experts once each")
        )
    elif max(counts) > num_experts:
        problems.append(
            Problem(
                "slots",
                f"{max(counts)} slots on one chip with {num_experts} experts would repeat an "
                f"expert on it; at most {num_experts} per chip",
            )
        )
    if problems:
        raise InstanceError(problems)
    return Slots(counts)

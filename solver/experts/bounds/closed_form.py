"""Proven lower bounds on the busiest chip's share of a layer, in closed form and vectorised.

All hold for every placement that gives each expert at least one slot, each chip its slots and
splits an expert's tokens evenly over its replicas.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from solver.experts.replicas import LargestPieces
from solver.experts.slots import Floats, check_loads
from topology.errors import InstanceError, Problem

#: Sums of floats may be off by this much; every bound is lowered by it.
ROUNDING = 1e-12


def load_bounds(loads: ArrayLike, num_chips: int, slots: int) -> Floats:
    """Lower bound ``[layers]`` on the busiest chip's share of the layer's load, for ``slots`` slots.

    The largest of: the area ``1 / num_chips``; the largest piece when the replicas are chosen to
    make it smallest (exact greedy, at most one replica per chip); and, without spare slots, the
    counting bound. Chips have ``slots // num_chips`` slots or one more. With one slot per chip
    the bound is the optimum. Raises ``InstanceError`` if the slots cannot hold the experts.
    """
    return LoadBounds(loads).bound(num_chips, slots)


class LoadBounds:
    """:func:`load_bounds` of one model for many numbers of chips and slots."""

    def __init__(self, loads: ArrayLike):
        self.shares = check_loads(loads)
        self._pieces = LargestPieces(self.shares)

    def bound(self, num_chips: int, slots: int) -> Floats:
        """As :func:`load_bounds`."""
        experts = self.shares.shape[1]
        if num_chips < 1 or slots < experts or slots > experts * num_chips:
            raise InstanceError(
                Problem(
                    "slots", f"{slots} slots on {num_chips} chips cannot hold {experts} experts"
                )
            )
        largest = self._pieces.largest(slots - experts, num_chips)
        bound: Floats = np.maximum(1.0 / num_chips, largest)
        if slots == experts:
            bound = np.maximum(bound, counting_bound(self.shares, num_chips, slots // num_chips))
        bound *= 1 - ROUNDING
        return bound


def counting_bound(pieces: Floats, num_chips: int, least: int) -> Floats:
    """Bound ``[layers]`` for fixed ``pieces [layers, slots]`` and at least ``least`` slots per chip.

    Some ``h`` chips hold the ``h`` largest pieces, and at least ``h (least - 1)`` more, so one of
    them has ``(sum of the h largest + sum of the h (least - 1) smallest) / h`` or more. And of
    the ``(j - 1) chips + 1`` largest pieces some chip has ``j``, beside ``least - j`` others.
    """
    layers, count = pieces.shape
    falling = -np.sort(-pieces, axis=1)
    running = np.concatenate([np.zeros((layers, 1)), np.cumsum(falling, axis=1)], axis=1)
    total = running[:, -1:]
    group = np.arange(1, num_chips + 1)
    smallest = total - running[:, count - group * max(least - 1, 0)]
    bound: Floats = ((running[:, group] + smallest) / group).max(axis=1)
    for together in range(2, least + 1):
        last = (together - 1) * num_chips + 1
        if last <= count:
            crowd = running[:, last] - running[:, last - together]
            others = total[:, 0] - running[:, count - (least - together)]
            bound = np.maximum(bound, crowd + others)
    return bound

"""The chips of one stage as a pass meets them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from costmodel.passes.achieved import Achieved, achieved_by
from costmodel.passes.communication import GroupRates
from costmodel.passes.operations import Operations
from costmodel.passes.tokens import Array
from costmodel.question.profile import Efficiency
from topology import Chip


@dataclass(frozen=True)
class ChipGroup:
    """The chips of one stage as a pass meets them: ``tp`` chips of each of ``ranks`` attention ranks.

    ``tp`` and ``ranks`` are scalars for one layout or arrays for many shapes.
    """

    operations: Operations
    tp: Array
    ranks: Array
    achieved: Achieved
    rates: GroupRates

    @classmethod
    def of(
        cls,
        operations: Operations,
        tp: ArrayLike,
        attention_dp: ArrayLike,
        chip: Chip,
        efficiency: Efficiency,
        rates: GroupRates,
    ) -> ChipGroup:
        """A group of one type of chip, at what an engine achieves on it."""
        tp, ranks = np.asarray(tp, dtype=float), np.asarray(attention_dp, dtype=float)
        return cls(operations, tp, ranks, achieved_by(chip, efficiency), rates)

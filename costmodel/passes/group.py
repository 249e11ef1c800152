"""The chips of one stage as a pass meets them, and what one type of chip reaches under a profile."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from costmodel.passes.communication import GroupRates
from costmodel.passes.operations import Operations
from costmodel.passes.tokens import Array
from costmodel.question.profile import Efficiency, Stream
from topology import Chip


class Achieved:
    """Rates of a chip at the fractions of its peaks that a profile's ``efficiency`` says."""

    def __init__(self, chip: Chip, efficiency: Efficiency):
        self.chip = chip
        self.efficiency = efficiency
        self._flops_per_s: dict[str, float] = {}
        self._bandwidth: dict[Stream, float] = {}
        self._weight_bandwidth: dict[tuple[str, Stream], float] = {}

    def flops_per_s(self, dtype: str) -> float:
        """Dense FLOP/s for operands of ``dtype``."""
        if dtype not in self._flops_per_s:
            computes_in = self.chip.computes_in(dtype)
            peak = self.chip.flops_per_s[computes_in]
            share = self.efficiency.on(self.chip).arithmetic(computes_in)
            self._flops_per_s[dtype] = peak * share
        return self._flops_per_s[dtype]

    @property
    def exponentials_per_s(self) -> float:
        """Exponentials of attention scores per second; infinite where products hide them, or where the chip's rate is not known."""
        rate, share = self.chip.exponentials_per_s, self.efficiency.softmax
        return inf if rate is None or share is None else rate * share

    def weight_flops_per_s(self, dtype: str) -> float:
        """The same for products with weights of ``dtype``, lower where they are widened on the way."""
        if not self.chip.unpacks(dtype):
            return self.flops_per_s(dtype)
        return self.flops_per_s(dtype) * self.efficiency.widened

    def bandwidth(self, stream: Stream = "weights") -> float:
        """HBM bytes per second of reads for ``stream``."""
        if stream not in self._bandwidth:
            fraction = self.efficiency.stream(stream)
            self._bandwidth[stream] = self.chip.hbm_bytes_per_s * fraction
        return self._bandwidth[stream]

    def weight_bandwidth(self, dtype: str, stream: Stream = "weights") -> float:
        """The same for weights of ``dtype``, lower where they are widened on the way."""
        key = (dtype, stream)
        if key not in self._weight_bandwidth:
            unpacked = self.efficiency.unpacking if self.chip.unpacks(dtype) else 1.0
            self._weight_bandwidth[key] = self.bandwidth(stream) * unpacked
        return self._weight_bandwidth[key]


#: rates by chip and efficiency; a chip and an efficiency that are held here keep their identities
_known: dict[tuple[int, int], Achieved] = {}
_MOST_KNOWN = 64


def achieved_by(chip: Chip, efficiency: Efficiency) -> Achieved:
    """The rates of a chip under an efficiency, the same as long as both objects are in use."""
    key = (id(chip), id(efficiency))
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = Achieved(chip, efficiency)
    return found


@dataclass(frozen=True)
class ChipGroup:
    """The chips of one stage as a pass meets them: ``tp`` chips of each of ``ranks`` attention ranks.

    ``tp`` and ``ranks`` are scalars for one layout or arrays for many shapes. ``whole``: 1 where experts lie whole on
    chips, on which a pass's tokens then fall unevenly, 0 where each is cut over all of them, which share its tokens to the last one.
    """

    operations: Operations
    tp: Array
    ranks: Array
    achieved: Achieved
    rates: GroupRates
    whole: Array | float = 1.0

    @classmethod
    def of(
        cls,
        operations: Operations,
        tp: ArrayLike,
        attention_dp: ArrayLike,
        chip: Chip,
        efficiency: Efficiency,
        rates: GroupRates,
        whole: Array | float = 1.0,
    ) -> ChipGroup:
        """A group of one type of chip, at what an engine achieves on it."""
        tp, ranks = np.asarray(tp, dtype=float), np.asarray(attention_dp, dtype=float)
        return cls(operations, tp, ranks, achieved_by(chip, efficiency), rates, whole)

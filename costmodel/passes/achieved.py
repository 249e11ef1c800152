"""What one type of chip reaches under a profile: FLOP/s and HBM bytes per second, each worked out once."""

from __future__ import annotations

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
            self._flops_per_s[dtype] = peak * self.efficiency.arithmetic(computes_in)
        return self._flops_per_s[dtype]

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

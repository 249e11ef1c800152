"""Times between two tokens of a sequence, counted by length; percentiles without keeping each one."""

from __future__ import annotations

from collections import defaultdict
from math import exp, log

#: one class is half a per cent wide
_WIDTH = log(1.005)


class Gaps:
    """Gaps counted in classes, and their exact sum."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        self.total_s = 0.0

    def add(self, seconds: float, times: int) -> None:
        """So many gaps of this length."""
        self._counts[int(log(seconds) / _WIDTH) if seconds > 0 else -10_000] += times
        self.count += times
        self.total_s += seconds * times

    def mean_s(self) -> float:
        """Mean gap (0 without any)."""
        return self.total_s / self.count if self.count else 0.0

    def percentile_s(self, share: float) -> float:
        """The gap that this share of gaps does not pass, to half a per cent (0 without any)."""
        seen, wanted = 0, share * self.count
        for place in sorted(self._counts):
            seen += self._counts[place]
            if seen >= wanted:
                return exp(place * _WIDTH)
        return 0.0

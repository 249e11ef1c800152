"""What searches have said of numbers of units of one kind, and which number to search next."""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan.sizing.carried import Capability


@dataclass
class Known:
    """What is known of numbers of units: ``few`` and less are proven too few, ``enough`` carry the peak.

    ``open``: neither; between what was found there and its bound lies the peak.
    """

    few: int = 0
    enough: int | None = None
    open: tuple[int, ...] = ()

    def add(self, number: int, carried: Capability | None, peak: float) -> None:
        """Note what a search said; ``None``: nothing fits."""
        if carried is None or carried.most_requests_per_s < peak:
            self.few = max(self.few, number)
        elif carried.requests_per_s >= peak:
            self.enough = number if self.enough is None else min(number, self.enough)
        else:
            self.open = (*self.open, number)

    def next(self, about: int, beneath: int) -> int | None:
        """The number to search next; ``None`` once no search says more.

        First, near ``about``, what is enough; then, near ``beneath``, what is proven too few.
        """
        fails = max(self.few, *self.open, 0)
        if self.enough is None:
            return max(about, fails + 1)
        if self.enough - fails > 1:
            return min(max(about, fails + 1), self.enough - 1)
        below = min(self.enough, *self.open, self.enough) - 1
        return min(max(beneath, self.few + 1), below) if below > self.few else None

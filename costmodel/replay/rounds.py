"""Rounds of decoding that each last longer than the one before by the same amount."""

from __future__ import annotations

from math import ceil, sqrt


def lasting(rounds: int, first: float, more: float) -> float:
    """Seconds of so many rounds, each ``more`` longer than the one before."""
    return rounds * first + more * rounds * (rounds - 1) / 2


def rounds_until(seconds: float, first: float, more: float) -> int:
    """The least number of rounds, at least one, that last so long."""
    if seconds <= first:
        return 1
    if more > 1e-12 * first:
        b = first - more / 2
        found = (sqrt(b * b + 2 * more * seconds) - b) / more
    else:
        found = seconds / first
    return max(1, ceil(found - 1e-9))

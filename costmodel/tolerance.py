"""The one rounding band of the project, so that sums taken in another order cannot flip a verdict."""

from __future__ import annotations

#: relative band within which two floating-point results count as equal
RELATIVE = 1e-9


def exceeds(value: float, limit: float) -> bool:
    """Whether ``value`` is above ``limit`` by more than rounding."""
    return value > limit * (1.0 + RELATIVE)

"""The one rounding band of the project, so that sums taken in another order cannot flip a verdict."""

from __future__ import annotations

#: relative band within which two floating-point results count as equal
RELATIVE = 1e-9


def apart(value: float, limit: float) -> tuple[str, str]:
    """Both numbers with two decimals, or with as many as tell a value from the limit that it exceeds."""
    for decimals in range(2, 12):
        texts = f"{value:.{decimals}f}", f"{limit:.{decimals}f}"
        if texts[0] != texts[1]:
            break
    return texts


def exceeds(value: float, limit: float) -> bool:
    """Whether ``value`` is above ``limit`` by more than rounding."""
    return value > limit * (1.0 + RELATIVE)

"""Numbers as sentences say them."""

from __future__ import annotations

from math import ceil, isfinite


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 unit``, ``2 units``; ``several`` where an s does not make the plural."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def at_most(share: float, digits: int = 2) -> str:
    """A share that nothing exceeds, in per cent, rounded up: half of the last digit less would be a claim that is not proven."""
    if not isfinite(share):
        return f"{share:%}"
    scale = 10 ** (digits + 2)
    # what floats make of a whole number of last digits is that number
    steps = max(1, ceil(round(share * scale, 6)))
    return f"{steps / scale:.{digits}%}"

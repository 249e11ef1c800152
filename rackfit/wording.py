"""Numbers as sentences say them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, isfinite

#: figures whose basis decides how far an answer can be trusted
BASES = ("times", "expert_load", "money")


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 unit``, ``2 units``; ``several`` where an s does not make the plural."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def rests_on(provenance: Mapping[str, str] | None, *figures: str) -> str:
    """What figures rest on, ``times measured: ..; money published: ..``; empty where nothing is known."""
    known = {name: own for name, own in (provenance or {}).items() if not own.startswith("none: ")}
    return "; ".join(f"{name.replace('_', ' ')} {known[name]}" for name in figures if name in known)


def at_least(usd: float, digits: int = 4) -> str:
    """Money that nothing costs less than, rounded down: half of the last digit more would be a claim that is not proven."""
    if not isfinite(usd):
        return f"{usd}"
    scale = 10**digits
    # what floats make of a whole number of last digits is that number
    return f"{floor(round(usd * scale, 6)) / scale:,.{digits}f}"


def at_most(share: float, digits: int = 2) -> str:
    """A share that nothing exceeds, in per cent, rounded up: half of the last digit less would be a claim that is not proven."""
    if not isfinite(share):
        return f"{share:%}"
    scale = 10 ** (digits + 2)
    # what floats make of a whole number of last digits is that number
    steps = max(1, ceil(round(share * scale, 6)))
    return f"{steps / scale:.{digits}%}"

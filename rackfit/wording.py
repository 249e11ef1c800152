"""Numbers as sentences say them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, isfinite

from costmodel.question.workload import Slo
from topology.quantity import figure, per_cent

#: figures whose basis decides how far an answer can be trusted
BASES = ("times", "expert_load", "money")


def counted(number: int, one: str, several: str | None = None) -> str:
    """``1 unit``, ``2 units``; ``several`` where an s does not make the plural."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def rests_on(provenance: Mapping[str, str] | None, *figures: str) -> str:
    """What figures rest on, ``times measured: ..; money published: ..``; empty where nothing is known."""
    known = {name: own for name, own in (provenance or {}).items() if not own.startswith("none: ")}
    return "; ".join(f"{name.replace('_', ' ')} {known[name]}" for name in figures if name in known)


#: money of so much and more has cents and no smaller digits
_CENTS_FROM_USD = 100.0
#: money below this has four digits that count, however small it is
_TINY_USD = 1e-3

#: what floats make of two equal numbers differs by less
_NOISE = 1e-9


def amount(usd: float | None) -> str:
    """Money as text and tables say it, without its sign: ``0.2483``, ``12,345.68``, ``0.00001234``; ``-`` for none."""
    if usd is None:
        return "-"
    if 0 < abs(usd) < _TINY_USD:
        return figure(usd, 4)
    return f"{usd:z,.{_digits(usd)}f}"


def rate(per_s: float | None, decimals: int = 0) -> str:
    """A rate with so many decimals, or with three digits that count where those would leave none or one; ``-`` for none."""
    if per_s is None:
        return "-"
    return figure(per_s) if 0 < per_s < 10.0 ** (1 - decimals) else f"{per_s:,.{decimals}f}"


def _digits(usd: float) -> int:
    return 2 if abs(usd) >= _CENTS_FROM_USD else 4


def by_how_much(change: float, digits: int = 1) -> str:
    """``3.1% more``, ``2.0% less``; ``as much`` where no digit tells them apart."""
    size = per_cent(abs(change), digits)
    if not size.strip("0.%"):
        return "as much"
    return f"{size} {'more' if change > 0 else 'less'}"


def some(share: float, digits: int = 1) -> str:
    """How much is saved or paid too much, in per cent; ``under 0.1%`` where that rounds to nothing, else ``nothing``."""
    if share <= _NOISE:
        return "nothing"
    text = per_cent(share, digits)
    return text if text.strip("0.%") else f"under {10.0**-digits:.{digits}f}%"


def at_least(usd: float, digits: int | None = None) -> str:
    """Money that nothing costs less than, rounded down: half of the last digit more would be a claim that is not proven.

    ``digits``: after the point; as many as :func:`amount` has where none are given.
    """
    if not isfinite(usd):
        return f"{usd}"
    if digits is None:
        if 0 < usd < _TINY_USD:
            return figure(usd, 4, "down")
        digits = _digits(usd)
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


def targets(slo: Slo) -> str:
    """Latency targets as they are asked for."""
    said = [
        f"TTFT {slo.ttft:g} s" if slo.ttft is not None else "",
        f"TPOT {slo.tpot * 1e3:g} ms" if slo.tpot is not None else "",
    ]
    text = ", ".join(one for one in said if one) or "no latency target"
    return f"{text} (99th percentiles under traffic)" if slo.of_replays else text

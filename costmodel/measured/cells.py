"""Numbers of a measured row's columns."""

from __future__ import annotations

import math
from collections.abc import Mapping

from topology.quantity import is_number


def number(cells: Mapping[str, str], name: str) -> float | None:
    """The number of a column, ``None`` where it is empty. Raises ``ValueError`` for anything else."""
    text = cells.get(name, "")
    if text == "" or text.lower() in ("none", "nan", "null"):
        return None
    if not is_number(text):
        raise ValueError(f"{name}: {text[:40]!r} is not a number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name}: {text[:40]!r} is not finite")
    return value


def positive(cells: Mapping[str, str], *names: str) -> float:
    """The first of these columns that is filled; it must be above zero. Raises ``ValueError``."""
    for name in names:
        value = number(cells, name)
        if value is not None:
            if not 0 < value < 1e12:
                raise ValueError(f"{name}: must be above 0, got {value:g}")
            return value
    raise ValueError(f"{names[-1]}: is missing")


def size(cells: Mapping[str, str], name: str, default: int = 1) -> int:
    """A group size; 0 and empty stand for the default in the exports. Raises ``ValueError``."""
    value = number(cells, name)
    if value is None or value == 0:
        return default
    if value < 0 or value != int(value) or value > 1e6:
        raise ValueError(f"{name}: must be a whole number above 0, got {value:g}")
    return int(value)

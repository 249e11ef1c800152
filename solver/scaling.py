"""The one place where floats become the solver's integers, and which way each is rounded.

What a layout uses is rounded up and what it may use is rounded down, so that feasible in CP-SAT
implies feasible for the evaluator; bounds on what it earns are rounded up, so that a proven bound
stays one.
"""

from __future__ import annotations

import math

#: largest coefficient: rates are exact to one part in 16 million, and small integers search fast
_LARGEST = 2**24

#: parts of a limit that sums are compared with: a hundred roundings stay within the judge's band
_FINE = 2**36

#: bytes per unit of memory in CP-SAT
MEMORY_UNIT_BYTES = 1.0

#: seconds per unit of time in CP-SAT
TIME_UNIT_S = 1e-12


def rate_unit(largest: float) -> float:
    """Requests per second of one integer unit, for rates up to ``largest``."""
    return largest / _LARGEST if largest > 0 else 1.0


def fine_unit(largest: float) -> float:
    """One integer unit for amounts up to ``largest``, so small that the rounding of a sum is below 1e-9 of it."""
    return largest / _FINE if largest > 0 else 1.0


def up(value: float, unit: float) -> int:
    """``value`` in whole units, rounded up (past rounding noise of one part in 1e12)."""
    return math.ceil(value / unit * (1 - 1e-12))


def down(value: float, unit: float) -> int:
    """``value`` in whole units, rounded down (past rounding noise of one part in 1e12)."""
    return math.floor(value / unit * (1 + 1e-12))

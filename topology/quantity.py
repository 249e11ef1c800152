"""Quantities with units at the border: strings such as ``"3.35 TB/s"`` become SI floats.

Inside Rackfit every number is a plain float in SI base units whose name carries the unit. Here,
and only here, text with units is read and checked. Bandwidth is per direction, FLOP/s are dense,
``GB`` is 1e9 bytes and ``GiB`` is 2**30. Never guesses: a bare number where a unit is needed is
taken to be in the base unit, any other unit is refused.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator
from quantiphy import InvalidNumber
from quantiphy import Quantity as _Parsed

#: Units of time that SI prefixes do not reach (``min`` would read as milli-inch).
_TIMES = {
    "min": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
}


def parse_quantity(value: object, unit: str) -> float:
    """Read ``value`` as a finite number of ``unit`` (``"B"``, ``"B/s"``, ``"s"``, ``"W"``, ...).

    Numbers pass through, strings are parsed with their prefix (decimal ``k M G T P`` or binary
    ``Ki Mi Gi Ti``). Raises ``ValueError`` naming the expected unit.
    """
    example = _EXAMPLES.get(unit, f"1 {unit}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a quantity in {unit} such as {example!r}, got {value!r}")
    if isinstance(value, str):
        number, found = _split(value, unit, example)
        if found not in ("", unit):
            hint = " (bits; divide by 8 for bytes)" if found in ("b/s", "bit/s", "bps") else ""
            raise ValueError(
                f"expected a quantity in {unit} such as {example!r}, got {value!r} in {found}{hint}"
            )
        value = number
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite quantity in {unit}, got {value!r}")
    return number


def _split(text: str, unit: str, example: str) -> tuple[float, str]:
    if len(text) > 64:
        raise ValueError(
            f"expected a quantity in {unit} such as {example!r}, got a text of {len(text)} characters"
        )
    words = text.split()
    if unit == "s" and len(words) == 2 and words[1] in _TIMES:
        text, factor = f"{words[0]} s", _TIMES[words[1]]
    else:
        factor = 1.0
    try:
        parsed = _Parsed(text, binary=True)
    except InvalidNumber:
        raise ValueError(
            f"expected a quantity in {unit} such as {example!r}, got {text!r}"
        ) from None
    return float(parsed) * factor, str(parsed.units).replace("FLOPS", "FLOP/s").replace("hour", "h")


_EXAMPLES = {
    "B": "80 GiB",
    "B/s": "3.35 TB/s",
    "FLOP/s": "989 TFLOP/s",
    "s": "30 ms",
    "W": "700 W",
    "USD/h": "2.21 USD/h",
}


def _non_negative(unit: str) -> BeforeValidator:
    def read(value: object) -> float:
        number = parse_quantity(value, unit)
        if number < 0:
            raise ValueError(f"must not be negative, got {value!r}")
        return number

    return BeforeValidator(read)


def _positive(unit: str) -> BeforeValidator:
    def read(value: object) -> float:
        number = parse_quantity(value, unit)
        if number <= 0:
            raise ValueError(f"must be positive, got {value!r}")
        return number

    return BeforeValidator(read)


Bytes = Annotated[float, _non_negative("B")]
BytesPerSecond = Annotated[float, _positive("B/s")]
FlopsPerSecond = Annotated[float, _positive("FLOP/s")]
Seconds = Annotated[float, _non_negative("s")]
PositiveSeconds = Annotated[float, _positive("s")]
Watts = Annotated[float, _non_negative("W")]
UsdPerHour = Annotated[float, _non_negative("USD/h")]

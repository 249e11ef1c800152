"""Quantities with units at the border: strings such as ``"3.35 TB/s"`` become SI floats.

Inside Rackfit every number is a plain float in SI base units whose name carries the unit. Here,
and only here, text with units is read and checked. Bandwidth is per direction, FLOP/s are dense,
``GB`` is 1e9 bytes and ``GiB`` is 2**30. Never guesses: a bare number where a unit is needed is
taken to be in the base unit, any other unit is refused.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from quantiphy import InvalidNumber
from quantiphy import Quantity as _Parsed

from topology.names import brief

#: no quantity of a machine is larger, or smaller than its inverse; products of a few stay finite
_MOST = 1e24

#: Units of time that SI prefixes do not reach (``min`` would read as milli-inch).
_TIMES = {
    "min": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
}


def plain_types(annotation: Any) -> set[type]:
    """The plain types that a field takes, in whichever alternative; one of several words is text."""
    if isinstance(annotation, str):
        return {str}
    inside: set[type] = set().union(*map(plain_types, get_args(annotation)))
    return inside or ({annotation} if isinstance(annotation, type) else set())


class Given(BaseModel):
    """A part of what a person asks: no other keys than its own, and numbers that are numbers.

    Pydantic alone takes ``true`` for 1, and YAML writes ``yes`` and ``on`` for it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool):
            kinds = plain_types(cls.model_fields[info.field_name or ""].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise ValueError(f"expected a number, got {brief(value)}")
        return value


def parse_quantity(value: object, unit: str) -> float:
    """Read ``value`` as a finite number of ``unit`` (``"B"``, ``"B/s"``, ``"s"``, ``"W"``, ...).

    Numbers pass through, strings are parsed with their prefix (decimal ``k M G T P`` or binary
    ``Ki Mi Gi Ti``). Raises ``ValueError`` naming the expected unit.
    """
    example = _EXAMPLES.get(unit, f"1 {unit}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a quantity in {unit} such as {example!r}, got {brief(value)}")
    if isinstance(value, str):
        number, found = _split(value, unit, example)
        if found not in ("", unit):
            known = f" in {found}" if found in _EXAMPLES else ""
            hint = " (bits; divide by 8 for bytes)" if found in ("b/s", "bit/s", "bps") else ""
            raise ValueError(
                f"expected a quantity in {unit} such as {example!r}, got {value!r}{known}{hint}"
            )
        value = number
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite quantity in {unit}, got {value!r}")
    if number and not 1 / _MOST <= abs(number) <= _MOST:
        raise ValueError(
            f"expected at most {_MOST:g} {unit} (and no less than its inverse), got {value!r}"
        )
    return number


def figure(
    value: float, digits: int = 3, towards: Literal["nearest", "up", "down"] = "nearest"
) -> str:
    """A number as a sentence says it: so many significant digits, every one before the point, never a power of ten.

    ``towards``: ``up`` where less would claim too much, as of a time that is reachable; ``down`` where more would.
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    scaled = value * 10.0**places
    # what floats make of a whole number is that number
    near = round(scaled, 6)
    steps = round(near)
    if towards != "nearest":
        steps = math.ceil(near) if towards == "up" else math.floor(near)
    text = f"{steps / 10.0**places:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def per_cent(share: float, digits: int = 1, *, signed: bool = False) -> str:
    """A share in per cent; nothing has no sign, and ``signed`` gives one to the rest."""
    text = f"{share:{'+' if signed else ''}z.{digits}%}"
    return text.removeprefix("+") if signed and not text.strip("+0.%") else text


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
    "exp/s": "3.87 Texp/s",
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


_DECIMAL = ("k", "M", "G", "T", "P")
_BINARY = ("Ki", "Mi", "Gi", "Ti")
#: What a text may end with, by unit, in the schemas that editors check files with: the usual
#: spellings. The reader takes a few more (``1_000 B``).
SPELLINGS = {
    "B": tuple(f"{prefix}B" for prefix in ("", *_DECIMAL, *_BINARY)),
    "B/s": tuple(f"{prefix}B/s" for prefix in ("", *_DECIMAL, *_BINARY)),
    "FLOP/s": tuple(f"{prefix}FLOP/s" for prefix in ("", *_DECIMAL, "E")),
    "exp/s": tuple(f"{prefix}exp/s" for prefix in ("", *_DECIMAL)),
    "s": ("s", "ms", "us", "ns", " min", " h", " hour", " hours", " day", " days"),
    "W": ("W", "mW", "kW", "MW"),
    "USD/h": ("USD/h", "USD/hour"),
}
_NUMBER = r"\s*[0-9]+(\.[0-9]+)?"


def _pattern(unit: str) -> str:
    """A number with any of the spellings of its unit, or none; with an exponent only the unit itself."""
    endings = "|".join(
        rf"\s+{text[1:]}" if text[0] == " " else rf"\s*{text}" for text in SPELLINGS[unit]
    )
    return rf"^({_NUMBER}({endings})?|{_NUMBER}[eE][+-]?[0-9]+(\s+{unit})?)\s*$"


def _schema(unit: str, *, positive: bool) -> WithJsonSchema:
    """A number in the base unit, or text with a unit."""
    least = "exclusiveMinimum" if positive else "minimum"
    text = {
        "type": "string",
        "pattern": _pattern(unit),
        "examples": [_EXAMPLES[unit]],
    }
    return WithJsonSchema({"anyOf": [{"type": "number", least: 0}, text]})


Bytes = Annotated[float, _non_negative("B"), _schema("B", positive=False)]
BytesPerSecond = Annotated[float, _positive("B/s"), _schema("B/s", positive=True)]
FlopsPerSecond = Annotated[float, _positive("FLOP/s"), _schema("FLOP/s", positive=True)]
ExponentialsPerSecond = Annotated[float, _positive("exp/s"), _schema("exp/s", positive=True)]
Seconds = Annotated[float, _non_negative("s"), _schema("s", positive=False)]
PositiveSeconds = Annotated[float, _positive("s"), _schema("s", positive=True)]
Watts = Annotated[float, _non_negative("W"), _schema("W", positive=False)]
UsdPerHour = Annotated[float, _positive("USD/h"), _schema("USD/h", positive=True)]


def is_number(cell: str) -> bool:
    """Whether a cell of a table is a number; Python also reads ``1_0``, and digits of other scripts."""
    if "_" in cell or not cell.isascii():
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True

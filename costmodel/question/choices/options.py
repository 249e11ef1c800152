"""Which values options may have that a question leaves to the search, one value for all replicas of a layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from costmodel.question.speculation import MOST_DRAFTS
from topology import TierKind
from topology.errors import InstanceError, Problem, option

Dtype = Literal["bf16", "fp16", "fp8", "int8", "fp4", "int4"]

#: combinations of values at most: each is bounded before the first is searched
MOST_COMBINATIONS = 64

#: a value of each option that is a choice, by the option's name
Values = Mapping[str, Any]

_Few = Field(max_length=MOST_COMBINATIONS)
_RANGE = re.compile(r"(\d{1,7})\.\.(\d{1,7})")


class Choices(BaseModel):
    """Values from which ``solve`` takes the cheapest combination; an option without any is not a choice.

    ``drafts``: drafted tokens per pass, 0 for none (their acceptance is in ``speculative``); ``overlap``: whether passes
    run in two halves; ``chunk``: prompt tokens of a rank in one pass; ``kv_dtype``, ``weight_dtype``: precisions;
    ``tiers``: places of KV beside HBM (``none``, ``host``, ``host+flash``). In text values are joined by ``/``, and
    ``0..3`` are the numbers from 0 to 3.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    drafts: Annotated[tuple[Annotated[int, Field(ge=0, le=MOST_DRAFTS)], ...], _Few] = ()
    overlap: Annotated[tuple[bool, ...], _Few] = ()
    chunk: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], _Few] = ()
    kv_dtype: Annotated[tuple[Dtype, ...], _Few] = ()
    weight_dtype: Annotated[tuple[Dtype, ...], _Few] = ()
    tiers: Annotated[tuple[tuple[TierKind, ...], ...], _Few] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _listed_in_text(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name == "tiers":
            parts = value.split("/") if isinstance(value, str) else value
            if not isinstance(parts, list | tuple):
                return value
            return tuple(_places(part) if isinstance(part, str) else part for part in parts)
        if not isinstance(value, str):
            return value
        found: list[object] = []
        for part in value.split("/"):
            ends = _RANGE.fullmatch(part)
            if ends is None:
                found.append(part)
                continue
            first, last = int(ends[1]), int(ends[2])
            if not first <= last < first + MOST_COMBINATIONS:
                raise ValueError(f"{part} must rise, over {MOST_COMBINATIONS} numbers at most")
            found += range(first, last + 1)
        return tuple(found)

    @field_validator("*", mode="after")
    @classmethod
    def _each_once(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _not_too_many(self) -> Choices:
        open_options = self.options
        if not open_options:
            raise ValueError(f"name values of an option: {', '.join(type(self).model_fields)}")
        count = prod(map(len, open_options.values()))
        if count > MOST_COMBINATIONS:
            words = " x ".join(f"{len(own)} {name}" for name, own in open_options.items())
            raise ValueError(
                f"{words} are {count} combinations; {MOST_COMBINATIONS} at most are searched"
            )
        return self

    @property
    def options(self) -> dict[str, tuple[Any, ...]]:
        """The values of each option that is a choice."""
        every = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: values for name, values in every.items() if values}

    def combinations(self) -> list[Values]:
        """Every combination of values."""
        names = list(self.options)
        return [dict(zip(names, own, strict=True)) for own in product(*self.options.values())]

    def one_by_one(self) -> list[Values]:
        """Combinations in which every value occurs: the first of each option, then each other value in its place."""
        first = self.combinations()[0]
        others = [
            {**first, name: value} for name, values in self.options.items() for value in values[1:]
        ]
        return [first, *others]


def _places(text: str) -> tuple[str, ...]:
    """Tiers joined by ``+``; none of ``none``."""
    return tuple(part for part in text.split("+") if part not in ("", "none"))


def value_words(name: str, value: Any) -> str:
    """A value as ``--choose`` takes it."""
    if name == "overlap":
        return "on" if value else "off"
    if name == "tiers":
        return "+".join(value) or "none"
    return str(value)


def choices_of_text(text: str) -> dict[str, str]:
    """``drafts=0..3,overlap=off/on`` as options and their values in text. Raises ``InstanceError``."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, values = part.strip().partition("=")
        known = ", ".join(Choices.model_fields)
        if not equals or name not in Choices.model_fields:
            message = f"expected OPTION=VALUE/VALUE with an option of {known}; got {part[:60]!r}"
            raise InstanceError(Problem(option("choose"), message))
        if name in found:
            raise InstanceError(Problem(option("choose"), f"{name} is named twice"))
        found[name] = values
    return found

"""Prices that somebody asked for machines or tokens, one file each in ``instances/prices``, with source and date."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from topology.catalogue import catalogue_names, checked, data_dir, read_data
from topology.names import Line, Name, Prose

_Usd = Annotated[float, Field(gt=0, lt=1e12)]
_Span = tuple[_Usd, _Usd]


class _Offer(BaseModel):
    """A price that was seen: who asked for it, where and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    date: Line
    sources: tuple[Prose, ...] = Field(min_length=1)
    notes: tuple[Prose, ...] = ()


class Bought(_Offer):
    """Chips with all that they are sold in: ``usd`` for ``chips`` of them, lowest and highest price seen."""

    kind: Literal["own"]
    chip: Name
    chips: Annotated[int, Field(ge=1, le=100_000)]
    usd: _Span


class Rented(_Offer):
    """Dollars per chip and hour, lowest and highest list price seen."""

    kind: Literal["rent"]
    chip: Name
    usd_per_chip_hour: _Span


class Api(_Offer):
    """Tokens of a model at a provider's list price, dollars per million of each kind."""

    kind: Literal["api"]
    model: Name
    usd_per_m_input: _Usd
    usd_per_m_cached: _Usd
    usd_per_m_output: _Usd

    def usd_per_request(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """A request's price; cached tokens are part of the input tokens."""
        fresh = input_tokens - cached_tokens
        return (
            fresh * self.usd_per_m_input
            + cached_tokens * self.usd_per_m_cached
            + output_tokens * self.usd_per_m_output
        ) / 1e6


Offer = Bought | Rented | Api
#: any price, told apart by its ``kind``
PricedOffer = Annotated[Offer, Field(discriminator="kind")]
_READER: TypeAdapter[Offer] = TypeAdapter(PricedOffer)


@lru_cache(maxsize=1)
def offers() -> tuple[Offer, ...]:
    """Every price of the catalogue, by name. Raises ``InstanceError`` for a file that is wrong."""
    found = []
    for name in catalogue_names("prices", (".yaml",)):
        path = data_dir("prices") / f"{name}.yaml"
        with checked(path.name):
            found.append(_READER.validate_python(read_data(path)))
    return tuple(found)


def bought(chip: str) -> Bought | None:
    """What owning a chip costs, where a price is known."""
    return next((o for o in offers() if isinstance(o, Bought) and o.chip == chip), None)


def rented(chip: str) -> Rented | None:
    """What renting a chip costs, where a price is known."""
    return next((o for o in offers() if isinstance(o, Rented) and o.chip == chip), None)


def api_of(model: str) -> Api | None:
    """What a model's tokens cost at an API, where a price is known."""
    return next((o for o in offers() if isinstance(o, Api) and o.model == model), None)

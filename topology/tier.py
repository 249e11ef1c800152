"""A memory tier beside HBM as one chip sees it, read from ``instances/tiers/<name>.yaml``.

Capacities and bandwidths are one chip's share of what its host (or its network) has.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from topology.catalogue import catalogue_names, checked, data_dir, read_data, resolve
from topology.errors import InstanceError
from topology.names import Line, Name, Prose
from topology.quantity import Bytes, BytesPerSecond

#: what a tier is made of, nearest to the chip first
TierKind = Literal["host", "flash", "disk"]

#: every kind, nearest first
TIER_KINDS: tuple[TierKind, ...] = ("host", "flash", "disk")

#: hours of the years over which a purchase is written off
_HOURS = 4 * 8766.0


class Tier(BaseModel):
    """Memory or storage that KV can move to.

    ``bytes``, ``read_bytes_per_s`` and ``write_bytes_per_s`` are per chip and direction, read being
    towards the chip. ``usd_per_byte`` buys a byte; ``in_chip_price``: the chip's hourly price already
    pays for it (a server's own memory), so that using it costs nothing more. ``provenance`` maps a
    field to ``measured``, ``published``, ``derived`` or ``assumed``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    kind: TierKind
    title: Line = ""
    bytes: Bytes
    read_bytes_per_s: BytesPerSecond
    write_bytes_per_s: BytesPerSecond
    usd_per_byte: Annotated[float, Field(ge=0, le=1)]
    in_chip_price: bool = False
    provenance: dict[str, Literal["measured", "published", "derived", "assumed"]] = Field(
        default_factory=dict
    )
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Tier:
        for field in self.provenance:
            if field not in type(self).model_fields:
                raise ValueError(f"provenance: no field {field!r}")
        return self

    @property
    def drain_s(self) -> float:
        """Seconds to read all of it once: the hold that wears capacity and bandwidth alike."""
        return self.bytes / self.read_bytes_per_s

    @property
    def usd_per_byte_hour(self) -> float:
        """Rent of a byte: its purchase written off over four years (as servers are)."""
        return self.usd_per_byte / _HOURS

    @property
    def charged_usd_per_byte_hour(self) -> float:
        """Rent that comes on top of the chip's price."""
        return 0.0 if self.in_chip_price else self.usd_per_byte_hour


def load_tier(name_or_path: str) -> Tier:
    """The tier of a catalogue name (``"local-nvme"``) or of a YAML file. Raises ``InstanceError``."""
    path = resolve(name_or_path, "tiers", (".yaml",))
    if path.parent == data_dir("tiers"):
        return _shipped(path)
    with checked(str(path)):
        return Tier.model_validate(read_data(path))


def tier_names() -> list[str]:
    """Sorted names of the shipped tiers."""
    return catalogue_names("tiers", (".yaml",))


@lru_cache(maxsize=64)
def _shipped(path: Path) -> Tier:
    with checked(path.name):
        return Tier.model_validate(read_data(path))


def _named(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return load_tier(value)
    except InstanceError as error:  # the file that names the tier becomes the place
        said = (p.message if p.place == "tiers" else str(p) for p in error.problems)
        raise ValueError("; ".join(said)) from None


#: a tier by its name, or written in place
NamedTier = Annotated[Tier, BeforeValidator(_named)]

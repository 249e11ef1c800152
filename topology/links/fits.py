"""Measured latency and bandwidth fractions of collectives, one data file per chip.

Links at full speed (``physics``) are the default; a fit replaces latencies and divides link speeds.
``python -m topology.links`` writes the files in ``instances/links`` from measured rows; ``like`` points to
another chip's file where a chip was never measured, which makes its figures assumed.

``rackfit collective --profile calibrated`` uses these fits: each is of one collective run alone. A solve
takes the links at full speed and multiplies by the one fraction of its profile, which was fitted on whole
passes of serving engines, so that it also holds what collectives cost beside computing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from topology.catalogue import checked, data_dir, read_data

PROFILES = ("physics", "calibrated")


class Fit(BaseModel):
    """One collective: *alpha_s + alpha_per_doubling_s log2 n* seconds, ``fraction`` of link speed.

    ``ramp`` adds *2 ramp sqrt(latency x transfer)*: messages cut into chunks pay a latency per
    chunk, and with the best chunk the cost of the pipeline grows like that (ramp 1 in theory).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    alpha_s: float = Field(ge=0)
    alpha_per_doubling_s: float = Field(default=0.0, ge=0)
    fraction: float = Field(gt=0, le=1)
    ramp: float = Field(default=0.0, ge=0)

    def latency_s(self, num_chips: int) -> float:
        """Latency of the smallest message on this many chips."""
        return self.alpha_s + self.alpha_per_doubling_s * math.log2(max(num_chips, 1))


class LinkFits(BaseModel):
    """What was measured of one chip's collectives; ``scale_out`` is for transfers over the NICs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: str
    like: str | None = None
    collectives: dict[str, Fit] = Field(default_factory=dict)
    scale_out: Fit | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def load_link_fits(chip: str) -> LinkFits | None:
    """What is known of a chip, what is missing filled from the chip it is ``like``, or ``None``."""
    found = read_link_fits(chip)
    if found is None or found.like is None:
        return found
    other = load_link_fits(found.like)
    if other is None:
        return found
    filled = {**other.collectives, **found.collectives}
    update = {"collectives": filled, "scale_out": found.scale_out or other.scale_out}
    return found.model_copy(update=update)


def read_link_fits(chip: str) -> LinkFits | None:
    """The file of a chip as it is written, or ``None``."""
    path = _measured().get(chip)
    if path is None:
        return None
    with checked(path.name):
        return LinkFits.model_validate(read_data(path))


@lru_cache(maxsize=1)
def _measured() -> dict[str, Path]:
    """The files by chip; a chip's name never makes a path, as it may be any text."""
    return {path.stem: path for path in data_dir("links").glob("*.json")}

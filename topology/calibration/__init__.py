"""Measured latency and bandwidth fractions of collectives, one data file per chip.

Physics is the default everywhere; a calibration replaces latencies and divides link speeds. Files
are written by ``topology.calibration.fit`` from measured rows; ``like`` points to another chip's
file where a chip was never measured, which makes its figures assumed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from topology.catalogue import parse_model, read_data
from topology.chip import Basis

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


class Calibration(BaseModel):
    """What was measured of one chip's collectives; ``scale_out`` is for transfers over the NICs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: str
    like: str | None = None
    collectives: dict[str, Fit] = Field(default_factory=dict)
    scale_out: Fit | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def load_calibration(chip: str) -> Calibration | None:
    """What is known of a chip, what is missing filled from the chip it is ``like``, or ``None``."""
    found = read_calibration(chip)
    if found is None or found.like is None:
        return found
    other = load_calibration(found.like)
    if other is None:
        return found
    filled = {**other.collectives, **found.collectives}
    update = {"collectives": filled, "scale_out": found.scale_out or other.scale_out}
    return found.model_copy(update=update)


def read_calibration(chip: str) -> Calibration | None:
    """The file of a chip as it is written, or ``None``."""
    path = _measured().get(chip)
    return None if path is None else parse_model(Calibration, read_data(path), path.name)


@lru_cache(maxsize=1)
def _measured() -> dict[str, Path]:
    """The files by chip; a chip's name never makes a path, as it may be any text."""
    return {path.stem: path for path in Path(__file__).parent.glob("*.json")}


def basis_of(chip: str, kind: str) -> Basis | None:
    """``measured`` on this chip, ``assumed`` from one like it, ``None`` where physics stays."""
    own, filled = read_calibration(chip), load_calibration(chip)
    if own is not None and kind in own.collectives:
        return "measured"
    return "assumed" if filled is not None and kind in filled.collectives else None

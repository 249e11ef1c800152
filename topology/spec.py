"""The cluster file as written: domains, scale-out, failures, chips that are taken.

Checked here for form only; ``topology.load`` builds the cluster.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from topology.chip import Basis
from topology.names import Line, Name, Prose
from topology.quantity import BytesPerSecond, UsdPerHour


class ChipCount(BaseModel):
    """Several chips of one type in a row, for domains that mix types.

    ``nic_bytes_per_s`` and ``usd_per_hour`` override the catalogue's figures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: Line
    count: int = Field(ge=1, le=100_000)
    nic_bytes_per_s: BytesPerSecond | None = None
    usd_per_hour: UsdPerHour | None = None


class DomainSpec(BaseModel):
    """``count`` equal domains: the fabric's options and the chips on it, by position."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fabric: dict[str, Any]
    chips: tuple[ChipCount, ...] = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=10_000)
    rack: Name | None = None


class ClusterSpec(BaseModel):
    """One cluster file.

    ``failed`` and ``taken`` list names as in :mod:`topology.failures`: chips (``r0g3``), whole
    domains (``r0``), switches (``r0sw1``), NICs (``r0g3.nic``), ``leaf0``, ``spine0``, links
    (``r0g3--r0sw1``), with wildcards. ``parameter`` marks a family: ``nvl-36`` reads ``nvl.yaml`` with 36
    chips, ``tpu-v5p-4x4x8`` reads ``tpu-v5p.yaml`` with that shape.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Line = ""
    parameter: Literal["chips", "shape"] | None = None
    domains: tuple[DomainSpec, ...] = Field(min_length=1)
    scale_out: dict[str, Any] | None = None
    failed: tuple[Line, ...] = ()
    taken: tuple[Line, ...] = ()
    provenance: dict[str, Basis] = Field(default_factory=dict)
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()

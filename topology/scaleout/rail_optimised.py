"""Rail-optimised leaf/spine: chip *i* of every node on leaf *i* of its unit (DGX SuperPOD H100).

A unit is 32 nodes under 8 leaves, four units share 16 spines, full bisection.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from topology.scaleout.base import NetworkSpec, network_kind


@network_kind
class RailOptimised(NetworkSpec):
    """Defaults of the SuperPOD H100 reference architecture."""

    kind: Literal["rail-optimised"] = "rail-optimised"
    domains_per_unit: int = Field(default=32, ge=1)
    rails: int = Field(default=8, ge=1, le=4096)
    spines: int = Field(default=16, ge=1, le=4096)
    relayed: bool = True

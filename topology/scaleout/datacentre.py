"""The data-centre network that joins TPU slices: host NICs shared by the chips of a host."""

from __future__ import annotations

from typing import Literal

from topology.quantity import Seconds
from topology.scaleout.base import NetworkSpec, network_kind


@network_kind
class Datacentre(NetworkSpec):
    """As leaf/spine; the latency is that of a routed network rather than of RDMA."""

    kind: Literal["datacentre"] = "datacentre"
    floor_s: Seconds = 10e-6

"""Cuts of the scale-out: what can leave each domain through its NICs, and each unit through its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology.domain import Domain
from topology.scaleout.base import Network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uplinks:
    """Bytes/s that can cross the cut around each domain and around each unit, per direction.

    ``domain[d]``: working NICs of working chips. ``unit[u]``: links of the unit's leaves to the spines.
    ``unit_of[d]``: the unit of a domain. All 0 where domains have no network.
    """

    domain: Array
    unit: Array
    unit_of: NDArray[np.int64]

    def narrowest(self, domain: int) -> float:
        """What a domain can send to other units: through its NICs, and its leaves where these are its own."""
        unit = int(self.unit_of[domain])
        alone = np.count_nonzero(self.unit_of == unit) == 1
        return float(min(self.domain[domain], self.unit[unit] if alone else np.inf))


def uplinks(domains: Sequence[Domain], network: Network | None) -> Uplinks:
    """The cuts of a cluster."""
    if network is None:
        nothing = np.zeros(len(domains))
        return Uplinks(nothing, nothing, np.arange(len(domains)))
    through = [
        sum(nics[placed.position] for placed in domain.chips if placed.healthy)
        for domain, nics in ((d, network.nic_profile(d.index)) for d in domains)
    ]
    unit_of = np.array([network.unit(domain.index) for domain in domains], dtype=np.int64)
    units = [network.unit_bytes_per_s(unit) for unit in range(int(unit_of.max()) + 1)]
    return Uplinks(np.array(through), np.array(units), unit_of)

"""Cuts of the scale-out: what can leave each domain through its NICs, and each unit through its leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from topology.domain import Domain
from topology.scaleout.base import Network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uplinks:
    """Bytes/s that can cross the cut around each domain and around each unit, per direction.

    ``domain[d]``: working NICs of working chips. ``unit[u]``: links of the unit's leaves to the spines.
    ``unit_of[d]``: the unit of a domain. All 0 where domains have no network. ``doors[d]``: chips with a working
    NIC, of domains in which some usable chip has none.
    """

    domain: Array
    unit: Array
    unit_of: NDArray[np.int64]
    doors: Mapping[int, int] = field(default_factory=dict)

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
    through, doors = [], {}
    for domain in domains:
        nics = network.nic_profile(domain.index)
        through.append(sum(nics[placed.position] for placed in domain.chips if placed.healthy))
        working = [nics[placed.position] > 0 for placed in domain.usable]
        if not all(working):
            doors[domain.index] = sum(working)
    unit_of = np.array([network.unit(domain.index) for domain in domains], dtype=np.int64)
    units = [network.unit_bytes_per_s(unit) for unit in range(int(unit_of.max()) + 1)]
    return Uplinks(np.array(through), np.array(units), unit_of, doors)

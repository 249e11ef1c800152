r"""KV from prefill to decode replicas: how much of it the links carry, and what one hand-over takes.

A request's KV goes to a decode replica of the same domain where that is possible, else to one of the same
unit, else across the spines. With supply ``P[d]`` (of which ``E[d]`` may leave), demand ``D[d]`` and room
``C[d]`` of the links::

    local[d] = min(P[d], D[d])
    out[d]   = min(min(P[d] - local[d], E[d]) + PS[d], C[d])     in[d] = min(D[d] - local[d] + DS[d], C[d])

and the same again for units with the sums of ``out`` and ``in``; what is matched on all levels is the rate that
the pools serve. No routing carries more: local matches free links (an exchange argument). Replicas over
several domains (``PS``, ``DS``) hold each request's KV in parts, an equal part on every chip: all of it
crosses NICs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology import Cluster
from topology.errors import NoRoute
from topology.scaleout.uplinks import Uplinks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Requests per second that pools could hand over or take, by domain.

    ``supply``: prefill inside a domain, ``leaving`` of it may hand over to other domains; ``demand``: decode
    inside a domain; ``wide_supply`` and ``wide_demand``: shares of replicas over several domains.
    """

    supply: Array
    leaving: Array
    demand: Array
    wide_supply: Array
    wide_demand: Array


@dataclass(frozen=True)
class Carried:
    """Requests per second handed over: in all, out of and into each domain, out of and into each unit."""

    requests_per_s: float
    out: Array
    into: Array
    unit_out: Array
    unit_into: Array


def room_beside(links: Uplinks, domains: Array, units: Array, request_bytes: float) -> Uplinks:
    """Requests per second whose KV the links carry beside other traffic of domains and units, bytes/s."""
    if not request_bytes:
        endless = np.full_like(links.domain, np.inf), np.full_like(links.unit, np.inf)
        return Uplinks(*endless, links.unit_of)
    return Uplinks(
        np.maximum(0.0, links.domain - domains) / request_bytes,
        np.maximum(0.0, links.unit - units) / request_bytes,
        links.unit_of,
    )


def carried(rates: Rates, room: Uplinks) -> Carried:
    """What the links carry of the hand-over; ``room`` in requests per second."""
    local = np.minimum(rates.supply, rates.demand)
    out = np.minimum(rates.supply - local, rates.leaving) + rates.wide_supply
    out, into = np.minimum(out, room.domain), np.minimum(
        rates.demand - local + rates.wide_demand, room.domain
    )  # fmt: skip
    units = len(room.unit)
    unit_out: Array = np.bincount(room.unit_of, out, units).astype(float)
    unit_into: Array = np.bincount(room.unit_of, into, units).astype(float)
    inside = np.minimum(unit_out, unit_into)
    up, down = np.minimum(unit_out - inside, room.unit), np.minimum(unit_into - inside, room.unit)
    across = min(up.sum(), down.sum())
    shipped_up = up * float(_share(across, up.sum()))
    shipped_down = down * float(_share(across, down.sum()))
    return Carried(
        float(local.sum() + inside.sum() + across),
        out * _share(inside + shipped_up, unit_out)[room.unit_of],
        into * _share(inside + shipped_down, unit_into)[room.unit_of],
        shipped_up,
        shipped_down,
    )


def _share(part: Array | float, whole: Array | float) -> Array:
    """``part / whole``, 0 of nothing."""
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def gate(cluster: Cluster, chips: Sequence[str]) -> tuple[str, float] | None:
    """The chip that is last to send what ``chips`` of a domain send, and for how many chips it sends.

    Chips whose NIC failed hand over to those of the others, or to their domain's. ``None``: none works.
    """
    if cluster.network is None:
        return chips[0], 1.0
    home = cluster.chip(chips[0]).domain
    nics = cluster.network.nic_profile(home)
    alive = [chip for chip in chips if nics[cluster.chip(chip).position] > 0]
    if not alive:
        alive = [
            placed.id
            for placed in cluster.domains[home].chips
            if placed.healthy and nics[placed.position] > 0
        ]
    if not alive:
        return None
    slowest = min(alive, key=lambda chip: nics[cluster.chip(chip).position])
    return slowest, max(1.0, len(chips) / len(alive))


def send_s(
    cluster: Cluster, source: tuple[str, float] | None, targets: Sequence[str], moved: float
) -> float | None:
    """Seconds until ``moved`` bytes of each chip are at the farthest of some chips; ``None``: no way there."""
    if source is None:
        return None
    chip, times = source
    try:
        return max(
            (cluster.rate("send", (chip, target)).time(moved * times) for target in targets),
            default=None,
        )
    except NoRoute:
        return None

"""The rate of a collective on a group: scale-up legs and scale-out loads run concurrently.

The slowest link sets the seconds per byte. Knows no particular fabric or network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topology.collectives.demand import (
    NOT_DISPATCHED,
    PATTERN,
    Dispatched,
    DomainTraffic,
    crossings,
    shares,
)
from topology.errors import NoRoute, Problem
from topology.fabric import Fabric
from topology.links.fits import Fit
from topology.rate import IDLE, Leg, Rate
from topology.scaleout.base import Flow, Network

#: The members of one domain: its index, its fabric, positions in ascending order.
Part = tuple[int, Fabric, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Cost:
    """A collective at full link speed, scale-up and scale-out apart.

    Seconds per byte and latencies of each side, the largest number of members in a domain, bytes
    leaving the most loaded domain (``far``: its unit too), and the lower bound. ``crossings``: of the scale-out, one
    after the other.
    """

    local_s_per_byte: float
    local_latency_s: float
    local_chips: int
    local_link: str
    out_s_per_byte: float
    out_latency_s: float
    out_link: str
    out_bytes_per_byte: float
    far_bytes_per_byte: float
    bound_s_per_byte: float
    bound_latency_s: float
    crossings: int = 1

    def rate(self, local: Fit | None = None, out: Fit | None = None) -> Rate:
        """The rate at full link speed, or with measured latencies and fractions of it."""
        local_s, local_latency, ramp = self.local_s_per_byte, self.local_latency_s, 0.0
        out_s, out_latency = self.out_s_per_byte, self.out_latency_s
        if local is not None and self.local_chips > 1:
            local_s, ramp = local_s / local.fraction, local.ramp
            local_latency = local.latency_s(self.local_chips)
        if out is not None and out_latency > 0:
            out_s, out_latency = out_s / out.fraction, out.alpha_s * self.crossings
        inside = local_s >= out_s
        time, latency = max(local_s, out_s), local_latency + out_latency
        return Rate(
            latency,
            time,
            min(self.bound_s_per_byte, time),
            min(self.bound_latency_s, latency),
            self.local_link if inside else self.out_link,
            self.out_bytes_per_byte,
            self.far_bytes_per_byte,
            ramp if inside else 0.0,
        )


def cost_of(
    kind: str,
    parts: Sequence[Part],
    network: Network | None,
    dispatched: Dispatched = NOT_DISPATCHED,
) -> Cost:
    """Cost of any collective; for ``send`` the parts hold source, then target.

    Raises ``NoRoute`` where none exists.
    """
    if kind == "send":
        return _send(parts, network)
    parts, repeats = _alike(parts, network)
    moved, flows = plan(kind, parts, network, dispatched, repeats)
    worst, bound, bound_latency, latency, link = 0.0, 0.0, 0.0, 0.0, "none"
    known: dict[tuple[int, tuple[int, ...]], Leg] = {}
    for (domain, fabric, members), share in zip(parts, moved, strict=True):
        key = (id(fabric), members)
        leg = known.get(key)
        if leg is None:
            leg = known[key] = getattr(fabric, PATTERN[kind])(members)
        latency = max(latency, leg.latency_s)
        bound_latency = max(bound_latency, leg.bound_latency_s)
        if leg.s_per_byte * share.local > worst:
            worst, link = leg.s_per_byte * share.local, _named(domain, leg.link)
        if not flows:
            bound = leg.bound_s_per_byte * share.local
    carried, name, out_latency, out, far, crossed = 0.0, "none", 0.0, 0.0, 0.0, 1
    if flows and network is not None:
        carried, name = network.carry(flows)
        out = max(len(flow.members) * flow.cross for flow in flows)
        far = max(len(flow.members) * flow.far for flow in flows)
        crossed = crossings(kind, sum(repeats))
        spec = network.spec
        out_latency = spec.floor_s * crossed
        if kind == "all-reduce":  # up to one chip of each domain, over the network, and down again
            latency, out_latency = 2 * latency, spec.reduce_start_s + spec.reduce_step_s * crossed
        bound_latency = network.path_latency_s(any(flow.far > 0 for flow in flows))
        bound = _cut_bound(parts, moved, network)
    chips = max(len(members) for _, _, members in parts)
    return Cost(
        worst, latency, chips, link, carried, out_latency, name, out, far, bound, bound_latency, crossed
    )  # fmt: skip


def _alike(parts: Sequence[Part], network: Network | None) -> tuple[list[Part], list[int]]:
    """One part for all domains of the same fabric, members, NICs and unit, and how many.

    Where each domain is a unit of its own, units with the same links to the spines are alike.
    """
    if network is None or len(parts) < 2:
        return list(parts), [1] * len(parts)
    found: dict[tuple[int, tuple[int, ...], int, int], list[int]] = {}
    for index, (domain, fabric, members) in enumerate(parts):
        key = (id(fabric), members, network.nic_class(domain), network.seam(domain))
        found.setdefault(key, []).append(index)
    return [parts[group[0]] for group in found.values()], [len(g) for g in found.values()]


def _named(domain: int, link: str) -> str:
    return "--".join(f"r{domain}{end}" for end in link.split("--")) if link != "none" else link


def _cut_bound(parts: Sequence[Part], moved: Sequence[DomainTraffic], network: Network) -> float:
    """The larger of the cuts around each chip and around each domain, by the group's own links."""
    bound = 0.0
    known: dict[tuple[int, tuple[int, ...], int], float] = {}
    for (domain, fabric, members), share in zip(parts, moved, strict=True):
        key = (id(fabric), members, network.nic_class(domain))
        if key not in known:
            nics = network.nic_profile(domain)
            total = sum(nics[position] for position in members)
            narrow = min(fabric.width(position) + nics[position] for position in members)
            around = share.cross_bound * len(members) / total if share.cross_bound else 0.0
            known[key] = max(around, share.chip_bound / narrow)
        bound = max(bound, known[key])
    return bound


def plan(
    kind: str,
    parts: Sequence[Part],
    network: Network | None,
    dispatched: Dispatched,
    repeats: Sequence[int] | None = None,
) -> tuple[list[DomainTraffic], list[Flow]]:
    """What each domain moves inside and through its NICs. Raises ``InstanceError``.

    ``repeats`` counts the domains that each part stands for, one each by default.
    """
    repeats = [1] * len(parts) if repeats is None else repeats
    if sum(repeats) > 1 and network is None:
        raise NoRoute(Problem("scale_out", "the cluster has no network between its domains"))
    moved = shares(
        kind,
        [len(members) for _, _, members in parts],
        [network.unit(domain) if network else 0 for domain, _, _ in parts],
        dispatched,
        relayed=network is not None and network.spec.relayed,
        repeats=repeats,
        units_apart=network is not None and network.spec.domains_per_unit == 1,
    )
    if network is None or sum(repeats) < 2:
        return moved, []
    flows = [
        Flow(domain, members, share.cross, share.far, times)
        for (domain, _, members), share, times in zip(parts, moved, repeats, strict=True)
    ]
    return moved, flows


def relay_bytes_per_s(fabric: Fabric, position: int, other: Fabric, far_position: int) -> float:
    """At what a message changes rails beside its source, or beside its target where the source has no links; 0: at neither."""
    return fabric.width(position) or other.width(far_position)


def _send(parts: Sequence[Part], network: Network | None) -> Cost:
    ends = [(domain, fabric, position) for domain, fabric, group in parts for position in group]
    (domain, fabric, position), (other, far_fabric, far_position) = ends
    apart = (
        domain == other and position != far_position and not fabric.joins(position, far_position)
    )
    if domain == other and not (apart and network is not None):
        leg = fabric.send(position, far_position) if position != far_position else IDLE
        return Cost(
            leg.s_per_byte,
            leg.latency_s,
            2,
            _named(domain, leg.link),
            0.0,
            0.0,
            "none",
            0.0,
            0.0,
            leg.bound_s_per_byte,
            leg.bound_latency_s,
        )
    if network is None:
        raise NoRoute(Problem("scale_out", "the cluster has no network between its domains"))
    same_unit = network.unit(domain) == network.unit(other)
    same_leaf = same_unit and network.same_rail(position, far_position)
    width = relay_bytes_per_s(fabric, position, far_fabric, far_position)
    relayed = network.spec.relayed and same_unit and not same_leaf and width > 0
    far = 0.0 if same_leaf or relayed else 1.0
    flows = [Flow(domain, (position,), 1.0, far), Flow(other, (far_position,), 1.0, far)]
    carried, name = network.carry(flows)
    hop = 1.0 / width if relayed else 0.0
    path = network.path_latency_s(far > 0)
    floor = network.spec.floor_s
    link = f"r{domain}g{position}"
    return Cost(hop, 0.0, 1, link, carried, floor, name, 1.0, far, carried, min(path, floor))

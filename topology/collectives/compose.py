"""The rate of a collective on a group: scale-up legs and scale-out loads run concurrently.

The slowest link sets the seconds per byte. Knows no particular fabric or network.
"""

from __future__ import annotations

from collections.abc import Sequence

from topology.collectives.demand import CROSSINGS, PATTERN, shares
from topology.errors import InstanceError, Problem
from topology.fabric import Fabric
from topology.rate import IDLE, Leg, Rate
from topology.scaleout.base import Flow, Network

#: The members of one domain: its index, its fabric, positions in ascending order.
Part = tuple[int, Fabric, tuple[int, ...]]


def compose(
    kind: str,
    parts: Sequence[Part],
    network: Network | None,
    *,
    top_k: int | None,
    one_copy_per_domain: bool,
) -> Rate:
    """Rate of any collective but ``send``. Raises ``InstanceError`` where no route exists."""
    if len(parts) > 1 and network is None:
        raise InstanceError(Problem("scale_out", "the cluster has no network between its domains"))
    relayed = network is not None and network.spec.relayed
    units = [network.unit(domain) if network else 0 for domain, _, _ in parts]
    counts = [len(members) for _, _, members in parts]
    moved = shares(
        kind,
        counts,
        units,
        top_k=top_k,
        one_copy_per_domain=one_copy_per_domain,
        relayed=relayed,
    )
    worst, bound, bound_latency, floor = 0.0, 0.0, 0.0, 0.0
    link = "none"
    known: dict[tuple[int, tuple[int, ...]], Leg] = {}
    for (domain, fabric, members), share in zip(parts, moved, strict=True):
        key = (id(fabric), members)
        leg = known.get(key)
        if leg is None:
            leg = known[key] = getattr(fabric, PATTERN[kind])(members)
        floor = max(floor, leg.latency_s)
        bound_latency = max(bound_latency, leg.bound_latency_s)
        if leg.s_per_byte * share.local > worst:
            worst, link = leg.s_per_byte * share.local, f"r{domain}{leg.link}"
        if len(parts) == 1:
            bound = leg.bound_s_per_byte * share.local
    out = 0.0
    if network is not None and len(parts) > 1:
        flows = [
            Flow(domain, members, share.cross, share.far)
            for (domain, _, members), share in zip(parts, moved, strict=True)
        ]
        carried, name = network.carry(flows)
        if carried > worst:
            worst, link = carried, name
        out = max(len(flow.members) * flow.cross for flow in flows)
        floor += network.spec.floor_s * CROSSINGS.get(kind, 1)
        bound_latency = network.path_latency_s(len(set(units)) > 1)
        for (domain, fabric, members), share in zip(parts, moved, strict=True):
            nics = [network.nic_bytes_per_s(domain, position) for position in members]
            bound = max(bound, share.cross_bound * len(members) / sum(nics))
            for position, nic in zip(members, nics, strict=True):
                bound = max(bound, share.chip_bound / (fabric.width(position) + nic))
    if kind == "dispatch" and sum(counts) == 1:
        return Rate(0.0, 0.0, 0.0, 0.0, "none")
    return Rate(floor, worst, min(bound, worst), min(bound_latency, floor), link, out)


def send(
    source: tuple[int, Fabric, int], target: tuple[int, Fabric, int], network: Network | None
) -> Rate:
    """Rate of one message between two chips."""
    (domain, fabric, position), (other, _, far_position) = source, target
    if domain == other:
        leg = IDLE if position == far_position else fabric.send(position, far_position)
        return Rate(
            leg.latency_s,
            leg.s_per_byte,
            leg.bound_s_per_byte,
            leg.bound_latency_s,
            f"r{domain}{leg.link}" if leg is not IDLE else "none",
        )
    if network is None:
        raise InstanceError(Problem("scale_out", "the cluster has no network between its domains"))
    far = 1.0 if network.unit(domain) != network.unit(other) else 0.0
    flows = [Flow(domain, (position,), 1.0, far), Flow(other, (far_position,), 1.0, far)]
    carried, name = network.carry(flows)
    floor = network.spec.floor_s
    path = network.path_latency_s(far > 0)
    return Rate(floor, carried, carried, min(path, floor), name, 1.0)

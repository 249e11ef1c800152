r"""KV outside HBM lies in tiers that the question allows and the chips have, fits, and reloads in time.

For every chip and tier: ``caches in flight + idle conversations <= bytes``, and at full load
``return_rate * kept per second * bytes per conversation <= read_bytes_per_s`` (writes: all that are kept, once).
"""

from __future__ import annotations

from costmodel.layout.layout import KvTier, Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica import held
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.replica import ReplicaPrice
from costmodel.replica.tier_use import traffic_shares
from costmodel.rules import Violation
from costmodel.tolerance import exceeds
from topology.quantity import figure


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Replicas with KV where there is no room, no bandwidth, or no such tier."""
    return [
        Violation("kv_tiers", f"replicas[{index}].kv", message)
        for index, (replica, price) in enumerate(zip(layout.replicas, priced.replicas, strict=True))
        for message in broken(instance, replica, price)
    ]


def broken(instance: Instance, replica: Replica, price: ReplicaPrice) -> list[str]:
    """What is wrong with the tiers of one replica, in words (nothing: empty)."""
    place, idle = held.place_in_flight(replica), held.idle_by_rank(replica)
    if place == "hbm" and not idle:
        return []
    found = []
    if any(share.tier != place for share in replica.kv if not share.idle):
        found.append("caches in flight lie in several tiers; a replica reads them from one")
    if idle and (instance.workload.hold_s is None or replica.role == "decode"):
        found.append("idle KV, but none is held here: no hold_s, or a replica that decodes only")
        return found
    outside = sorted({place, *idle} - {"hbm"})
    allowed = instance.scenario.kv_tiers
    found += [
        f"KV lies in {tier}; kv_tiers of the question allows {', '.join(allowed) or 'none'}"
        for tier in outside
        if tier not in allowed
    ]
    for tier in outside:
        found += _room(instance, replica, tier, place == tier, idle.get(tier))
        if place == tier and tier in idle:
            found.append(f"every pass reads {tier}: no bandwidth is left for reloads from it")
        for share, what in zip(
            traffic_shares(instance, replica, price, tier), ("reads", "writes"), strict=True
        ):
            if exceeds(share, 1.0):
                found.append(f"idle KV {what} {figure(share)} times the bandwidth of {tier}")
    return found


def _room(
    instance: Instance, replica: Replica, tier: KvTier, in_flight: bool, idle: list[int] | None
) -> list[str]:
    """The first chip whose tier is missing or overfull."""
    sequences, tp = replica.rank_sequences(), replica.shape.tp
    context = instance.kept_context(replica.role)
    for stage in replica.stages:
        layers = held.stage_kinds(instance, *stage.layers)
        one = held.cache_bytes(instance, layers, tp, context) if in_flight else 0.0
        waiting = held.idle_bytes(instance, layers, tp) if idle else 0.0
        for at, name in enumerate(stage.chips):
            chip = instance.cluster.chip(name).chip
            has = None if tier == "hbm" else chip.tier(tier)
            if has is None:
                return [f"chip {name} ({chip.name}) has no tier {tier}"]
            used = one * sequences[at // tp] + (waiting * idle[at // tp] if idle else 0.0)
            if exceeds(used, has.bytes):
                return [
                    f"chip {name} needs {used / 1e9:.1f} GB of {tier}, has {has.bytes / 1e9:.1f} GB"
                ]
    return []

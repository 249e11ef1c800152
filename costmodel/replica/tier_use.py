"""What lies in each tier of a priced layout: bytes, traffic, money. Part of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from costmodel.layout.layout import KvTier, Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica import held
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.kv_bytes import bytes_by_chip
from costmodel.replica.replica import ReplicaPrice, price_replica
from topology import Chip

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class TierUse:
    """KV of all replicas of one role in one tier, at the rate served.

    ``idle``: conversations that wait, else caches that every pass reads. ``bytes`` over all chips;
    ``rent_usd_per_hour`` is what they would rent, ``usd_per_hour`` what of it comes on top of the chips'
    price. ``read_share``: of the tier's read bandwidth, on the busiest chip. ``reload_s``: before a
    returning prompt is computed. ``saved_chip_s``: chip seconds that a returning request need not
    compute again.
    """

    role: str
    tier: KvTier
    idle: bool
    sequences: float
    bytes: float
    rent_usd_per_hour: float
    usd_per_hour: float
    read_share: float
    reload_s: float
    saved_chip_s: float


def rent(chip: Chip, place: KvTier, chip_usd_per_hour: float) -> tuple[float, float]:
    """Dollars per byte and hour in a place, and what of it is charged on top of the chip."""
    if place == "hbm":
        return chip_usd_per_hour / chip.hbm_bytes, 0.0
    tier = chip.tier(place)
    if tier is None:
        return 0.0, 0.0
    return tier.usd_per_byte_hour, tier.charged_usd_per_byte_hour


def tier_uses(
    instance: Instance, layout: Layout, priced: PricedLayout, served: float
) -> tuple[TierUse, ...]:
    """Uses of tiers beside plain caches in HBM, summed by role and tier. ``served``: requests/s."""
    found: dict[tuple[str, KvTier, bool], TierUse] = {}
    saved: dict[object, float] = {}
    for replica, price in zip(layout.replicas, priced.replicas, strict=True):
        for use in _uses(instance, layout, replica, price, _load(replica, priced, served), saved):
            key = (use.role, use.tier, use.idle)
            found[key] = _sum(found[key], use) if key in found else use
    return tuple(found.values())


def _load(replica: Replica, priced: PricedLayout, served: float) -> float:
    """Rate of a replica as served over its rate at full load."""
    of_all = served / priced.requests_per_s if priced.requests_per_s else 0.0
    if replica.role == "mixed":
        return of_all
    pool = priced.prefill_per_s if replica.role == "prefill" else priced.decode_per_s
    return of_all * priced.pooled_per_s / pool if pool else 0.0


def _uses(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    price: ReplicaPrice,
    load: float,
    saved: dict[object, float],
) -> Iterator[TierUse]:
    chip = instance.cluster.chip(replica.stages[0].chips[0]).chip
    usd = chip.usd_per_hour * instance.scenario.prices.chip_price_factor
    place = held.place_in_flight(replica)
    if place != "hbm":
        size = sum(here[place, False] for _, here in bytes_by_chip(instance, replica))
        whole, charged = rent(chip, place, usd)
        yield TierUse(
            replica.role, place, False, float(replica.shape.batch), size, whole * size,
            charged * size, 1.0, 0.0, 0.0,
        )  # fmt: skip
    hold = instance.workload.hold_s
    counts = held.idle_by_rank(replica)
    if hold is None or replica.role == "decode" or not counts:
        return
    room = sum(sum(ranks) for ranks in counts.values())
    kept_per_s = load * min(room / hold, float(price.service.requests_per_s))
    key = (replica.shape, replica.role, tuple(stage.layers for stage in replica.stages))
    if key not in saved:
        per_request = [
            len(replica.chips) / float(price_replica(kind, layout, replica).service.requests_per_s)
            for kind in (held.all_new(instance), held.returning(instance))
        ]
        saved[key] = per_request[0] - per_request[1]
    one = held.conversation_bytes(instance)
    for tier, ranks in counts.items():
        share = sum(ranks) / room
        size = kept_per_s * hold * share * one
        whole, charged = rent(chip, tier, usd)
        yield TierUse(
            replica.role, tier, True, kept_per_s * hold * share, size, whole * size, charged * size,
            load * max(traffic_shares(instance, replica, price, tier)[0], 0.0),
            held.reload_s(instance, replica, (tier,)), saved[key],
        )  # fmt: skip


def traffic_shares(
    instance: Instance, replica: Replica, price: ReplicaPrice, place: KvTier
) -> tuple[float, float]:
    """Share of a tier's read and write bandwidth that idle KV takes on the busiest chip at full load."""
    counts = held.idle_by_rank(replica)
    room = sum(sum(ranks) for ranks in counts.values())
    most = max(counts.get(place, [0]))
    if not most or place == "hbm":
        return 0.0, 0.0
    hold = instance.workload.hold_s or inf
    rate = min(float(price.service.requests_per_s), room / hold) * most / room
    read_share = write_share = 0.0
    for stage in replica.stages:
        layers = held.stage_kinds(instance, *stage.layers)
        moved = rate * held.idle_bytes(instance, layers, replica.shape.tp)
        for chip in stage.chips:
            read, write = held.bandwidth(instance.cluster.chip(chip).chip, place)
            returns = instance.workload.return_rate or 0.0
            read_share = max(read_share, returns * moved / read if read else inf)
            write_share = max(write_share, moved / write if write else inf)
    return read_share, write_share


def _sum(one: TierUse, other: TierUse) -> TierUse:
    return TierUse(
        one.role, one.tier, one.idle, one.sequences + other.sequences, one.bytes + other.bytes,
        one.rent_usd_per_hour + other.rent_usd_per_hour, one.usd_per_hour + other.usd_per_hour,
        max(one.read_share, other.read_share), max(one.reload_s, other.reload_s),
        max(one.saved_chip_s, other.saved_chip_s),
    )  # fmt: skip

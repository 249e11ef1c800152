"""Room for idle KV on a replica that stands: as many conversations as its rate needs and fit."""

from __future__ import annotations

from math import ceil, floor, inf

from costmodel.layout.layout import KvShare, KvTier, Layout, Replica, spread
from costmodel.question.instance import Instance
from costmodel.replica.held import (
    bandwidth,
    idle_bytes,
    place_in_flight,
    price_kept,
    price_placed,
    reading_from,
    stage_kinds,
)
from costmodel.replica.replica import ReplicaPrice
from solver.kv_plan import plan_of

#: room is rounded down a little further, so that sums in another order still fit
_SHY = 1.0 - 1e-12


def with_idle(instance: Instance, replica: Replica, place: KvTier, per_rank: int) -> Replica:
    """The replica with ``per_rank`` idle conversations on each attention rank, in one place."""
    shape = replica.shape
    homes = spread(per_rank, shape.tp * shape.pp)
    shares = []
    for number, stage in enumerate(replica.stages):
        one = idle_bytes(instance, stage_kinds(instance, *stage.layers), shape.tp)
        for at, chip in enumerate(stage.chips):
            shares.append(
                KvShare(
                    chip=chip, tier=place, idle=True, bytes=one * per_rank,
                    sequences=homes[number * shape.tp + at % shape.tp],
                )
            )  # fmt: skip
    return replica.model_copy(update={"kv": (*replica.kv, *shares)})


def make_room(instance: Instance, layout: Layout, replica: Replica, place: KvTier) -> int:
    """Idle conversations of each rank: what the rate needs, or what fits and can be reloaded."""
    hold, returns = instance.workload.hold_s or 0.0, instance.workload.return_rate or 0.0
    share = plan_of(instance).kept
    reading = reading_from(instance, place_in_flight(replica))
    price = price_kept(reading, layout, replica, (place,), most_kept=share)
    wanted = share * float(price.service.requests_per_s) * hold / replica.shape.attention_dp
    room = inf
    for stage, stage_price in zip(replica.stages, price.stages, strict=True):
        one = idle_bytes(instance, stage_kinds(instance, *stage.layers), replica.shape.tp)
        for at, name in enumerate(stage.chips):
            chip = instance.cluster.chip(name).chip
            if place == "hbm":
                left = instance.usable_hbm_bytes(chip) - float(stage_price.used_bytes[at])
            else:
                tier = chip.tier(place)
                left = tier.bytes if tier is not None else 0.0
            read, write = bandwidth(chip, place)
            room = min(room, left * _SHY / one, hold * min(read / returns, write) * _SHY / one)
    # all of them need whole places; a share is not exceeded, as the bound counts on it
    return max(0, floor(min(room, ceil(wanted) if share == 1.0 else wanted)))


def kept(
    instance: Instance, replica: Replica, layout: Layout, place: KvTier
) -> tuple[Replica, ReplicaPrice] | None:
    """The replica with what room it needs and has for idle KV, and its price; ``None`` without room."""
    per_rank = make_room(instance, layout, replica, place)
    if per_rank < 1:  # computing all of it again is another plan
        return None
    whole = with_idle(instance, replica, place, per_rank)
    return whole, price_placed(instance, layout, whole)

"""Room for idle KV on a replica that stands: as many conversations as its rate needs and fit."""

from __future__ import annotations

from math import ceil, floor, inf

from costmodel.held import (
    bandwidth,
    idle_bytes,
    place_in_flight,
    price_kept,
    price_placed,
    reading_from,
    stage_kinds,
)
from costmodel.instance import Instance
from costmodel.kv_plan import Place
from costmodel.layout import KvShare, Layout, Replica, spread
from costmodel.replica import ReplicaPrice

#: room is rounded down a little further, so that sums in another order still fit
_SHY = 1.0 - 1e-12


def with_idle(instance: Instance, replica: Replica, place: Place, per_rank: int) -> Replica:
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


def make_room(
    instance: Instance, layout: Layout, replica: Replica, place: Place
) -> tuple[int, bool]:
    """Idle conversations of each rank: what the rate needs, or what fits; and whether all of it fits."""
    hold, returns = instance.workload.hold_s or 0.0, instance.workload.return_rate or 0.0
    price = price_kept(reading_from(instance, place_in_flight(replica)), layout, replica, (place,))
    ranks = replica.shape.attention_dp
    wanted = ceil(float(price.service.requests_per_s) * hold / ranks)
    room = inf
    for stage, stage_price in zip(replica.stages, price.stages, strict=True):
        one = idle_bytes(instance, stage_kinds(instance, *stage.layers), replica.shape.tp)
        for at, name in enumerate(stage.chips):
            chip = instance.cluster.chip(name).chip
            if place == "hbm":
                left = chip.hbm_bytes - float(stage_price.used_bytes[at])
            else:
                tier = chip.tier(place)
                left = tier.bytes if tier is not None else 0.0
            read, write = bandwidth(chip, place)
            room = min(
                room,
                left * _SHY / one,
                hold * read * _SHY / (returns * one),
                hold * write * _SHY / one,
            )
    return min(wanted, max(0, floor(min(room, wanted)))), room >= wanted


def kept(
    instance: Instance, replica: Replica, layout: Layout, place: Place, *, all_fit: bool
) -> tuple[Replica, ReplicaPrice] | None:
    """The replica with room for idle KV, and its price.

    ``None`` if there is no room for one, or (``all_fit``) for all that its rate needs.
    """
    per_rank, enough = make_room(instance, layout, replica, place)
    if per_rank < 1 or (all_fit and not enough):
        return None
    whole = with_idle(instance, replica, place, per_rank)
    return whole, price_placed(instance, layout, whole)

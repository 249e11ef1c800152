r"""A replica whose KV lies in tiers: caches read from host memory, conversations that wait, reloads.

**In flight.** Where a replica's caches lie in a tier, every pass reads them through the chip's link to
it instead of from HBM (engines stream them block by block): the KV term of the roofline is
``bytes / read_bytes_per_s``, and HBM holds none of them but the blocks in flight, which are part of
the engine's reserve.

**Idle.** With ``hold_s`` a share ``r`` of the requests goes on with a conversation whose first
``cached_tokens`` were computed before. The replica that computed them (prefill, mixed) keeps their KV,
once, spread over the chips of an attention rank; nothing comes back from a decode pool.

- *Little's law*: ``H`` conversations of room serve ``H / hold_s`` requests per second at most.
- *Recompute saved*: ``1 / R = (1 - r) / R_new + r / R_returning``, passes being of one kind of request each.
- *Reload*: ``bytes / read_bytes_per_s`` before a returning prompt's first pass, every chip of the rank
  its part; ``r R bytes`` are read and ``R bytes`` written per second, within the tier's bandwidth.
- *Rent*: ``served rate * hold_s * bytes * usd_per_byte_hour``; HBM and memory that the chip's price
  includes cost what else they would do.

*Source:* Pope, blackboard lecture (2026), 1:50-2:03; Little's law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel import memory
from costmodel.instance import Instance
from costmodel.kv_plan import Place, Role
from costmodel.layout import Layout, Replica
from costmodel.operations import LayerKind
from costmodel.replica import ReplicaPrice, StagePrice, price_replica
from costmodel.serving import Service
from topology import Chip

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RequestKind:
    """A ``share`` of the requests, priced by ``instance``; ``reloads``: it finds KV that waited."""

    share: float
    instance: Instance
    reloads: bool


def request_kinds(instance: Instance) -> tuple[RequestKind, ...]:
    """Kinds of requests where idle KV is kept: new ones (if any) and returning ones."""
    workload = instance.workload
    if workload.hold_s is None:
        return (RequestKind(1.0, instance, False),)
    returns = workload.return_rate or 0.0
    known = instance.variants
    if "returning" not in known:
        known["returning"] = replace(instance, workload=workload.returning())
    kinds = (
        RequestKind(1.0 - returns, all_new(instance), False),
        RequestKind(returns, known["returning"], True),
    )
    return tuple(kind for kind in kinds if kind.share > 0)


def all_new(instance: Instance) -> Instance:
    """The same question where no KV is kept: every prompt is computed whole."""
    if instance.workload.hold_s is None:
        return instance
    known = instance.variants
    if "new" not in known:
        known["new"] = replace(instance, workload=instance.workload.first_time())
    return known["new"]


def reading_from(instance: Instance, place: Place) -> Instance:
    """The same question where caches in flight are read from ``place``."""
    if place == "hbm":
        return instance
    known = instance.variants
    if place not in known:
        chips = dict(instance.profile.chips)
        for chip in {placed.chip for placed in instance.cluster.chips}:
            tier = chip.tier(place)
            if tier is not None:
                share = min(1.0, tier.read_bytes_per_s / chip.hbm_bytes_per_s)
                efficiency = instance.profile.for_chip(chip.name)
                chips[chip.name] = efficiency.model_copy(update={"kv": share})
        profile = instance.profile.model_copy(update={"chips": chips})
        known[place] = replace(instance, profile=profile, kv_read_from=place)
    return known[place]


def for_role(instance: Instance, role: Role) -> Instance:
    """The question as a replica of a role sees it under the plan of the search."""
    plan = instance.kv_plan
    instance = reading_from(instance, plan.in_flight(role))
    return instance if keeps_idle(instance, role) else all_new(instance)


def keeps_idle(instance: Instance, role: Role) -> bool:
    """Whether replicas of a role keep idle KV under the plan of the search."""
    waits = instance.workload.hold_s is not None and instance.kv_plan.idle is not None
    return waits and role != "decode"


def place_in_flight(replica: Replica) -> Place:
    """Where the caches of a replica's sequences in flight lie (one place, checked by ``kv_tiers``)."""
    return next((share.tier for share in replica.kv if not share.idle), "hbm")


def idle_by_rank(replica: Replica) -> dict[Place, list[int]]:
    """Idle conversations of each attention rank, by tier."""
    if not any(share.idle for share in replica.kv):
        return {}
    rank_of = {
        chip: place // replica.shape.tp
        for stage in replica.stages
        for place, chip in enumerate(stage.chips)
    }
    found: dict[Place, list[int]] = {}
    for share in replica.kv:
        if share.idle and share.chip in rank_of:
            counts = found.setdefault(share.tier, [0] * replica.shape.attention_dp)
            counts[rank_of[share.chip]] += share.sequences
    return found


def cache_bytes(
    instance: Instance, layers: Sequence[tuple[LayerKind, float]], tp: float, context: float
) -> float:
    """Bytes on one chip of a sequence's caches over these layers, wherever they lie."""
    operations = replace(instance.operations, kv_in_hbm=True)
    return float(memory.kv_bytes_per_sequence(operations, layers, tp, context))


def idle_bytes(instance: Instance, layers: Sequence[tuple[LayerKind, float]], tp: float) -> float:
    """Bytes on one chip of a rank of one idle conversation over these layers: one copy per rank."""
    return cache_bytes(instance, layers, 1.0, instance.workload.cached_tokens) / tp


def stage_kinds(instance: Instance, first: int, last: int) -> list[tuple[LayerKind, float]]:
    """Kinds of the layers ``first`` to ``last`` and how many of each."""
    counts = [
        (kind, float(sum(first <= layer <= last for layer in kind.layers)))
        for kind in instance.operations.kinds
    ]
    return [(kind, count) for kind, count in counts if count]


def conversation_bytes(instance: Instance) -> float:
    """Bytes of one idle conversation over all chips that hold it."""
    layers = stage_kinds(instance, 0, instance.operations.num_layers - 1)
    return idle_bytes(instance, layers, 1.0)


def bandwidth(chip: Chip, place: Place) -> tuple[float, float]:
    """Bytes per second that a chip reads from and writes to a place (HBM: never what limits)."""
    if place == "hbm":
        return inf, inf
    tier = chip.tier(place)
    return (tier.read_bytes_per_s, tier.write_bytes_per_s) if tier is not None else (0.0, 0.0)


def reload_s(instance: Instance, replica: Replica, places: Sequence[Place]) -> float:
    """Seconds until a returning prompt's KV is back in HBM, from the slowest of its places."""
    slowest = 0.0
    for stage in replica.stages:
        moved = idle_bytes(instance, stage_kinds(instance, *stage.layers), replica.shape.tp)
        for chip in stage.chips:
            for place in places:
                read, _ = bandwidth(instance.cluster.chip(chip).chip, place)
                slowest = max(slowest, moved / read if read else inf)
    return slowest


def blend(kinds: Sequence[RequestKind], services: Sequence[Service], reload: Any) -> Service:
    """One service of several kinds of requests, each in passes of its own.

    Seconds per request and time per token are means over requests. The worst first token waits for
    the longest pass of any kind; the mean one for half of the pass it falls into.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each_s = [
            kind.share / np.asarray(service.requests_per_s)
            for kind, service in zip(kinds, services, strict=True)
        ]
        total_s = np.sum(each_s, axis=0)
        rate = np.where(np.isfinite(total_s), 1.0 / total_s, 0.0)
        part = [np.where(np.isfinite(total_s), seconds / total_s, 0.0) for seconds in each_s]
    waits = [2.0 * (service.ttft_s - service.ttft_mean_s) for service in services]
    own = [
        service.ttft_s - wait + (reload if kind.reloads else 0.0)
        for kind, service, wait in zip(kinds, services, waits, strict=True)
    ]
    shares = [kind.share for kind in kinds]
    means = [share * seconds for share, seconds in zip(shares, own, strict=True)]
    means += [p * wait / 2.0 for p, wait in zip(part, waits, strict=True)]
    return Service(
        requests_per_s=np.asarray(rate),
        tpot_s=np.asarray(
            sum(share * service.tpot_s for share, service in zip(shares, services, strict=True))
        ),
        ttft_s=np.maximum.reduce(own) + np.maximum.reduce(waits),
        ttft_mean_s=np.asarray(np.sum(means, axis=0)),
    )


def price_placed(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica with its KV where the layout says."""
    instance = reading_from(instance, place_in_flight(replica))
    held = idle_by_rank(replica)
    if instance.workload.hold_s is None or replica.role == "decode" or not held:
        return price_replica(all_new(instance), layout, replica)
    price = price_kept(instance, layout, replica, tuple(held))
    room = sum(sum(counts) for counts in held.values())
    share = min(1.0, room / instance.workload.hold_s / float(price.service.requests_per_s))
    return replace(
        price,
        stages=tuple(
            _with_idle(instance, replica, index, stage, held.get("hbm"))
            for index, stage in enumerate(price.stages)
        ),
        service=replace(price.service, requests_per_s=share * price.service.requests_per_s),
        egress_bytes_per_s={k: share * v for k, v in price.egress_bytes_per_s.items()},
    )


def price_kept(
    instance: Instance, layout: Layout, replica: Replica, places: Sequence[Place]
) -> ReplicaPrice:
    """Price of a replica that has room for every idle conversation, without the room."""
    kinds = request_kinds(instance)
    prices = [price_replica(kind.instance, layout, replica) for kind in kinds]
    service = blend(kinds, [price.service for price in prices], reload_s(instance, replica, places))
    shares = [kind.share for kind in kinds]
    busy = [
        kind.share / float(price.service.requests_per_s) * float(service.requests_per_s)
        for kind, price in zip(kinds, prices, strict=True)
    ]
    stages = []
    for index in range(len(replica.stages)):
        own = [price.stages[index] for price in prices]
        parts: dict[str, float] = {}
        for share, stage in zip(shares, own, strict=True):
            for part, seconds in stage.parts.items():
                parts[part] = parts.get(part, 0.0) + share * seconds
        fullest = {
            kind: np.maximum.reduce([stage.memory[kind] for stage in own]) for kind in own[0].memory
        }
        imbalance = sum(s * stage.imbalance for s, stage in zip(shares, own, strict=True))
        stages.append(replace(own[0], parts=parts, memory=fullest, imbalance=imbalance))
    egress: dict[int, float] = {}
    for part_of_time, price in zip(busy, prices, strict=True):
        for domain, load in price.egress_bytes_per_s.items():
            egress[domain] = egress.get(domain, 0.0) + part_of_time * load
    return ReplicaPrice(tuple(stages), service, egress)


def _with_idle(
    instance: Instance, replica: Replica, index: int, stage: StagePrice, counts: list[int] | None
) -> StagePrice:
    """A stage with the idle conversations that lie in HBM."""
    if counts is None:
        return stage
    tp = replica.shape.tp
    one = idle_bytes(instance, stage_kinds(instance, *replica.stages[index].layers), tp)
    waiting = np.repeat(np.array(counts, dtype=float), tp) * one
    return replace(stage, memory=stage.memory | {"kv": stage.memory["kv"] + waiting})

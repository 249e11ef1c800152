r"""A replica whose KV lies in tiers: caches read from host memory, conversations that wait, reloads.

**In flight.** Where a replica's caches lie in a tier, every pass reads them through the chip's link to
it instead of from HBM (engines stream them block by block): the KV term of the roofline is
``bytes / read_bytes_per_s``, and HBM holds none of them but the blocks in flight, which are part of
the engine's reserve.

**Idle.** With ``hold_s`` a share ``r`` of the requests goes on with a conversation whose first
``cached_tokens`` were computed before. The replica that computed them (prefill, mixed) keeps their KV,
once, spread over the chips of an attention rank; nothing comes back from a decode pool.

- *Little's law*: with room for ``H`` conversations ``H / hold_s`` of them are kept per second; those beyond are
  dropped and computed again, a share ``f = min(1, H / (hold_s R))`` is kept.
- *Recompute saved*: ``1 / R = (1 - r f) / R_new + r f / R_returning``, passes being of one kind of request each;
  where room is short, ``R = R_new + r (H / hold_s) (1 - R_new / R_returning)``.
- *Reload*: ``bytes / read_bytes_per_s`` before a returning prompt's first pass, every chip of the rank
  its part; ``r f R bytes`` are read and ``f R bytes`` written per second, within the tier's bandwidth.
- *Rent*: ``f * served rate * hold_s * bytes * usd_per_byte_hour``; HBM and memory that the chip's price
  includes cost what else they would do.

*Source:* Pope, blackboard lecture (2026), 1:50-2:03; Little's law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.layout.layout import KvTier, Layout, Replica
from costmodel.passes.operations import LayerKind
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.replica.replica import ReplicaPrice, StagePrice, price_replica, price_replicas
from costmodel.replica.serving import Service
from topology import Chip

Array = NDArray[np.float64]


def returning(instance: Instance) -> Instance:
    """The same question where every request finds the KV of its cached tokens."""
    if instance.workload.hold_s is None:
        return instance
    known = instance.variants
    if "returning" not in known:
        known["returning"] = replace(instance, workload=instance.workload.returning())
    return known["returning"]


def all_new(instance: Instance) -> Instance:
    """The same question where no KV is kept: every prompt is computed whole."""
    if instance.workload.hold_s is None:
        return instance
    known = instance.variants
    if "new" not in known:
        known["new"] = replace(instance, workload=instance.workload.first_time())
    return known["new"]


def reading_from(instance: Instance, place: KvTier) -> Instance:
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


def place_in_flight(replica: Replica) -> KvTier:
    """Where the caches of a replica's sequences in flight lie."""
    return replica.place_in_flight


def idle_by_rank(replica: Replica) -> dict[KvTier, list[int]]:
    """Idle conversations of each attention rank, by tier; tiers without any are left out."""
    if not replica.idle_kv:
        return {}
    rank_of = {
        chip: place // replica.shape.tp
        for stage in replica.stages
        for place, chip in enumerate(stage.chips)
    }
    found: dict[KvTier, list[int]] = {}
    for share in replica.idle_kv:
        if share.chip in rank_of:
            counts = found.setdefault(share.tier, [0] * replica.shape.attention_dp)
            counts[rank_of[share.chip]] += share.sequences
    return {tier: counts for tier, counts in found.items() if any(counts)}


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
    """Kinds of the layers ``first`` to ``last`` and how many of each; with the last come the modules that draft."""
    operations = instance.operations
    counts = [
        (kind, float(sum(first <= layer <= last for layer in kind.layers)))
        for kind in operations.kinds
    ]
    draft = operations.draft
    if draft is not None and last == operations.num_layers - 1:
        counts += [(kind, draft.modules * count) for kind, count in draft.layers]
    return [(kind, count) for kind, count in counts if count]


def conversation_bytes(instance: Instance) -> float:
    """Bytes of one idle conversation over all chips that hold it."""
    layers = stage_kinds(instance, 0, instance.operations.num_layers - 1)
    return idle_bytes(instance, layers, 1.0)


def bandwidth(chip: Chip, place: KvTier) -> tuple[float, float]:
    """Bytes per second that a chip reads from and writes to a place (HBM: never what limits)."""
    if place == "hbm":
        return inf, inf
    tier = chip.tier(place)
    return (tier.read_bytes_per_s, tier.write_bytes_per_s) if tier is not None else (0.0, 0.0)


def reload_s(instance: Instance, replica: Replica, places: Sequence[KvTier]) -> float:
    """Seconds until a returning prompt's KV is back in HBM, from the slowest of its places."""
    slowest = 0.0
    for stage in replica.stages:
        moved = idle_bytes(instance, stage_kinds(instance, *stage.layers), replica.shape.tp)
        for chip in stage.chips:
            for place in places:
                read, _ = bandwidth(instance.cluster.chip(chip).chip, place)
                slowest = max(slowest, moved / read if read else inf)
    return slowest


def hit_share(new: Service, back: Service, return_rate: float, kept_per_s: ArrayLike) -> Array:
    """Share of requests that find their KV where ``kept_per_s`` conversations can be kept per second.

    ``new`` and ``back``: service where none and where all requests find it. Grows with all of them.
    """
    rate_new, rate_back = np.asarray(new.requests_per_s), np.asarray(back.requests_per_s)
    kept = np.asarray(kept_per_s, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        every = 1.0 / ((1.0 - return_rate) / rate_new + return_rate / rate_back)
        some = rate_new + return_rate * kept * (1.0 - rate_new / rate_back)
        found = np.where(kept >= every, return_rate, return_rate * kept / some)
    return np.asarray(np.where(rate_new > 0, found, 0.0))


def blend(new: Service, back: Service, hits: ArrayLike, reload: ArrayLike) -> Service:
    """One service of requests of which a share ``hits`` finds its KV, each kind in passes of its own.

    Seconds per request and time per token are means over requests. The worst first token waits for
    the longest pass of either kind; the mean one for half of the pass it falls into.
    """
    hits = np.asarray(hits, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        new_s, back_s = (1.0 - hits) / new.requests_per_s, hits / back.requests_per_s
        rate = np.where(new.requests_per_s > 0, 1.0 / (new_s + back_s), 0.0)
    waits = [2.0 * (service.ttft_s - service.ttft_mean_s) for service in (new, back)]
    reload = np.where(hits > 0, np.asarray(reload, dtype=float), 0.0)
    own = [new.ttft_s - waits[0], back.ttft_s - waits[1] + reload]
    busy = np.where(rate > 0, rate * back_s, 0.0)
    mean = (1.0 - hits) * own[0] + hits * own[1]
    return Service(
        requests_per_s=np.asarray(rate),
        tpot_s=np.asarray((1.0 - hits) * new.tpot_s + hits * back.tpot_s),
        ttft_s=np.asarray(np.maximum(*own) + np.maximum(*waits)),
        ttft_mean_s=np.asarray(mean + ((1.0 - busy) * waits[0] + busy * waits[1]) / 2.0),
    )


def price_placed(instance: Instance, layout: Layout, replica: Replica) -> ReplicaPrice:
    """Price a structurally sound replica with its KV where the layout says."""
    (price,) = price_all_placed(instance, layout, [replica])
    return price


def price_all_placed(
    instance: Instance, layout: Layout, replicas: Sequence[Replica]
) -> list[ReplicaPrice]:
    """As :func:`price_placed`; replicas that hold nothing idle are priced at once."""
    found: dict[int, ReplicaPrice] = {}
    plain: dict[KvTier, list[int]] = {}
    hold = instance.workload.hold_s
    for index, replica in enumerate(replicas):
        place, held = place_in_flight(replica), idle_by_rank(replica)
        if hold is None or replica.role == "decode" or not held:
            plain.setdefault(place, []).append(index)
        else:
            found[index] = _price_holding(reading_from(instance, place), layout, replica, held)
    for place, members in plain.items():
        kind = all_new(reading_from(instance, place))
        if any(replicas[index].apart is not None for index in members):
            # entered where a layout has such replicas, and nowhere else
            from costmodel.apart.price import price_apart

            lying = [index for index in members if replicas[index].apart is not None]
            found |= {index: price_apart(kind, layout, replicas[index]) for index in lying}
            members = [index for index in members if replicas[index].apart is None]
        prices = price_replicas(kind, layout, [replicas[index] for index in members])
        found.update(zip(members, prices, strict=True))
    return [found[index] for index in range(len(replicas))]


def _price_holding(
    instance: Instance, layout: Layout, replica: Replica, held: dict[KvTier, list[int]]
) -> ReplicaPrice:
    """Price of a replica with idle conversations ``held`` on its ranks, by tier."""
    room = sum(sum(counts) for counts in held.values())
    kept_per_s = room / (instance.workload.hold_s or inf)
    price = price_kept(instance, layout, replica, tuple(held), kept_per_s)
    stages = tuple(
        _with_idle(instance, replica, index, stage, held.get("hbm"))
        for index, stage in enumerate(price.stages)
    )
    return replace(price, stages=stages)


def price_kept(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    places: Sequence[KvTier],
    kept_per_s: float = inf,
    most_kept: float = 1.0,
) -> ReplicaPrice:
    """Price of a replica that can keep so many conversations per second, the room not counted.

    ``most_kept``: share of its conversations that it keeps at most.
    """
    prices = [
        price_replica(kind, layout, replica) for kind in (all_new(instance), returning(instance))
    ]
    new, back = (price.service for price in prices)
    returns = instance.workload.return_rate or 0.0
    hits = min(float(hit_share(new, back, returns, kept_per_s)), returns * most_kept)
    service = blend(new, back, hits, reload_s(instance, replica, places))
    busy = hits / float(back.requests_per_s) * float(service.requests_per_s)
    stages = []
    for own in zip(*(price.stages for price in prices), strict=True):
        parts = {
            part: (1.0 - hits) * own[0].parts.get(part, 0.0) + hits * own[1].parts.get(part, 0.0)
            for part in {**own[0].parts, **own[1].parts}
        }
        fullest = {
            kind: np.maximum(own[0].memory[kind], own[1].memory[kind]) for kind in own[0].memory
        }
        imbalance = (1.0 - hits) * own[0].imbalance + hits * own[1].imbalance
        stages.append(replace(own[0], parts=parts, memory=fullest, imbalance=imbalance))
    egress, far = (
        {
            domain: (1.0 - busy) * load + busy * getattr(prices[1], name)[domain]
            for domain, load in getattr(prices[0], name).items()
        }
        for name in ("egress_bytes_per_s", "far_bytes_per_s")
    )
    return ReplicaPrice(tuple(stages), service, egress, far)


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

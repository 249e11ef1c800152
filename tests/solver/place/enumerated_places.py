"""Every layout of a tiny instance with its KV in every place, priced by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from costmodel.layout.layout import (
    ExpertMap,
    KvShare,
    KvTier,
    Layout,
    Replica,
    Role,
    Shape,
    Stage,
)
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from costmodel.question.workload import Workload
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.held import all_new, price_placed, returning
from costmodel.replica.serving import Service
from costmodel.rules.kv_tiers import broken
from solver.kv_search import kv_plans
from tests.solver.enumerated_maps import best_maps
from tests.solver.enumeration import drafts as every_draft
from topology import Cluster, Tier, TierKind

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")
#: tiers, and how many times a tiny chip's sequences the largest of them holds
TIER_SIZES: tuple[tuple[TierKind, float], ...] = (("host", 20.0), ("flash", 80.0))

#: more idle conversations per rank than any of the instances needs
MOST_IDLE = 4096


def with_tiers(instance: Instance, seed: int, usd_per_byte: float = 0.0) -> Instance:
    """A tiny instance whose requests return, with host memory and flash of random sizes."""
    rng = np.random.default_rng(seed)
    chip = instance.cluster.chips[0].chip
    sequence = 4e4 * instance.workload.final_context / 30
    tiers = tuple(
        Tier(
            name=kind,
            kind=kind,
            bytes=float(sequence * rng.uniform(0.5, size)),
            read_bytes_per_s=float(chip.hbm_bytes_per_s * rng.uniform(0.02, 0.3)),
            write_bytes_per_s=float(chip.hbm_bytes_per_s * rng.uniform(0.02, 0.3)),
            usd_per_byte=usd_per_byte,
        )
        for kind, size in TIER_SIZES
    )
    larger = chip.model_copy(update={"tiers": tiers})
    domains = []
    for domain in instance.cluster.domains:
        chips = tuple(replace(placed, chip=larger) for placed in domain.chips)
        domains.append(replace(domain, chips=chips, usable=chips))
    workload = Workload(
        input_tokens=instance.workload.input_tokens,
        output_tokens=instance.workload.output_tokens,
        cached_tokens=int(instance.workload.input_tokens * rng.uniform(0.3, 0.9)),
        hold_s=float(rng.uniform(0.05, 1.0)),
        return_rate=float(rng.uniform(0.2, 0.9)),
    )
    scenario = instance.scenario.model_copy(
        update={
            "kv_tiers": ("host", "flash"),
            "workload": workload,
            "limits": instance.limits.model_copy(
                update={"prefill_chunk_tokens": 2 * workload.new_tokens}
            ),
        }
    )
    return replace(
        instance,
        cluster=Cluster(instance.cluster.name, domains, instance.cluster.network),
        workload=workload,
        scenario=scenario,
    )


def replicas(instance: Instance, chips: int) -> Iterator[Replica]:
    """Every shape, cut and batch of a dense model on the first ``chips`` chips, KV in HBM."""
    ids = [placed.id for placed in instance.cluster.chips][:chips]
    layers = len(instance.model.layers)
    heads = {
        part.query_heads
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }
    for pp in range(1, min(2, layers) + 1):
        if chips % pp or any(count % (chips // pp) for count in heads):
            continue
        tp = chips // pp
        for role, first in product(ROLES, range(1, layers)):
            if (pp == 1 and first > 1) or (pp > 1 and role == "mixed"):
                continue
            cut = [(0, layers - 1)] if pp == 1 else [(0, first - 1), (first, layers - 1)]
            limit = instance.limits.max_sequences_per_rank // pp
            if role == "prefill":
                limit = instance.limits.prefill_chunk_tokens // instance.workload.new_tokens
            for per_rank in range(1, max(1, limit) + 1):
                stages = tuple(
                    Stage(layers=part, chips=tuple(ids[s * tp : (s + 1) * tp]))
                    for s, part in enumerate(cut)
                )
                shape = Shape(tp=tp, ep=1, pp=pp, attention_dp=1, batch=per_rank * pp)
                kv = (KvShare(chip=ids[0], sequences=per_rank * pp),)
                yield Replica(role=role, shape=shape, stages=stages, kv=kv)


def drafts(instance: Instance, chips: int) -> Iterator[tuple[Replica, ExpertMap]]:
    """Every replica on the first ``chips`` chips, KV in HBM, its experts in each way that may be best."""
    if instance.operations.moe is None:
        yield from ((replica, {}) for replica in replicas(instance, chips))
        return
    for draft, _ in every_draft(instance, (chips,)):
        for maps in best_maps(all_new(instance), draft, [returning(instance)]):
            yield draft, maps


def priced(instance: Instance, replica: Replica, maps: ExpertMap) -> tuple[bool, Service]:
    """Whether a replica has room and bandwidth for its KV, and what it serves."""
    layout = Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {})
    price = price_placed(instance, layout, replica)
    chip = instance.cluster.chips[0].chip
    full = any(stage.used_bytes.max() > chip.hbm_bytes for stage in price.stages)
    return not full and not broken(instance, replica, price), price.service


def rate_of(instance: Instance, replica: Replica, maps: ExpertMap) -> float:
    """Requests per second of a replica, 0 if it breaks a limit."""
    fits, service = priced(instance, replica, maps)
    if not fits:
        return 0.0
    ttft = float(service.ttft_s)
    if replica.role == "prefill":
        others = [c.id for c in instance.cluster.chips if c.id not in replica.chips]
        if not others:
            return 0.0
        moved = transfer_bytes_per_chip(instance, replica.shape.tp, replica.shape.pp)
        pair = (replica.stages[0].chips[0], others[0])
        ttft += instance.cluster.rate("send", pair).time(moved)
    slo = instance.slo
    assert slo.tpot is not None
    assert slo.ttft is not None
    if float(service.tpot_s) > slo.tpot or ttft > slo.ttft:
        return 0.0
    return float(service.requests_per_s)


def placed(
    instance: Instance,
    replica: Replica,
    maps: ExpertMap,
    in_flight: KvTier,
    idle: KvTier | None,
    known: float,
    rooms: dict[object, int],
) -> float:
    """Best rate of a replica with its KV in these places, with as many idle conversations as there is room for.

    What serves no more than ``known`` is not looked at closely, and may count as 0. ``rooms``: of ranks like these, where
    to begin to look.
    """
    kv = tuple(share.model_copy(update={"tier": in_flight}) for share in replica.kv)
    replica = replica.model_copy(update={"kv": kv})
    if idle is None or replica.role == "decode":
        return rate_of(instance, replica, maps)
    shape = replica.shape

    def keeping(counts: list[int]) -> Replica:
        shares = tuple(
            KvShare(chip=replica.stages[0].chips[rank * shape.tp], tier=idle, idle=True, sequences=count)
            for rank, count in enumerate(counts)
            if count
        )  # fmt: skip
        return replica.model_copy(update={"kv": (*kv, *shares)})

    def fits(counts: list[int]) -> bool:
        return priced(instance, keeping(counts), maps)[0]

    # with room for all of them it serves no less
    endless = keeping([MOST_IDLE] * shape.attention_dp)
    if float(priced(instance, endless, maps)[1].requests_per_s) <= known:
        return 0.0
    like = (idle, shape.tp)
    room = _most(lambda count: fits([count] * shape.attention_dp), rooms.get(like, 0))
    rooms[like], counts = room, [room] * shape.attention_dp
    for rank in range(shape.attention_dp if shape.attention_dp > 1 else 0):
        counts[rank] = _most(
            lambda count, at=rank: fits([*counts[:at], count, *counts[at + 1 :]]), counts[rank]
        )
    return rate_of(instance, keeping(counts), maps) if any(counts) else 0.0


def _most(fits: Callable[[int], bool], start: int) -> int:
    """The largest number that fits, looked for from ``start`` on; up to it all do."""
    low, high, step = start, start + 1, 1
    while low > 0 and not fits(low):
        low, high, step = max(0, low - step), low, 2 * step
    if high == start + 1:
        while high < MOST_IDLE and fits(high):
            low, high, step = high, high + 2 * step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def enumerate_best(instance: Instance, *, one_plan: bool) -> float:
    """Most requests per second of any layout: under one plan for all replicas, or freely mixed."""
    total, unit = len(instance.cluster.chips), instance.cluster.domains[0].granularity.unit
    best: dict[Any, dict[tuple[str, int], float]] = {}
    rooms: dict[object, int] = {}
    for chips in range(unit, total + 1, unit):
        for replica, maps in drafts(instance, chips):
            where = (replica.role, chips)
            found: dict[Any, float] = {}
            for plan in kv_plans(instance):
                rates = best.setdefault(plan if one_plan else None, {})
                key = (plan.in_flight(replica.role), plan.idle)
                if key not in found:
                    known = min(
                        best.get(other if one_plan else None, {}).get(where, 0.0)
                        for other in kv_plans(instance)
                        if (other.in_flight(replica.role), other.idle) == key
                    )
                    found[key] = placed(instance, replica, maps, *key, known, rooms)
                rates[where] = max(rates.get(where, 0.0), found[key])
    return max(_fleet(total, rates) for rates in best.values())


def _fleet(total: int, best: dict[tuple[str, int], float]) -> float:
    options = [(role, chips, rate) for (role, chips), rate in best.items() if rate > 0]
    found = 0.0

    def fill(left: int, start: int, sums: dict[str, float]) -> None:
        nonlocal found
        found = max(found, min(sums["prefill"], sums["decode"]) + sums["mixed"])
        for place in range(start, len(options)):
            role, chips, rate = options[place]
            if chips <= left:
                fill(left - chips, place, {**sums, role: sums[role] + rate})

    fill(total, 0, {"prefill": 0.0, "decode": 0.0, "mixed": 0.0})
    return found

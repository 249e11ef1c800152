"""Where KV lies: the optimum over places equals enumeration, and the bound is below every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, KvTier, Layout, Replica, Role, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from costmodel.question.workload import Workload
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.held import price_placed
from costmodel.rules.kv_tiers import broken
from solver.clock import Clock
from solver.kv_search import kv_plans
from solver.search import search
from topology import Cluster, Tier, TierKind
from topology.errors import NoFeasibleLayout, NoLayoutInTime

Tiny = Callable[[int, int, int, int], Instance]
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


def rate_of(instance: Instance, replica: Replica) -> float:
    """Requests per second of a replica, 0 if it breaks a limit."""
    layout = Layout(replicas=(replica,))
    price = price_placed(instance, layout, replica)
    chip = instance.cluster.chips[0].chip
    if any(stage.used_bytes.max() > chip.hbm_bytes for stage in price.stages):
        return 0.0
    if broken(instance, replica, price):
        return 0.0
    ttft = float(price.service.ttft_s)
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
    if float(price.service.tpot_s) > slo.tpot or ttft > slo.ttft:
        return 0.0
    return float(price.service.requests_per_s)


def placed(instance: Instance, replica: Replica, in_flight: KvTier, idle: KvTier | None) -> float:
    """Best rate of a replica with its KV in these places, over every number of idle conversations."""
    kv = tuple(share.model_copy(update={"tier": in_flight}) for share in replica.kv)
    replica = replica.model_copy(update={"kv": kv})
    if idle is None or replica.role == "decode":
        return rate_of(instance, replica)

    def keeping(count: int) -> float:
        share = KvShare(chip=replica.stages[0].chips[0], tier=idle, idle=True, sequences=count)
        return rate_of(instance, replica.model_copy(update={"kv": (*kv, share)}))

    low, high = 0, 1
    while high < MOST_IDLE and keeping(high) > 0:  # room ends at some number, rates grow up to it
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeping(middle) > 0 else (low, middle)
    return keeping(low) if low else 0.0


def enumerate_best(instance: Instance, *, one_plan: bool) -> float:
    """Most requests per second of any layout: under one plan for all replicas, or freely mixed."""
    total = len(instance.cluster.chips)
    best: dict[Any, dict[tuple[str, int], float]] = {}
    for chips in range(1, total + 1):
        for replica in replicas(instance, chips):
            known: dict[Any, float] = {}
            for plan in kv_plans(instance):
                key = (plan.in_flight(replica.role), plan.idle)
                if key not in known:
                    known[key] = placed(instance, replica, *key)
                rates = best.setdefault(plan if one_plan else None, {})
                where = (replica.role, chips)
                rates[where] = max(rates.get(where, 0.0), known[key])
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


SLOW = [
    pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(2001, 2006), *range(2007, 2030))
]


@pytest.mark.parametrize("seed", [2000, *SLOW])
def test_best_places_equal_enumeration(tiny: Tiny, seed: int) -> None:
    compare_with_enumeration(with_tiers(tiny(seed, 2 + seed % 2, 2, 0), seed))


@pytest.mark.parametrize(
    "seed", [4000, 4003, *[pytest.param(s, marks=pytest.mark.slow) for s in range(4004, 4304)]]
)
def test_best_places_with_drafts_equal_enumeration(drafting: Tiny, seed: int) -> None:
    """The modules' caches lie and wait where the model's do."""
    compare_with_enumeration(with_tiers(drafting(seed, 2 + seed % 2, 2, 0), seed))


def compare_with_enumeration(instance: Instance) -> None:
    """Solve and enumerate; fail unless they agree."""
    expected = enumerate_best(instance, one_plan=True)
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        assert expected == 0.0
        return
    judged = evaluate(instance, result.layout)
    assert judged.feasible
    assert judged.requests_per_s == pytest.approx(expected, rel=1e-6)
    assert judged.usd_per_m_output_tokens is not None
    bound = result.certificate.bound_usd_per_m_output_tokens
    assert bound <= judged.usd_per_m_output_tokens * (1 + 1e-12)
    # the bound is not above what replicas with KV in places of their own serve either
    freely = judged.requests_per_s / enumerate_best(instance, one_plan=False)
    assert bound <= judged.usd_per_m_output_tokens * freely * (1 + 1e-6)


@pytest.mark.parametrize("in_hbm", [1, *[pytest.param(s, marks=pytest.mark.slow) for s in (2, 3)]])
def test_hbm_or_nothing_equals_enumeration(tiny: Tiny, in_hbm: int) -> None:
    """Without tiers, idle KV competes with sequences in flight for HBM."""
    instance = with_tiers(tiny(2011 + 2 * in_hbm, 2, 2, 0), in_hbm)
    scenario = instance.scenario.model_copy(update={"kv_tiers": ()})
    instance = replace(instance, scenario=scenario)
    expected = enumerate_best(instance, one_plan=True)
    result = search(instance, clock=Clock(120), gap=0.0)
    assert result.evaluation.requests_per_s == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("usd_per_byte", [0.002, 0.02])
def test_rent_is_in_the_cost_and_in_the_bound(tiny: Tiny, usd_per_byte: float) -> None:
    """Whatever number of conversations waits in flash, a layout costs the bound or more."""
    instance = with_tiers(tiny(2000, 2, 2, 0), 2000, usd_per_byte)
    scenario = instance.scenario.model_copy(update={"kv_tiers": ("flash",)})
    instance = replace(instance, scenario=scenario)
    result = search(instance, clock=Clock(120), gap=0.02)
    bound = result.certificate.bound_usd_per_m_output_tokens
    found = result.evaluation.usd_per_m_output_tokens
    assert found is not None
    assert result.certificate.gap == pytest.approx(found / bound - 1)
    costs = []
    for mixed in (r for r in replicas(instance, 2) if r.role == "mixed"):
        for count in range(0, 600, 20):
            idle = KvShare(chip=mixed.chips[0], tier="flash", idle=True, sequences=count)
            judged = evaluate(
                instance,
                Layout(replicas=(mixed.model_copy(update={"kv": (*mixed.kv, idle)}),)),
            )
            if judged.feasible:
                assert judged.usd_per_m_output_tokens is not None
                costs.append(judged.usd_per_m_output_tokens)
    assert len(costs) > 20
    assert min(costs) >= bound * (1 - 1e-9)
    assert found <= min(costs) * 1.02


def test_a_stopped_search_says_so(tiny: Tiny) -> None:
    clock = Clock()
    clock.stop()
    with pytest.raises(NoLayoutInTime, match="before every place of KV"):
        search(with_tiers(tiny(2000, 2, 2, 0), 2000), clock=clock)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3016))
def test_experts_and_stages_with_idle_kv_keep_the_bound(tiny: Tiny, seed: int) -> None:
    """A bound above a layout's cost fails the search itself; the answer breaks no rule."""
    chips, layers, experts = [(3, 2, 3), (2, 3, 2), (4, 3, 0), (4, 2, 2)][seed % 4]
    instance = with_tiers(tiny(seed, chips, layers, experts), seed)
    try:
        result = search(instance, clock=Clock(60), gap=0.001)
    except NoFeasibleLayout:
        return
    assert evaluate(instance, result.layout).feasible
    assert result.certificate.gap < 0.1

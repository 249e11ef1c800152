"""On tiny instances the answer with experts apart is the best of every layout, and no replica is above its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.known import groundwork
from solver.search import search
from solver.verify import usd_per_m_output
from tests.solver.enumerated_apart import apart_replicas
from tests.solver.enumerated_fleets import least_cost
from tests.solver.enumeration import Best, best_replicas
from topology.errors import NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
Odd = Callable[[int], Instance]


def apart(instance: Instance, seed: int, asked: bool | str = True) -> Instance:
    """The question with experts apart, four sequences of a rank, and now and then little room for weights beside KV."""
    rng = np.random.default_rng(seed)
    limits = instance.limits.model_copy(update={"max_sequences_per_rank": 4})
    changed = {"apart": asked, "limits": limits}
    own = instance.profile.default.model_copy(
        update={
            "layer_overhead_s": float(rng.choice([0.0, 5e-5])),
            "routing_noise": float(rng.choice([0.0, 0.5])),
        }
    )
    profile = instance.profile.model_copy(update={"default": own})
    scenario = instance.scenario.model_copy(update=changed)
    return replace(instance, scenario=scenario, profile=profile)


def replicas_below_bounds(instance: Instance, replicas: list[Best]) -> int:
    """How many replicas were held against the bound of their shape; fails if one is above it."""
    ground = groundwork(instance)
    table = ground.pricer.table  # type: ignore[attr-defined]
    bounds = ground.pricer.bounds(ground.shapes)
    first = len(ground.shapes) - len(table)
    class_of = {chip: c for c in ground.classes for pool in c.pools for chip in pool.chips}
    rows = {}
    for row in range(len(table)):
        stand = table.footings[int(table.footing[row])]
        key = (
            stand.attention, stand.experts, stand.together, int(table.tp[row]),
            int(table.slots[row]), int(table.microbatches[row]),
        )  # fmt: skip
        rows[key] = first + row
    for best in replicas:
        own = best.replica.apart
        assert own is not None
        groups = []
        for chips in (best.replica.kv_chips, own.experts.chips):
            homes = Counter(instance.cluster.chip(chip).domain for chip in chips)
            groups.append((class_of[chips[0]].index, len(homes), max(homes.values())))
        homes = {instance.cluster.chip(chip).domain for chip in best.replica.chips}
        key = (*groups, len(homes) == 1, best.tp, best.slots, own.microbatches)
        assert best.rate <= bounds.requests_per_s[rows[key]] * (1 + 1e-9), best
    return len(replicas)


def check(instance: Instance) -> tuple[str, int]:
    """Solve and enumerate; fail unless they agree. What was found, and how many replicas stayed below their bounds."""
    own = apart_replicas(instance)
    bounded = replicas_below_bounds(instance, own)
    rest = best_replicas(instance, near=True)
    if instance.scenario.apart == "only":
        rest = [best for best in rest if best.role == "prefill"]
    least = least_cost(instance, rest + own)
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        far = [best for best in best_replicas(instance, near=False) if best in rest or True]
        assert least is None or least_cost(instance, far + own) is None
        return "infeasible", bounded
    assert least is not None
    judged = evaluate(instance, result.layout)
    assert judged.feasible
    assert judged.usd_per_m_output_tokens is not None
    scale = usd_per_m_output(instance)
    assert result.certificate.bound_usd_per_m_output_tokens <= least * scale * (1 + 1e-9)
    lying = any(replica.apart is not None for replica in result.layout.replicas)
    if judged.usd_per_m_output_tokens != pytest.approx(least * scale, rel=1e-6):
        assert judged.usd_per_m_output_tokens > least * scale
        print("between", judged.usd_per_m_output_tokens / (least * scale) - 1, result.certificate.gap)
        return "between", bounded
    return "apart" if lying else "one group", bounded

"""On tiny instances the answer with experts apart is the best of every layout, and no replica is above its bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.known import groundwork
from solver.search import search
from solver.verify import usd_per_m_output
from tests.conftest import make_tiny
from tests.solver.apart.unlike import unlike
from tests.solver.enumerated_apart import apart_replicas
from tests.solver.enumerated_fleets import least_cost
from tests.solver.enumeration import Best, best_replicas
from tests.solver.test_granularity import in_trays
from topology.errors import NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
Odd = Callable[[int], Instance]


def apart(instance: Instance, seed: int, asked: bool | str = True) -> Instance:
    """The question with experts apart, three sequences of a rank, and now and then overheads and noise."""
    rng = np.random.default_rng(seed)
    limits = instance.limits.model_copy(update={"max_sequences_per_rank": 3})
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
        far = best_replicas(instance, near=False)
        if instance.scenario.apart == "only":
            far = [best for best in far if best.role == "prefill"]
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
        return "between", bounded
    return "apart" if lying else "one group", bounded


def report(found: list[tuple[str, int]]) -> Counter[str]:
    """Print what was compared; none may be worse than the best layout unless how far KV travels explains it."""
    answers = Counter(answer for answer, _ in found)
    print(
        f"{len(found)} instances: {dict(answers)}; {sum(n for _, n in found)} replicas below bounds"
    )
    assert answers["between"] <= 0.02 * len(found)
    return answers


def test_optimum_equals_enumeration(tiny: Tiny) -> None:
    report([check(apart(tiny(seed, 3, 2, 2), seed)) for seed in range(1000, 1005)])


def test_optimum_equals_enumeration_where_all_generation_has_experts_apart(tiny: Tiny) -> None:
    seeds = (1000, 1003, 1005, 1007)
    found = report([check(apart(tiny(seed, 3, 2, 2), seed, "only")) for seed in seeds])
    assert found["apart"] >= 1


def test_optimum_on_odd_clusters_equals_enumeration(odd: Odd) -> None:
    questions = [(seed, odd(seed)) for seed in (1004, 1013, 1020)]
    report([check(apart(one, s)) for s, one in questions if one.operations.moe is not None])


#: types and chips of domains
UNLIKE = (
    (("reads", 2), ("multiplies", 1)),
    (("multiplies", 1), ("reads", 2)),
    (("multiplies", 2), ("reads", 1), ("reads", 1)),
    (("reads", 1), ("reads", 1), ("multiplies", 1)),
)


@pytest.mark.usefixtures("uncut")
def test_optimum_on_unlike_chips_equals_enumeration(tmp_path: Path) -> None:
    """The last is answered by groups on unlike chips, of which the one of experts comes first in the cluster."""
    asked = ((1000, True), (1018, "only"), (1023, "only"))
    found = report([check(apart(unlike(tmp_path, s, UNLIKE[s % 4]), s, a)) for s, a in asked])
    assert found["apart"] == 2


#: types and chips of domains where chips come in trays of two
UNLIKE_IN_TRAYS = (
    (("reads", 2), ("multiplies", 2)),
    (("multiplies", 2), ("reads", 2), ("reads", 2)),
    (("reads", 4), ("multiplies", 2)),
)


def of_trays(folder: Path, seed: int, asked: bool | str) -> Instance:
    """A question on trays of two: of one rack, or on unlike chips."""
    plain = make_tiny(folder, seed, 4, 2, 2)
    if seed % 2:
        plain = unlike(folder, seed, UNLIKE_IN_TRAYS[seed // 2 % 3])
    return apart(in_trays(plain, 2), seed, asked)


def test_optimum_in_trays_equals_enumeration(tmp_path: Path) -> None:
    asked = ((0, True), (1, "only"), (3, True))
    report([check(of_trays(tmp_path, seed, way)) for seed, way in asked])


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, "only"])
def test_many_optima_in_trays_equal_enumeration(
    tmp_path: Path, odd: Odd, asked: bool | str
) -> None:
    """Seventy-two and those on odd clusters."""
    found = [check(of_trays(tmp_path, seed, asked)) for seed in range(72)]
    sold = [(seed, in_trays(odd(seed), 2)) for seed in range(3000, 3120)]
    found += [
        check(apart(one, seed, asked))
        for seed, one in sold
        if one.operations.moe is not None and one.cluster.sold
    ]
    assert report(found)["apart"] >= (asked == "only")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, "only"])
def test_many_optima_on_unlike_chips_equal_enumeration(tmp_path: Path, asked: bool | str) -> None:
    seeds = range(3000, 3080)
    found = [check(apart(unlike(tmp_path, s, UNLIKE[s % 4]), s, asked)) for s in seeds]
    assert report(found)["apart"] >= (asked == "only")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, "only"])
@pytest.mark.parametrize(("chips", "layers", "experts"), [(3, 2, 2), (3, 2, 3), (4, 2, 2)])
def test_many_optima_equal_enumeration(
    tiny: Tiny, chips: int, layers: int, experts: int, asked: bool | str
) -> None:
    seeds = range(3000, 3036)
    report([check(apart(tiny(s, chips, layers, experts), s, asked)) for s in seeds])


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, "only"])
def test_many_optima_on_odd_clusters_equal_enumeration(odd: Odd, asked: bool | str) -> None:
    questions = [(seed, odd(seed)) for seed in range(3000, 3060)]
    report([check(apart(one, s, asked)) for s, one in questions if one.operations.moe is not None])

"""On tiny instances the solver's optimum is the best of every layout, judged by the evaluator.

:mod:`tests.solver.enumeration` lists the layouts. Besides the optimum, every replica met on the way is
held against the bound of its shape: none may serve more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.engine_files import EngineName
from costmodel.question.instance import Instance
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.search import search
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ROLES, enumerate_shapes
from solver.verify import usd_per_m_output
from tests.solver.enumerated_fleets import least_cost, with_rate
from tests.solver.enumeration import Best, best_replicas, kind_of_pool, pools
from topology.errors import NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
Odd = Callable[[int], Instance]


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: the answer, and how many replicas stayed below their bound."""

    answer: str
    bounded: int


def replicas_below_bounds(instance: Instance, replicas: list[Best]) -> int:
    """How many replicas were held against the bound of their shape; fails if one is above it."""
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    bounds = Pricer(instance, classes).bounds(shapes)
    rows = {}
    for row in range(len(shapes)):
        one = shapes.row(row)
        key = (ROLES[one["role"]], one["tp"], one["pp"], one["slots"], frozenset(Counter(shapes.parts(row)).items()))  # fmt: skip
        rows[key] = row
    own = pools(instance)
    class_of = {pool.chips: pool_class.index for pool_class in classes for pool in pool_class.pools}
    for best in replicas:
        parts = Counter(
            (class_of[tuple(own[p])], count) for p, count in enumerate(best.taken) if count
        )
        row = rows[best.role, best.tp, best.pp, best.slots, frozenset(parts.items())]
        assert best.rate <= bounds.requests_per_s[row] * (1 + 1e-9), best
    return len(replicas)


def check(instance: Instance) -> Outcome:
    """Solve and enumerate; fail unless they agree.

    How far KV travels to its decode replica depends on the fleet. Where that matters, the enumeration
    gives two optima, for the nearest and for the farthest chip, and the answer is between them.
    """
    near = best_replicas(instance, near=True)
    bounded = replicas_below_bounds(instance, near)
    least = least_cost(instance, near)
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        assert least is None or least_cost(instance, best_replicas(instance, near=False)) is None
        return Outcome("infeasible", bounded)
    assert least is not None
    judged = evaluate(instance, result.layout)
    assert judged.feasible
    assert judged.usd_per_m_output_tokens is not None
    scale = usd_per_m_output(instance)
    assert result.certificate.bound_usd_per_m_output_tokens <= least * scale * (1 + 1e-9)
    if judged.usd_per_m_output_tokens != pytest.approx(least * scale, rel=1e-6):
        assert judged.usd_per_m_output_tokens > least * scale
        most = least_cost(instance, best_replicas(instance, near=False))
        assert most is not None
        assert most > least, "no hand-over explains the difference"
        assert judged.usd_per_m_output_tokens <= most * scale * (1 + 1e-6)
        return Outcome("between", bounded)
    return Outcome("optimal", bounded)


def report(outcomes: list[Outcome]) -> None:
    """Print what was compared; most answers must be layouts, of which nearly all are optimal."""
    answers = Counter(outcome.answer for outcome in outcomes)
    bounded = sum(outcome.bounded for outcome in outcomes)
    print(f"{len(outcomes)} instances: {dict(answers)}; {bounded} replicas below their bounds")
    assert answers["optimal"] >= 0.5 * len(outcomes)
    assert answers["between"] <= 0.02 * len(outcomes)


#: chips, layers, experts of instances on one domain
SIZES = [(2, 3, 0), (3, 2, 2), (4, 4, 0), (2, 2, 4), (3, 2, 3), (6, 2, 0), (4, 2, 2), (5, 2, 0)]


@pytest.mark.parametrize(("chips", "layers", "experts"), SIZES)
def test_optimum_equals_enumeration(tiny: Tiny, chips: int, layers: int, experts: int) -> None:
    seeds = range(1000, 1004) if experts else range(1000, 1010)
    answers = [check(tiny(seed, chips, layers, experts)).answer for seed in seeds]
    assert "optimal" in answers


@pytest.mark.parametrize(("chips", "layers", "experts"), [(2, 3, 0), (3, 2, 2), (2, 2, 4)])
def test_optimum_equals_enumeration_with_drafted_tokens(
    drafting: Tiny, chips: int, layers: int, experts: int
) -> None:
    answers = [check(drafting(seed, chips, layers, experts)).answer for seed in range(1000, 1004)]
    assert "optimal" in answers


@pytest.mark.parametrize(("chips", "layers", "experts"), [(2, 3, 0), (2, 2, 4)])
def test_optimum_equals_enumeration_with_prompts_that_arrive_together(
    tiny: Tiny, chips: int, layers: int, experts: int
) -> None:
    answers = []
    for seed in range(1000, 1004):
        instance = tiny(seed, chips, layers, experts)
        workload = instance.workload.model_copy(update={"prompts_together": 4})
        answers.append(check(replace(instance, workload=workload)).answer)
    assert "optimal" in answers


def in_halves(instance: Instance, seed: int) -> Instance:
    """The same question with passes in two halves, and an exchange of experts that may take long."""
    rng = np.random.default_rng(seed)
    changed = {"all_to_all": float(rng.uniform(0.02, 0.3)), "layer_overhead_s": 0.0}
    own = instance.profile.default.model_copy(update=changed)
    scenario = instance.scenario.model_copy(update={"two_batch_overlap": True})
    profile = instance.profile.model_copy(update={"default": own})
    return replace(instance, scenario=scenario, profile=profile)


#: chips, layers, experts where attention ranks exchange tokens
EXCHANGING = [(3, 2, 2), (2, 2, 4), (3, 2, 3), (4, 2, 2)]


def test_optimum_of_passes_in_halves_equals_enumeration(tiny: Tiny, drafting: Tiny) -> None:
    """Instances of which some would be answered wrongly if whole passes were bounded."""
    asked = [tiny(seed, 3, 2, 2) for seed in (2006, 2010, 2012)]
    asked += [tiny(2000, 2, 2, 4), drafting(2006, 3, 2, 2)]
    report(
        [
            check(in_halves(instance, seed))
            for seed, instance in zip((2006, 2010, 2012, 2000, 2006), asked, strict=True)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_optimum_of_passes_in_halves_equals_enumeration_on_many(
    tiny: Tiny, drafting: Tiny, part: int
) -> None:
    """Thirty-two each."""
    outcomes, apart = [], 0
    for seed in range(2000 + 8 * part, 2000 + 8 * part + 8):
        for size in EXCHANGING:
            instance = in_halves((drafting if seed % 4 == 3 else tiny)(seed, *size), seed)
            outcomes.append(check(instance))
            apart += any(
                best.replica.shape.attention_dp > 1 for best in best_replicas(instance, near=True)
            )
    report(outcomes)
    print(f"{apart} with replicas of several ranks")
    assert apart >= 10


def for_engine(instance: Instance, engine: EngineName, family: str) -> Instance:
    """The same question, answered with what an engine runs."""
    scenario = instance.scenario.model_copy(update={"engine": engine})
    return replace(instance, scenario=scenario, model=replace(instance.model, family=family))


#: engines, and families of models whose classes place experts, exchange them by collectives or have none spare
ENGINES: list[tuple[EngineName, str]] = [
    ("sglang", "deepseek"), ("sglang", "gpt_oss"), ("sglang", "tiny"), ("vllm", "deepseek"),
    ("vllm", "gpt_oss"), ("trtllm", "tiny"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "family"), ENGINES)
def test_optimum_of_an_engine_equals_enumeration(
    tiny: Tiny, engine: EngineName, family: str
) -> None:
    sizes = [(2, 3, 0), (2, 2, 4), (3, 2, 3)]
    report(
        [
            check(for_engine(tiny(seed, *size), engine, family))
            for size in sizes
            for seed in (1001, 1002)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "family"), ENGINES)
def test_optimum_of_an_engine_equals_enumeration_on_many(
    tiny: Tiny, odd: Odd, engine: EngineName, family: str
) -> None:
    instances = [tiny(seed, *size) for size in SIZES for seed in range(1000, 1005)]
    instances += [odd(seed) for seed in range(100, 140)]
    report([check(for_engine(instance, engine, family)) for instance in instances])


def test_optimum_equals_enumeration_on_odd_clusters(odd: Odd) -> None:
    report([check(odd(seed)) for seed in range(12)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_optimum_equals_enumeration_on_many_odd_clusters(odd: Odd, part: int) -> None:
    kinds: Counter[str] = Counter()
    outcomes = []
    for seed in range(100 + 50 * part, 150 + 50 * part):
        instance = odd(seed)
        kinds.update(oddities(instance))
        outcomes.append(check(instance))
    report(outcomes)
    print(dict(kinds))
    assert min(kinds[kind] for kind in ("unlike", "types", "degraded")) >= 5


def oddities(instance: Instance) -> set[str]:
    """In which ways the cluster of an instance is odd."""
    cluster = instance.cluster
    found = set()
    if len({kind_of_pool(instance, chips) for chips in pools(instance)}) > 1:
        found.add("unlike")
    if len({placed.chip.name for placed in cluster.usable}) > 1:
        found.add("types")
    if len(cluster.usable) < len(cluster.chips):
        found.add("degraded")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("chips", "layers", "experts"), [*SIZES, (2, 2, 6)])
def test_optimum_equals_enumeration_on_many(
    tiny: Tiny, chips: int, layers: int, experts: int
) -> None:
    seeds = range(1000, 1010) if experts else range(1000, 1026)
    report([check(tiny(seed, chips, layers, experts)) for seed in seeds])


@pytest.mark.slow
def test_optimum_for_a_rate_equals_enumeration(odd: Odd) -> None:
    rng = np.random.default_rng(6)
    compared = 0
    for seed in range(60):
        instance = odd(5000 + seed)
        replicas = best_replicas(instance, near=False)
        most = max((best.rate for best in replicas if best.role != "prefill"), default=0.0)
        if most > 0:
            outcome = check(with_rate(instance, float(most * rng.uniform(0.2, 1.5))))
            compared += outcome.answer == "optimal"
    assert compared >= 20


@pytest.mark.slow
def test_optimum_of_used_chips_equals_enumeration(odd: Odd) -> None:
    outcomes = []
    for seed in range(7000, 7040):
        instance = odd(seed)
        scenario = instance.scenario.model_copy(update={"pay": "used"})
        outcomes.append(check(replace(instance, scenario=scenario)))
    report(outcomes)

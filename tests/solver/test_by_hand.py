"""No layout that keeps every rule is cheaper than a printed bound, and where one exists an answer is found.

The layouts are those of :mod:`tests.solver.by_hand`. Half of the questions on shipped models have a TPOT target that
few sequences on few attention ranks meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Limits, Slo, Workload
from solver.clock import Clock
from solver.search import search
from tests.solver.by_hand import ByHand
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime

SMALL = (
    "qwen3-30b-a3b", "olmoe-1b-7b", "gpt-oss-20b", "mixtral-8x7b", "phi-3.5-moe", "llama-3.1-8b", "llama-3.1-70b",
    "glm-4.5-air", "gpt-oss-120b", "dbrx", "minimax-m2.7",
)  # fmt: skip
CLUSTERS = ("nvl-2", "nvl-4", "nvl-6", "hgx-h100", "hgx-h200", "mi300x", "hgx-h20@2", "hgx-a100")


@dataclass(frozen=True)
class Found:
    """What a comparison came to: the answer, layouts judged, those that kept every rule, cost over bound."""

    answer: str
    judged: int
    good: int
    nearest: float


def compare(instance: Instance, rng: np.random.Generator, draws: int) -> Found:
    """Solve and draw; fails where a drawn layout beats the bound, or one exists and none was found."""
    try:
        result = search(instance, clock=Clock(8), gap=0.02)
        bound, answer = result.certificate.bound_usd_per_m_output_tokens, result.status
    except NoFeasibleLayout:
        bound, answer = float("inf"), "nothing"
    except NoLayoutInTime:
        return Found("late", 0, 0, float("inf"))
    own = ByHand(instance, rng)
    good, nearest = 0, float("inf")
    for layout, judged in own.layouts(draws):
        good += 1
        cost = judged.usd_per_m_output_tokens or float("inf")
        nearest = min(nearest, cost / bound)
        assert cost >= bound * (1 - 1e-9), (instance.scenario, cost, bound, layout.replicas)
    return Found(answer, own.judged, good, nearest)


def small_question(rng: np.random.Generator, *, tight: bool) -> Instance | None:
    """A shipped model on a few chips; ``tight``: TPOT is what one to a few sequences in all take."""
    model, cluster = str(rng.choice(SMALL)), str(rng.choice(CLUSTERS))
    scenario = Scenario(
        model=model,
        cluster=cluster,
        workload=Workload(
            input_tokens=int(rng.choice([200, 1000, 4000])),
            output_tokens=int(rng.choice([10, 100, 500, 1000])),
            expert_load=str(rng.choice(["skewed", "uniform"])),
            prompts_together=int(rng.choice([1, 1, 1, 4])),
        ),
        slo=Slo(),
        profile=str(rng.choice(["physics", "calibrated"])),
        pay=str(rng.choice(["used", "whole"])),
        limits=Limits(
            max_sequences_per_rank=int(rng.choice([3, 16, 512, 4096])),
            max_pipeline_stages=int(rng.choice([1, 2, 4])),
        ),
    )
    try:
        free = resolve_instance(scenario)
        chips = len(free.cluster.domains[0].usable)
        widths = [tp for tp in (1, 2, 4, 8) if chips % tp == 0]
        tp = int(rng.choice(widths))
        dp = chips // tp if free.operations.moe is not None else 1
        batch = int(rng.integers(1, 4)) if tight else int(rng.integers(1, 200))
        layout = plain_layout(free, "mixed", tp=tp, attention_dp=dp, batch=batch)
    except InstanceError:
        return None
    priced = evaluate(free, layout)
    if priced.tpot_s is None or priced.ttft_s is None:
        return None
    slo = Slo(
        tpot=priced.tpot_s * float(rng.uniform(1.0, 1.3)),
        ttft=None if rng.random() < 0.5 else priced.ttft_s * float(rng.uniform(0.9, 2.0)),
    )
    return replace(free, scenario=scenario.model_copy(update={"slo": slo}))


def run(questions: list[tuple[Instance, int]], draws: int) -> list[Found]:
    found = [compare(instance, np.random.default_rng(seed), draws) for instance, seed in questions]
    answers = Counter(one.answer for one in found)
    nearest = min((one.nearest for one in found), default=float("inf"))
    print(
        f"{len(found)} questions {dict(answers)}: {sum(one.judged for one in found)} layouts judged, "
        f"{sum(one.good for one in found)} keep every rule, the nearest at {nearest:.4f} of its bound"
    )
    return found


def of_small(seeds: range) -> list[tuple[Instance, int]]:
    made = [
        (small_question(np.random.default_rng(seed), tight=seed % 2 == 0), seed) for seed in seeds
    ]
    return [(instance, seed) for instance, seed in made if instance is not None]


def test_no_drawn_layout_beats_the_bound_of_a_small_question() -> None:
    found = run(of_small(range(100, 110)), 2)
    assert sum(one.good for one in found) >= 15


def test_no_drawn_layout_beats_the_bound_of_a_tiny_question(
    tiny: Callable[[int, int, int, int], Instance], odd: Callable[[int], Instance]
) -> None:
    questions = [(tiny(seed, 2 + seed % 4, 2, (0, 2, 3, 4)[seed % 4]), seed) for seed in range(10)]
    found = run(questions + [(odd(300 + seed), seed) for seed in range(6)], 3)
    assert sum(one.good for one in found) >= 15


@pytest.mark.slow
def test_many_drawn_layouts_beat_no_bound(
    tiny: Callable[[int, int, int, int], Instance], odd: Callable[[int], Instance]
) -> None:
    questions = of_small(range(1000, 1600))
    questions += [
        (tiny(seed, 2 + seed % 4, 2 + seed % 2, (0, 2, 3, 4)[seed % 4]), seed)
        for seed in range(2000, 2400)
    ]
    questions += [(odd(seed), seed) for seed in range(3000, 3100)]
    found = run(questions, 8)
    assert len(found) >= 1000


@pytest.mark.parametrize("seed", [20010, 20245])
def test_replicas_over_damaged_and_whole_domains_have_chips(
    odd: Callable[[int], Instance], seed: int
) -> None:
    """Neighbours matter in one domain of a replica, not in that which its shape is named after."""
    assert compare(odd(seed), np.random.default_rng(seed), 3).answer in ("optimal", "feasible")

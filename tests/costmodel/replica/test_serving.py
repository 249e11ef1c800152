"""Schedules and services against hand calculations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.models.spec import Attention
from costmodel.passes.context import mean_attended
from costmodel.question.workload import Limits, Workload
from costmodel.replica.serving import PipelineTime, schedule, serve

CHAT = Workload(input_tokens=4000, output_tokens=1001)
LIMITS = Limits(prefill_chunk_tokens=8192)


def times(sum_s: float, max_s: float, hop_s: float = 0.0) -> PipelineTime:
    return PipelineTime(np.asarray(sum_s), np.asarray(max_s), np.asarray(hop_s))


def test_decode_rate_is_batch_over_period() -> None:
    plan = schedule("decode", CHAT, LIMITS, 10.0)
    found = serve(CHAT, plan, 80, 1, times(0.02, 0.02), None)
    assert float(found.tpot_s) == 0.02
    assert float(found.requests_per_s) == pytest.approx(80 / (0.02 * 1000))


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_even_pipeline_neither_helps_nor_hurts_decode(stages: int) -> None:
    plan = schedule("decode", CHAT, LIMITS, 10.0)
    found = serve(CHAT, plan, 80, stages, times(0.02, 0.02 / stages), None)
    assert float(found.tpot_s) == pytest.approx(0.02)


def test_hand_offs_and_uneven_stages_lengthen_a_token() -> None:
    plan = schedule("decode", CHAT, LIMITS, 10.0)
    assert float(serve(CHAT, plan, 1, 4, times(0.020, 0.005, 0.010), None).tpot_s) == 0.030
    assert float(serve(CHAT, plan, 1, 4, times(0.020, 0.009), None).tpot_s) == 0.036


def test_a_prompt_that_just_missed_waits_one_pass() -> None:
    plan = schedule("prefill", CHAT, LIMITS, 2.0)
    found = serve(CHAT, plan, 16, 1, None, times(0.3, 0.3))
    assert float(found.ttft_s) == pytest.approx(0.6)
    assert float(found.ttft_mean_s) == pytest.approx(0.45)
    assert float(found.requests_per_s) == pytest.approx(16 / 0.3)


def test_long_prompts_are_prefilled_in_chunks() -> None:
    long = Workload(input_tokens=100_000, output_tokens=10)
    plan = schedule("prefill", long, LIMITS, 1.0)
    assert float(plan.passes) == 13
    assert plan.prefill is not None
    assert float(np.asarray(plan.prefill.prefill)) == pytest.approx(100_000 / 13)


def test_mixed_replicas_prefill_what_they_finish() -> None:
    plan = schedule("mixed", CHAT, LIMITS, 100.0)
    assert float(plan.events) == pytest.approx(0.1)
    found = serve(CHAT, plan, 100, 1, times(0.02, 0.02), times(0.1, 0.1))
    assert float(found.tpot_s) == pytest.approx(0.02 + 0.1 * 0.1)
    # prompts prefilled per second equal requests finished per second
    assert float(found.requests_per_s) == pytest.approx(0.1 / float(found.tpot_s))


def test_mixed_batches_prompts_when_more_than_one_finishes_per_step() -> None:
    short = Workload(input_tokens=100, output_tokens=11)
    plan = schedule("mixed", short, LIMITS, 40.0)
    assert float(plan.prompts) == pytest.approx(4.0)
    assert float(plan.events) == pytest.approx(1.0)


def test_prompts_that_arrive_together_share_a_pass() -> None:
    alone = Workload(input_tokens=100, output_tokens=101)
    together = alone.model_copy(update={"prompts_together": 8})
    plan = schedule("mixed", together, LIMITS, np.array([4.0, 40.0, 4000.0]))
    # never more than there are, and never fewer than finish per pass
    assert list(plan.prompts) == [4.0, 8.0, 40.0]
    one_by_one = schedule("mixed", alone, LIMITS, np.array([4.0, 40.0, 4000.0]))
    assert plan.events * plan.prompts == pytest.approx(one_by_one.events * one_by_one.prompts)
    for role in ("decode", "prefill"):
        assert schedule(role, together, LIMITS, 40.0) == schedule(role, alone, LIMITS, 40.0)


def test_cached_tokens_are_not_computed_again() -> None:
    cached = Workload(input_tokens=4000, cached_tokens=3000, output_tokens=10)
    plan = schedule("prefill", cached, LIMITS, 1.0)
    assert plan.prefill is not None
    assert float(np.asarray(plan.prefill.prefill)) == 1000
    assert plan.prefill.prefill_start == 3000


def attention(**changes: Any) -> Attention:
    return Attention("gqa", (), 8, 1, 256, 128, 128, 128, 128, **changes)


@pytest.mark.parametrize(
    ("changes", "start", "end"),
    [({}, 0, 100), ({}, 40, 100), ({"window": 30}, 0, 100), ({"window": 30}, 10, 20),
     ({"read_top_k": 50}, 20, 90), ({"window": 30}, 60, 90),
     ({"compress": 4, "read_top_k": 10, "local_window": 20}, 0, 90)],
)  # fmt: skip
def test_mean_attended_is_the_mean_over_positions(
    changes: dict[str, int], start: int, end: int
) -> None:
    part = attention(**changes)
    positions = np.linspace(start, end, 20_001)
    exact = np.mean([part.read_tokens(float(p)) for p in positions])
    assert mean_attended(part, start, end) == pytest.approx(exact, rel=1e-3)

"""What an engine's server takes before the queue is found again, and a question that names the engine has it."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.load.host import fit_host, replayed_ttft_s
from costmodel.measured.runs import runs_of
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.replay.replay import Course

pytest.importorskip("scipy")


def test_hidden_seconds_are_found_again(rows):
    profile = load_profile("calibrated")
    some = [
        row
        for row in rows
        if row.engine == "vllm" and row.prefill is None and row.concurrency <= 4 and row.ttft_s
    ]
    runs = runs_of(some[::6])[0]
    assert len({run.row.input_tokens for run in runs}) > 1
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(len(runs)))
    made = [
        replace(
            run,
            row=replace(
                run.row,
                ttft_s=float(one * (replayed_ttft_s(run, profile) + 0.03 + 2e-5 * run.row.input_tokens)),
            ),
        )
        for run, one in zip(runs, noise, strict=True)
    ]  # fmt: skip
    crowded = replace(made[0], row=replace(made[0].row, concurrency=64.0, ttft_s=9.0))
    found = fit_host([*made, crowded], profile)
    assert found.keys() == {"vllm"}
    assert found["vllm"].request_s == pytest.approx(0.03, rel=0.3)
    assert found["vllm"].prompt_token_s == pytest.approx(2e-5, rel=0.3)


def question(**more: str) -> Instance:
    workload = {"input_tokens": 1000, "output_tokens": 100}
    return resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload, **more)
    )


def test_a_question_that_names_its_engine_has_its_seconds():
    named = Course.of(question(engine="vllm")).host
    assert named == load_profile("calibrated").host["vllm"]
    assert named.of(1000) > 0.0
    assert Course.of(question()).host.of(1000) == 0.0
    assert Course.of(question(engine="vllm", profile="physics")).host.of(1000) == 0.0

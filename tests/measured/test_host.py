"""What an engine's server takes before the queue is found again, and a question that names the engine has it."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.load.closed import closed_loop
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


def test_prompts_that_are_sent_once_leave_slots_empty_at_the_end(rows):
    """The last answers leave slots empty, so that few prompts have a lower rate; slots of the run's command are kept."""
    profile = load_profile("calibrated")
    row = next(
        one
        for one in rows
        if one.engine == "vllm" and one.prefill is None and one.concurrency == 64
    )
    (run,) = runs_of([row])[0]
    settings = replace(row.decode.settings, running=32.0)
    half = run.with_row(replace(row, decode=replace(row.decode, settings=settings)))
    once, thrice = (closed_loop(run, profile, count) for count in (64, 192))
    assert once.output_tokens_per_s < thrice.output_tokens_per_s
    fewer = closed_loop(half, profile, 64)
    # half of them wait until the others have their answers
    assert fewer.ttft_s.p90 > once.ttft_s.p90
    assert fewer.tpot_s.mean < once.tpot_s.mean
    assert fewer.output_tokens_per_s < once.output_tokens_per_s

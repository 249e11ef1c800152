"""Options as choices: what an answer says of each value, and which choices are refused, in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.question.choices.options import Choices
from costmodel.question.choices.resolved import alternatives, resolve_choosing
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.api import evaluate as judge
from rackfit.api import make_instance, solve
from rackfit.documents.result import read_result
from rackfit.report.uncertainty_words import choice_lines
from solver.clock import Clock
from solver.search import search
from topology.errors import InstanceError, NoLayoutInTime


def asked(**choices: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "model": "glm-4.5-air", "cluster": "hgx-h200",
            "workload": {"input_tokens": 4000, "output_tokens": 1000},
            "slo": {"ttft": 2.0, "tpot": 0.03}, "speculative": {"acceptance": [0.85, 0.7, 0.5]},
            "choices": choices,
        }
    )  # fmt: skip


def test_the_answer_is_that_of_the_value_alone_and_says_what_others_cost(tmp_path: Path) -> None:
    scenario = asked(drafts="0..3")
    found = solve(scenario, workers=1, beside=False)
    alone = [
        solve(scenario.choosing({"drafts": drafts}), workers=1, beside=False) for drafts in range(4)
    ]
    costs = [one.evaluation.usd_per_m_output_tokens or 0.0 for one in alone]
    best = int(np.argmin(costs))
    assert found.evaluation.usd_per_m_output_tokens == pytest.approx(min(costs), rel=0.01)
    assert found.certificate.bound_usd_per_m_output_tokens <= min(costs)
    for chosen, cost in zip(found.search.choices, costs, strict=True):
        assert chosen.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)
    assert found.instance.scenario == scenario.choosing({"drafts": best})
    path = tmp_path / "layout.json"
    found.write(path)
    instance, layout, data = read_result(path)
    again = judge(instance, layout)
    assert again.usd_per_m_output_tokens == found.evaluation.usd_per_m_output_tokens
    assert [one["values"] for one in data["choices"]] == [{"drafts": k} for k in range(4)]
    lines = choice_lines(found)
    assert lines[0] == f"chosen: drafts {best}"
    assert lines[1].startswith(f"drafts {best} (this answer); ")
    assert all(f"{other} " in lines[1] for other in range(4) if other != best)
    assert choice_lines(alone[0]) == []
    covers = found.certificate.covers
    assert covers[0] == "each of drafts 0, 1, 2, 3, one value for all replicas, with:"
    assert "not covered: speculative decoding" not in covers
    assert covers[-1].startswith("not covered: replicas with values of their own")


def test_one_value_is_the_plain_question() -> None:
    scenario = asked(drafts=[2], chunk=[8192])
    found = solve(scenario, workers=1, beside=False)
    plain = solve(scenario.choosing({"drafts": 2, "chunk": 8192}), workers=1, beside=False)
    assert found.layout == plain.layout
    assert found.evaluation.as_dict() == plain.evaluation.as_dict()


@pytest.mark.parametrize("more", [{"kv_dtype": ["bf16", "fp8"]}, {"chunk": [2048, 8192]}])
def test_every_combination_is_the_question_with_its_values(more: dict[str, Any]) -> None:
    """With what drafts for the model, in the precision of its caches, and without it where nothing is drafted."""
    speculative = {"draft_tokens": 1, "acceptance": 0.5, "draft": "qwen3-8b"}
    workload = {"input_tokens": 100, "output_tokens": 3}
    scenario = Scenario.model_validate(
        {
            "model": "qwen3-30b-a3b-fp8", "cluster": "hgx-h200", "workload": workload, "speculative": speculative,
            "choices": {**more, "drafts": [0, 1]},
        }
    )  # fmt: skip
    every = alternatives(resolve_choosing(scenario))
    assert len(every) == 4
    for values, question in every:
        alone = resolve_instance(scenario.choosing(values))
        assert question.model == alone.model
        assert question.digest == alone.digest


def test_choices_within_each_engine() -> None:
    scenario = asked(chunk=[2048, 8192]).model_copy(update={"engine": "any"})
    found = solve(scenario, workers=1)
    assert found.instance.scenario.engine in {one.engine for one in found.search.engines}
    assert found.instance.scenario.choices is None
    assert len(found.search.choices) == 2
    assert found.certificate.bound_usd_per_m_output_tokens <= min(
        one.bound_usd_per_m_output_tokens for one in found.search.choices
    )
    assert judge(found.instance, found.layout).feasible


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drafts=0..9", r"acceptance: 3 probabilities for 9 draft_tokens"),
        ("drafts=0..99", r"choices.drafts: 0..99 must rise, over 64 numbers at most"),
        ("drafts=17", r"choices.drafts\[0\]: must be at most 16"),
        ("overlap=maybe", r"choices.overlap\[0\]: expected true or false, got 'maybe'"),
        ("chunk=0", r"choices.chunk\[0\]: must be at least 1"),
        ("kv_dtype=fp3", r"choices.kv_dtype\[0\]: expected 'bf16'"),
        ("tiers=none/attic", r"choices.tiers\[1\]\[0\]: expected 'host', 'flash' or 'disk'"),
        ("drafts=0..3,chunk=1..20", r"4 drafts x 20 chunk are 80 combinations; 64 at most"),
        ("speed=1", r"--choose: expected OPTION=VALUE/VALUE with an option of drafts, overlap"),
        ("chunk=1,chunk=2", r"--choose: chunk is named twice"),
    ],
)
def test_a_wrong_choice_is_named(text: str, message: str) -> None:
    from rackfit.cli.question import build_scenario

    base = asked(chunk=[1])
    with pytest.raises(InstanceError, match=message) as caught:
        build_scenario(None, base.model_copy(update={"choices": None}), choose=text)
    assert len(caught.value.problems) == 1


def test_choices_without_what_they_need_are_refused() -> None:
    data = asked(chunk=[1]).model_dump(mode="json") | {"speculative": None}
    with pytest.raises(ValueError, match="up to 2 drafts need their acceptance"):
        Scenario.model_validate(data | {"choices": {"drafts": [0, 2]}})
    with pytest.raises(ValueError, match="name values of an option: drafts, overlap"):
        Choices()
    with pytest.raises(InstanceError, match="choices: are for rackfit solve"):
        make_instance(asked(chunk=[1, 2]))
    tiers = asked(tiers=["none", "host"]).model_copy(update={"cluster": "tpu-v7"})
    with pytest.raises(InstanceError, match="kv_tiers: no chip of tpu-v7 has host"):
        make_instance(tiers, choosing=True)
    with pytest.raises(InstanceError, match="confidence: leaves no choices"):
        solve(asked(chunk=[1024, 2048]), confidence=0.9)
    overlap = asked(overlap=[False, True]).model_copy(update={"engine": "sglang"})
    with pytest.raises(InstanceError, match="two_batch_overlap: is searched without an engine"):
        solve(overlap, workers=1)


def test_a_stopped_search_says_that_not_all_were_bounded() -> None:
    clock = Clock()
    clock.stop()
    with pytest.raises(NoLayoutInTime, match="before every choice"):
        search(make_instance(asked(drafts="0..2"), choosing=True), clock=clock)

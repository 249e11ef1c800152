"""What a question with experts apart may ask, what its answer says, and what stays as it was without it."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.question.choices.resolved import resolve_choosing
from costmodel.question.instance import Instance, Scenario, resolve_instance
from rackfit.cli.question import build_scenario
from solver.apart.table import footings
from solver.clock import Clock
from solver.known import groundwork
from solver.search import search
from topology.errors import InstanceError

ASKED: dict[str, Any] = {
    "model": "gpt-oss-20b",
    "cluster": "hgx-h100",
    "workload": {"input_tokens": 1000, "output_tokens": 200},
    "slo": {"tpot": 0.02, "ttft": 1.0},
}


def question(**changed: Any) -> Instance:
    return resolve_instance(Scenario.model_validate({**ASKED, **changed}))


def test_only_experts_apart_is_no_cheaper_than_either_way_and_says_what_it_covers() -> None:
    answers = {}
    for asked in (False, True, "only"):
        found = search(question(apart=asked), clock=Clock(60))
        cost = found.evaluation.usd_per_m_output_tokens
        assert cost is not None
        answers[asked] = (cost, found)
    bound = answers[True][1].certificate.bound_usd_per_m_output_tokens
    assert answers[True][0] <= answers[False][0] * (1 + 0.01)
    assert bound <= min(answers[False][0], answers["only"][0]) * (1 + 1e-9)
    for replica in answers["only"][1].layout.replicas:
        assert (replica.apart is not None) == (replica.role == "decode")
    said = {key: " ".join(found.certificate.covers) for key, (_, found) in answers.items()}
    assert "attention" not in said[False].replace("attention rank", "")
    assert "1 to 4 microbatches in flight" in said[True]
    assert "apart is only" in said["only"]


def test_a_plain_question_lists_no_shape_of_two_groups() -> None:
    plain, both = (groundwork(question(apart=asked)) for asked in (False, True))
    assert len(both.shapes) > len(plain.shapes)
    assert len(both.shapes.take(both.shapes.span < len(plain.shapes.spans))) >= len(plain.shapes)
    assert "apart" not in question().describe()["scenario"]
    assert question(apart="only").describe()["scenario"]["apart"] == "only"


def test_chips_are_taken_as_they_are_sold() -> None:
    sold = question(cluster="gb200-nvl72", granularity="tray")
    stands = footings(sold, groundwork(sold).classes)
    assert stands
    assert all(sum(stand.sizes) % 4 == 0 for stand in stands)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "llama-3.1-8b"}, "model: has no routed experts"),
        ({"two_batch_overlap": True, "profile": "physics"}, "two_batch_overlap: microbatches hide"),
        ({"engine": "sglang"}, "engine: no engine of the catalogue"),
        ({"kv_tiers": ["host"]}, "kv_tiers: KV of replicas with experts apart"),
        ({"within_measured": True}, "within_measured: no measured run"),
        ({"layer_slots": "rows"}, "layer_slots: all layers"),
    ],
)
def test_what_does_not_combine_is_refused_in_words(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        search(question(apart=True, **changed), clock=Clock(60))


def test_precisions_of_kv_are_chosen_beside_it() -> None:
    asked = {**ASKED, "apart": "only", "choices": {"kv_dtype": ["bf16", "fp8"]}}
    found = search(resolve_choosing(Scenario.model_validate(asked)), clock=Clock(60))
    costs = [one.usd_per_m_output_tokens for one in found.choices]
    assert found.evaluation.usd_per_m_output_tokens == min(cost for cost in costs if cost)
    halves = Scenario.model_validate({**asked, "choices": {"overlap": [False, True]}})
    with pytest.raises(InstanceError, match="microbatches hide the exchange"):
        search(resolve_choosing(halves), clock=Clock(60))


def test_the_command_line_asks_for_it() -> None:
    options = {"model": "gpt-oss-20b", "cluster": "hgx-h100", "workload": "chat"}
    assert build_scenario(None, apart="also", **options).apart is True
    assert build_scenario(None, apart="only", **options).apart == "only"
    assert build_scenario(None, **options).apart is False

"""Mixed replicas in pipeline stages: both of their passes run on one cut of the layers."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from solver.clock import Clock
from solver.place import attempt
from solver.search import search


def question(
    model: str, cluster: str, workload: Workload | str, slo: Slo, **more: object
) -> Instance:
    asked = {"model": model, "cluster": cluster, "workload": workload, "slo": slo, **more}
    return resolve_instance(Scenario.model_validate(asked))


@pytest.mark.parametrize("engine", [None, "vllm", "sglang", "trtllm"])
def test_a_model_that_fills_two_nodes_runs_in_stages(engine: str | None) -> None:
    """812 GB of weights on sixteen H100: no room for a replica of each role, which was all that was looked at."""
    asked = question(
        "llama-3.1-405b", "hgx-h100@2", Workload(input_tokens=2000, output_tokens=500), Slo(ttft=10.0, tpot=0.1),
        **({} if engine is None else {"engine": engine}),
    )  # fmt: skip
    found = search(asked, clock=Clock())
    # the bound has each kind of pass on a cut of its own
    assert found.certificate.gap < 0.02
    # the question that was answered says that they were searched
    assert found.instance is not None
    assert found.instance.limits.mixed_stages
    (replica,) = found.layout.replicas
    assert (replica.role, replica.shape.tp, replica.shape.pp) == ("mixed", 8, 2)
    domains = [{asked.cluster.chip(c).domain for c in stage.chips} for stage in replica.stages]
    assert sorted(map(len, domains)) == [1, 1]
    assert not any("mixed replicas in pipeline" in line for line in found.certificate.covers)


@pytest.mark.parametrize("cuts", [(None, "decode", "prefill"), (None,)])
def test_stages_that_are_quick_for_prompts_are_tried_where_first_tokens_are_tight(
    cuts: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that are best for both passes together miss this first token with more than two sequences; no bound rests on them."""
    workload = Workload(input_tokens=219, output_tokens=40)
    free = question("qwen3-32b", "rtx4090@2", workload, Slo(), pay="used")
    five = evaluate(free, plain_layout(free, "mixed", tp=8, pp=2, batch=5))
    assert five.ttft_s is not None
    assert five.tpot_s is not None
    tight = Slo(ttft=five.ttft_s * 1.0001, tpot=five.tpot_s * 1.02)
    staged = {"pay": "used", "limits": {"mixed_stages": True}}
    monkeypatch.setattr(attempt, "_EITHER", cuts)
    found = search(question("qwen3-32b", "rtx4090@2", workload, tight, **staged), clock=Clock())
    usd = five.usd_per_m_output_tokens
    assert usd is not None
    assert found.certificate.bound_usd_per_m_output_tokens <= usd
    assert ((found.evaluation.usd_per_m_output_tokens or 0.0) <= usd) is (len(cuts) == 3)


def test_replicas_that_draft_over_stages_are_not_looked_at() -> None:
    asked = question(
        "deepseek-v3", "hgx-h100@2", Workload(input_tokens=2000, output_tokens=500), Slo(tpot=0.1),
        speculative={"draft_tokens": 1, "acceptance": 0.8}, limits={"mixed_stages": True},
    )  # fmt: skip
    found = search(asked, clock=Clock())
    assert all(r.role != "mixed" or r.shape.pp == 1 for r in found.layout.replicas)
    assert "not covered: mixed replicas in pipeline stages" in found.certificate.covers


def test_they_are_not_looked_at_where_something_else_fits() -> None:
    asked = question("qwen3-8b", "hgx-h100", "chat", Slo())
    found = search(asked, clock=Clock())
    assert found.status == "optimal"
    assert "not covered: mixed replicas in pipeline stages" in found.certificate.covers
    wide = question("qwen3-8b", "hgx-h100", "chat", Slo(), limits={"mixed_stages": True})
    more = search(wide, clock=Clock())
    assert any(r.role == "mixed" and r.shape.pp > 1 for r in more.layout.replicas)
    assert (more.evaluation.usd_per_m_output_tokens or 0.0) < (
        found.evaluation.usd_per_m_output_tokens or 0.0
    )

"""What is kept between questions that differ in their targets changes no answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.passes.communication import GroupRates
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from solver import search as module
from solver.answer import SearchResult
from solver.clock import Clock
from solver.known import groundwork
from solver.rounds import Search
from solver.search import kept_groundwork, search


def instance(model: str, cluster: str, tpot: float, **more: object) -> Instance:
    slo = Slo(ttft=2.0, tpot=tpot)
    return resolve_instance(
        Scenario.model_validate(
            {"model": model, "cluster": cluster, "workload": "chat", "slo": slo, **more}
        )
    )


def answer(asked: Instance) -> SearchResult:
    return search(asked, clock=Clock(None))


@pytest.mark.parametrize(
    ("model", "cluster"), [("gpt-oss-20b", "hgx-h100"), ("llama-3.1-8b", "hgx-h100@2")]
)
def test_answers_are_those_of_a_fresh_process(model: str, cluster: str) -> None:
    for tpot in (0.02, 0.01, 0.03):
        asked = instance(model, cluster, tpot)
        module._kept.clear()
        fresh = answer(asked)
        module._kept.clear()
        answer(instance(model, cluster, 0.05))
        ((_, kept),) = module._kept
        again = answer(asked)
        assert [each for _, each in module._kept] == [kept]
        assert again.layout == fresh.layout
        assert again.certificate == fresh.certificate


def test_only_targets_may_differ() -> None:
    first = instance("llama-3.1-8b", "hgx-h100", 0.02)
    kept = kept_groundwork(first)
    assert kept_groundwork(instance("llama-3.1-8b", "hgx-h100", 0.5)) is kept
    others = [
        instance("llama-3.1-8b", "hgx-h100@2", 0.02), instance("llama-3.1-70b", "hgx-h100", 0.02),
        instance("llama-3.1-8b", "hgx-h100", 0.02, engine="vllm"),
        instance("llama-3.1-8b", "hgx-h100", 0.02, failed=["r0g1"]),
    ]  # fmt: skip
    for other in others:
        assert kept_groundwork(other) is not kept
    assert len(module._kept) == module._MOST_KEPT


def test_questions_on_one_cluster_share_what_collectives_take_there() -> None:
    """Of another model and engine, too: costs that differ are kept apart."""
    module._kept.clear()
    first = instance("mixtral-8x7b", "tpu-v6e", 0.05)
    others = [
        replace(instance(model, "tpu-v6e", 0.05, **more), cluster=first.cluster)
        for model, more in (
            ("mixtral-8x7b", {"weight_dtype": "fp8"}),
            ("qwen3-30b-a3b", {}),
            ("qwen3-30b-a3b", {"profile": "physics"}),
        )
    ]
    for asked in (first, *others):
        alone, kept = groundwork(asked), kept_groundwork(asked)
        assert kept.pricer.sets is module._kept[0][1].pricer.sets
        fresh, shared = (ground.pricer.rates(ground.shapes) for ground in (alone, kept))
        for name in GroupRates.__dataclass_fields__:
            assert (getattr(fresh, name) == getattr(shared, name)).all(), name
    known = len(module._kept[0][1].pricer.sets.costs)
    kept_groundwork(first).pricer.rates(kept_groundwork(first).shapes)
    assert len(module._kept[0][1].pricer.sets.costs) == known


def test_brief_searches_look_for_no_fleet_that_serves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = instance("gpt-oss-20b", "hgx-h100", 0.02, rate=1.0)
    looks = []
    usual = Search.roomier
    monkeypatch.setattr(Search, "roomier", lambda self: (looks.append(1), usual(self)))
    whole = answer(asked)
    assert looks
    looks.clear()
    brief = search(asked, clock=Clock(None), brief=True)
    assert not looks
    assert brief.certificate.bound_usd_per_m_output_tokens == whole.certificate.bound_usd_per_m_output_tokens  # fmt: skip
    costs = [found.evaluation.usd_per_m_output_tokens for found in (brief, whole)]
    assert costs[0] == costs[1]


def test_brief_searches_where_neighbours_matter_do_not_look_for_the_last_per_cent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = instance("qwen3-30b-a3b", "tpu-v5e", 0.02, rate=3.0)
    pack = Search.pack

    def early(self: Search, *, in_stages: bool = False) -> bool:
        assert in_stages, "whole replicas are packed after the last round"
        return pack(self, in_stages=True)

    monkeypatch.setattr(Search, "pack", early)
    found = search(asked, clock=Clock(None), brief=True)
    assert found.certificate.gap > 0.01
    assert (found.status, found.proof_s) == ("feasible", None)
    assert found.evaluation.feasible
    late = search(asked, clock=Clock(1e-3), brief=True)
    assert late.evaluation.feasible
    assert late.certificate.bound_usd_per_m_output_tokens <= found.evaluation.usd_per_m_output_tokens * (1 + 1e-9)  # fmt: skip

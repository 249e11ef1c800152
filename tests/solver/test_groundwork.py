"""What is kept between questions that differ in their targets changes no answer."""

from __future__ import annotations

import pytest

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from solver import search as module
from solver.answer import SearchResult
from solver.clock import Clock
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

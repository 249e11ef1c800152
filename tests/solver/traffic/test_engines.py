"""Traffic under the engine that serves it cheapest, and with drafts: what each costs alone, bounds that hold, replays that meet."""

from __future__ import annotations

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.speculation import Speculative
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.traffic.asked import Asked
from solver.traffic.engines import search_for
from tests.solver.traffic.test_search import TARGETS, requests, scenario


def solved(engine: str | None, drafts: Speculative | None = None) -> SearchResult:
    asked = scenario().model_copy(update={"engine": engine, "speculative": drafts})
    instance = resolve_instance(asked)
    return search_for(instance, Asked(requests(rate=120), TARGETS), clock=Clock(), gap=0.02)


def test_the_cheapest_engine_answers_with_a_bound_over_all() -> None:
    found = solved("any")
    assert found.engines is not None
    assert [one.engine.partition("@")[0] for one in found.engines] == ["sglang", "trtllm", "vllm"]
    costs = [one.usd_per_m_output_tokens or float("inf") for one in found.engines]
    assert found.evaluation.usd_per_m_output_tokens == min(costs)
    bounds = [one.bound_usd_per_m_output_tokens for one in found.engines]
    assert found.certificate.bound_usd_per_m_output_tokens == min(min(bounds), min(costs))
    assert found.instance is not None
    named = found.instance.scenario.engine
    (own,) = [one for one in found.engines if one.engine == named]
    alone = solved(named)
    assert alone.evaluation.usd_per_m_output_tokens == own.usd_per_m_output_tokens
    assert alone.certificate.bound_usd_per_m_output_tokens == own.bound_usd_per_m_output_tokens


@pytest.mark.parametrize(("acceptance", "pays"), [(0.95, True), (0.01, False)])
def test_drafts_are_replayed_and_bounded(acceptance: float, pays: bool) -> None:
    drafts = Speculative(draft_tokens=3, acceptance=acceptance, draft="llama-3.1-8b-eagle3")
    found, plain = solved(None, drafts), solved(None)
    cost, without = (
        one.evaluation.usd_per_m_output_tokens or float("inf") for one in (found, plain)
    )
    assert (cost < without) == pays
    assert found.certificate.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)
    instance = found.instance
    assert instance is not None
    met = [
        judged(
            replay(instance, found.layout, requests(seed, 120, 3000), Course.of(instance)), TARGETS
        )
        for seed in range(50, 56)
    ]
    assert sum(one.meets for one in met) >= 5

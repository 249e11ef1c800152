"""Traffic under the engine that serves it cheapest, and with drafts: what each costs alone, bounds that hold, replays that meet."""

from __future__ import annotations

from functools import cache

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.requests import Requests
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.traffic import engines, ways
from solver.traffic.asked import Asked
from solver.traffic.engines import search_for
from tests.solver.traffic.few_draws import few_draws
from tests.solver.traffic.test_search import TARGETS, scenario
from topology.errors import NoLayoutInTime

TRAFFIC = Description(
    arrivals=Arrivals(rate=60),
    lengths=BothLengths(input=Lengths(mean=1000, std=800), output=Lengths(mean=100, std=70)),
)


def requests(seed: int = 1, count: int = 1000) -> Requests:
    return TRAFFIC.draw(count, seed).at_rate(60.0)


@cache
@few_draws()
def solved(engine: str | None, drafts: Speculative | None = None) -> SearchResult:
    """Each question is solved once."""
    asked = scenario().model_copy(update={"engine": engine, "speculative": drafts})
    instance = resolve_instance(asked)
    return search_for(instance, Asked(requests(), TARGETS), clock=Clock(), gap=0.02)


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


def test_an_engine_that_finds_nothing_in_its_time_leaves_the_others_their_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is bounded by its shapes alone, also once the whole time is over."""
    clock, found = Clock(), solved("sglang")
    known = solved("vllm").certificate.bound_usd_per_m_output_tokens

    def one(scenario: Scenario, *_: object, **__: object) -> SearchResult:
        if scenario.engine is not None and scenario.engine.startswith("sglang"):
            return found
        clock.stop()
        raise NoLayoutInTime("too late")

    def late(*_: object, **__: object) -> SearchResult:
        raise NoLayoutInTime("no steady layout either")

    monkeypatch.setattr(engines, "search_traffic", one)
    monkeypatch.setattr(ways, "search", late)
    asked = resolve_instance(scenario().model_copy(update={"engine": "any"}))
    every = search_for(asked, Asked(requests(), TARGETS), clock=clock, gap=0.02)
    assert every.layout == found.layout
    assert every.engines is not None
    assert [one.usd_per_m_output_tokens is None for one in every.engines] == [False, True, True]
    bounds = [one.bound_usd_per_m_output_tokens for one in every.engines]
    assert every.certificate.bound_usd_per_m_output_tokens == pytest.approx(min(bounds))
    assert 0.5 * known < bounds[2] <= known


@pytest.mark.parametrize(("acceptance", "pays"), [(0.95, True), (0.01, False)])
def test_drafts_are_replayed_and_bounded(acceptance: float, pays: bool) -> None:
    drafts = Speculative(draft_tokens=3, acceptance=acceptance, draft="llama-3.1-8b-eagle3")
    found, plain = solved(None, drafts), solved(None)
    cost, without = (
        one.evaluation.usd_per_m_output_tokens or float("inf") for one in (found, plain)
    )
    assert (cost < without) == pays
    assert found.certificate.bound_usd_per_m_output_tokens <= cost * (1 + 1e-9)
    assert any(line.startswith("drafts: ") for line in found.certificate.covers)
    instance = found.instance
    assert instance is not None
    met = [
        judged(replay(instance, found.layout, requests(seed, 3000), Course.of(instance)), TARGETS)
        for seed in range(50, 56)
    ]
    assert sum(one.meets for one in met) >= 5

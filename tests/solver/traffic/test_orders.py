"""Which waiting prompt is next: what is tried, what it saves, and what is said of the prompts that are put off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Limits, PromptOrder
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from rackfit.documents.result import for_traffic
from rackfit.report.traffic_words import traffic_lines
from solver.answer import ForTraffic, SearchResult
from solver.clock import Clock
from solver.traffic.asked import Asked
from solver.traffic.found import as_they_come
from solver.traffic.search import _TrafficSearch, search_traffic
from solver.traffic.ways import Looking, Way, as_served
from tests.solver.traffic.few_draws import few_draws

TARGETS = Targets(1.0, 0.05, 0.99)
SCENARIO = Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat")
CHUNK = 2048


def long_ones(part: float = 0.008) -> Requests:
    """60 requests per second, of which fewer than one in a hundred has a very long prompt."""
    rng = np.random.default_rng(5)
    arrival = np.cumsum(rng.exponential(1 / 60, 2500))
    tokens = np.where(rng.random(2500) < part, 30_000, rng.integers(200, 2000, 2500))
    return Requests(arrival - arrival[0], tokens, rng.integers(20, 200, 2500), 0 * tokens)


def with_order(order: PromptOrder | None) -> Scenario:
    """In passes of so many tokens; ``None``: the order is open."""
    limits = Limits(prefill_chunk_tokens=CHUNK)
    if order is not None:
        limits = Limits(prefill_chunk_tokens=CHUNK, prompt_order=order)
    return SCENARIO.model_copy(update={"limits": limits})


def found(order: PromptOrder | None) -> tuple[SearchResult, ForTraffic]:
    answer = search_traffic(with_order(order), Asked(long_ones(), TARGETS), clock=Clock(), gap=0.4)
    assert answer.traffic is not None
    assert answer.instance is not None
    return answer, answer.traffic


@pytest.fixture(scope="module")
@few_draws()
def answer() -> tuple[SearchResult, ForTraffic]:
    return found(None)


@few_draws()
def test_long_prompts_are_put_off_where_that_needs_fewer_chips(
    answer: tuple[SearchResult, ForTraffic],
) -> None:
    chosen, told = answer
    first, as_they_come = found("first-come")
    assert as_they_come.put_off is None
    assert told.put_off is not None
    assert chosen.evaluation.chips_used < first.evaluation.chips_used
    # the bound holds for each order
    bound = chosen.certificate.bound_usd_per_m_output_tokens
    assert bound == pytest.approx(first.certificate.bound_usd_per_m_output_tokens)


def test_the_answer_says_how_it_was_replayed(answer: tuple[SearchResult, ForTraffic]) -> None:
    """Its question has the order, so that it is replayed alike."""
    chosen, told = answer
    instance = chosen.instance
    assert instance is not None
    assert instance.limits.prompt_order == "shortest"
    assert Course.of(instance).order == "shortest"
    met = replay(instance, chosen.layout, long_ones())
    assert judged(met, TARGETS).meets
    assert np.array_equal(met.ttft, told.met.ttft)
    course = replace(Course.of(instance), order="first-come")
    assert not np.array_equal(replay(instance, chosen.layout, long_ones(), course).ttft, met.ttft)
    assert as_served(SCENARIO, instance).limits == instance.limits


def test_what_the_longest_prompts_meet_is_said(answer: tuple[SearchResult, ForTraffic]) -> None:
    _, told = answer
    off = told.put_off
    assert off is not None
    tokens = long_ones().input_tokens
    longest = tokens >= off.tokens
    assert longest.sum() >= 25 > (tokens > off.tokens).sum()
    assert off.ttft_p50_s == pytest.approx(float(np.median(told.met.ttft[longest])))
    assert off.late == pytest.approx(float((told.met.ttft[longest] > 1.0).mean()))
    (line,) = (
        one for one in traffic_lines({**for_traffic(told), "evaluation": {}}) if "shortest" in one
    )
    assert (
        f"prompts of {off.tokens:,} tokens or more, the longest hundredth, {off.late:.0%}" in line
    )


def way(asked: Asked, scenario: Scenario) -> Way:
    return Way.of(scenario, asked, CHUNK, Looking(Clock(), 0.5, 0, 1))


@few_draws()
def test_the_order_is_open_unless_told() -> None:
    asked = Asked(long_ones(0.0), TARGETS)
    plain = way(asked, with_order(None))
    shortest = plain.shortest
    assert shortest is not None
    assert (plain.order, shortest.order) == ("first-come", "shortest")
    assert shortest.shortest is None
    assert shortest.plain is plain.plain
    for order in ("first-come", "shortest"):
        told = way(asked, with_order(order))
        assert told.order == order
        assert told.shortest is None
    assert way(Asked(long_ones(0.0), Targets(None, 0.05)), with_order(None)).shortest is None


@few_draws()
def test_a_layout_that_needs_no_order_has_none() -> None:
    """Where requests are few, what was found with the shortest first meets the targets as they come, too."""
    asked = Asked(long_ones(0.0), TARGETS)
    plain = way(asked, with_order(None))
    assert plain.shortest is not None
    search = _TrafficSearch(with_order(None), asked, Looking(Clock(), 0.01, 0, 1), None)
    search.run()
    best = search.sure
    assert best is not None
    base = best.way
    assert base.shortest is not None
    put_off = replace(best, way=base.shortest)
    again = as_they_come(put_off, [base], Clock())
    assert again is not None
    assert again.way is base
    assert again.verdict.confirmed
    # one whose way is none of these stays as it is
    assert as_they_come(put_off, [], Clock()) is put_off
    assert as_they_come(None, [base], Clock()) is None

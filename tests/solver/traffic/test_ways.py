"""How many prompt tokens a pass takes: what is tried, what it saves, what the bound then covers."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.choices.options import Choices
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Limits
from costmodel.replay.replay import replay
from costmodel.replay.targets import Targets, judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.traffic.asked import Asked
from solver.traffic.few import Few
from solver.traffic.search import search_traffic
from solver.traffic.turns import Turns
from solver.traffic.ways import Looking, chunks_of
from tests.solver.traffic.few_draws import few_draws
from topology.errors import InstanceError

TARGETS = Targets(1.0, 0.05)
SCENARIO = Scenario(model="llama-3.1-70b", cluster="hgx-h100@2", workload="chat")


def chats(rate: float) -> Requests:
    """The first 2,000 requests of a trace."""
    found = load_traffic("azure-conversation-2023").rows(np.arange(2000))
    return found.whole_prompts().at_rate(rate)


def asked(targets: Targets = TARGETS) -> Asked:
    return Asked(chats(10), targets)


def with_chunks(*chunks: int) -> Scenario:
    return SCENARIO.model_copy(update={"choices": Choices(chunk=chunks)})


@few_draws()
def found(scenario: Scenario, gap: float) -> SearchResult:
    return search_traffic(scenario, asked(), clock=Clock(), gap=gap)


@pytest.fixture(scope="module")
def told() -> SearchResult:
    """With the tokens that passes take unless told."""
    return found(SCENARIO.model_copy(update={"limits": Limits(prefill_chunk_tokens=8192)}), 0.75)


@pytest.fixture(scope="module")
def chosen() -> SearchResult:
    return found(with_chunks(8192, 2048), 0.5)


def test_what_is_tried() -> None:
    assert chunks_of(SCENARIO, asked()) == (8192, 4096, 2048, 512)
    assert chunks_of(SCENARIO, asked(), fine=True) == (8192, 6144, 4096, 2048, 512)
    assert chunks_of(SCENARIO, asked(Targets(None, 0.05))) == (8192,)
    fixed = SCENARIO.model_copy(update={"limits": Limits(prefill_chunk_tokens=1000)})
    assert chunks_of(fixed, asked()) == (1000,)
    assert chunks_of(with_chunks(300, 700), asked()) == (300, 700)
    others = SCENARIO.model_copy(update={"choices": Choices(chunk=(512,), overlap=(True, False))})
    with pytest.raises(InstanceError, match="choices: overlap: only chunk is chosen with traffic"):
        search_traffic(others, asked(), clock=Clock())


def test_fewer_tokens_let_stages_share_a_long_prompt(
    told: SearchResult, chosen: SearchResult
) -> None:
    """In one piece a prompt passes one stage after another, so that long ones are late on all narrow replicas."""
    assert told.traffic is not None
    assert chosen.traffic is not None
    assert chosen.instance is not None
    assert chosen.traffic.prefill_chunk_tokens == 2048
    assert chosen.traffic.chunks_tried == (8192, 2048)
    assert chosen.instance.limits.prefill_chunk_tokens == 2048
    assert chosen.evaluation.chips_used < told.evaluation.chips_used
    met = replay(chosen.instance, chosen.layout, asked().runs(0)[0])
    assert judged(met, TARGETS).meets


def test_where_a_prompt_leaves_little_time_to_wait_the_way_that_promises_most_comes_first() -> None:
    how = Looking(Clock(), 0.5, 0, 1)
    turns = Turns(with_chunks(8192, 2048), asked(), how)
    order = turns.one_by_one(lambda: False, lambda: None, lambda _: False)
    first, second = turns.ways[0], next(way for way, hurry in order if not isinstance(hurry, Few))
    assert first.ttft_s > 0.25
    assert (first.chunk, second.chunk) == (8192, 2048)
    assert second.promises() < first.promises()
    # one whose first tokens take less of their target is looked at before others are opened
    easy = Turns(with_chunks(8192, 2048), asked(Targets(60.0, 0.05)), how)
    assert next(easy.one_by_one(lambda: False, lambda: None, lambda _: False))[0] is easy.ways[0]
    assert len(easy.ways) == 1


def test_the_bound_holds_for_each(told: SearchResult, chosen: SearchResult) -> None:
    bound = chosen.certificate.bound_usd_per_m_output_tokens
    assert bound <= told.certificate.bound_usd_per_m_output_tokens * (1 + 1e-9)
    assert chosen.certificate.covers[0] == (
        "passes of at most 8,192 or 2,048 prompt tokens per attention rank, as many in all replicas"
    )
    assert not any(line.startswith("passes of at most") for line in told.certificate.covers)


@few_draws()
def test_what_was_not_looked_at_is_not_covered() -> None:
    """An answer near its bound ends the search before fewer tokens are tried."""
    easy = Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat")
    answer = search_traffic(easy, Asked(chats(40), TARGETS), clock=Clock(), gap=0.9)
    assert answer.traffic is not None
    assert answer.traffic.chunks_tried == (8192,)
    assert answer.certificate.covers[0].startswith("passes of at most 8,192 prompt tokens per")

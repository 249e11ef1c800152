"""Requests of unlike lengths in a steady state, and stretches of traffic drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.spread import Spread, spread_of
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Limits, Workload


def requests(given: list[int], asked: list[int], cached: list[int] | None = None) -> Requests:
    return Requests(
        np.arange(len(given), dtype=float),
        np.array(given),
        np.array(asked),
        np.array(cached if cached is not None else [0] * len(given)),
    )


def question(spread: Spread | None, given: int = 2048, asked: int = 200) -> Instance:
    workload = Workload(input_tokens=given, output_tokens=asked, spread=spread)
    return resolve_instance(
        Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload=workload, profile="physics")
    )


def drawn(count: int = 4000, seed: int = 3) -> Requests:
    lengths = BothLengths(input=Lengths(mean=900, std=900), output=Lengths(mean=150, std=120))
    return Description(arrivals=Arrivals(process="gamma", cv=3, rate=50), lengths=lengths).draw(
        count, seed
    )


def test_one_length_has_no_spread() -> None:
    assert spread_of(requests([700] * 5, [90] * 5)) is None
    assert spread_of(requests([700] * 5, [90] * 5, [0, 0, 10, 0, 0])) is not None


def test_the_means_of_one_length_give_its_figures_to_the_bit() -> None:
    """As many prompts as fill a pass: 4 of 2,048 tokens."""
    same = Spread(
        new_tokens=2048, prompt_end=2048, steps=199, context=2148, kept=2248, longest=2248
    )
    cases: list[tuple[Role, int]] = [("prefill", 4), ("decode", 64), ("mixed", 32)]
    for role, batch in cases:
        layout = plain_layout(question(None), role, tp=1, batch=batch)
        plain, spread = (evaluate(question(s), layout) for s in (None, same))
        assert vars(plain.priced.replicas[0].service) == vars(spread.priced.replicas[0].service)


def test_means_are_those_that_passes_meet() -> None:
    found = spread_of(requests([100, 300], [11, 31], [50, 0]))
    assert found is not None
    assert found.new_tokens == 175
    assert found.prompt_end == pytest.approx((50 * 100 + 300 * 300) / 350)
    assert found.prompt_start == pytest.approx(50 * 50 / 350)
    assert found.steps == 20
    assert found.context == pytest.approx((10 * (100 + 5.5) + 30 * (300 + 15.5)) / 40)
    assert found.kept == pytest.approx((10 * 111 + 30 * 331) / 40)
    assert found.longest == 331


def test_what_may_be_missed_never_adds_work() -> None:
    traffic = drawn()
    every, most = spread_of(traffic), spread_of(traffic, exempt=0.01)
    assert every is not None
    assert most is not None
    assert most.new_tokens == every.new_tokens
    assert most.steps < every.steps
    assert most.steps * most.context < every.steps * every.context
    # no choice of a hundredth of the requests leaves less to do
    steps = traffic.output_tokens - 1.0
    for seed in range(20):
        left = np.random.default_rng(seed).permutation(len(traffic))[: len(traffic) * 99 // 100]
        assert steps[left].sum() / len(traffic) >= most.steps * (1 - 1e-12)


def test_prompts_of_unlike_lengths_fill_a_pass() -> None:
    limits = Limits(prefill_chunk_tokens=8192)
    alike = Workload(input_tokens=1237, output_tokens=100)
    spread = spread_of(requests([1000, 1474], [100, 100]))
    unlike = alike.model_copy(update={"spread": spread})
    assert limits.prompts_in_pass(alike) == 6
    assert limits.prompts_in_pass(unlike) == 7
    rates = []
    for batch in (7, 14):  # a pass is full from the seventh prompt on
        layout = plain_layout(question(None), "prefill", tp=1, batch=batch)
        found = evaluate(question(spread, 1237), layout).priced.replicas[0].service
        rates.append(float(found.requests_per_s))
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)


def test_traffic_drawn_again_keeps_neighbours() -> None:
    traffic = drawn(800)
    again = traffic.again(2000, seed=5)
    assert len(again) == 2000
    assert np.array_equal(again.arrival_s, traffic.again(2000, seed=5).arrival_s)
    assert not np.array_equal(again.arrival_s, traffic.again(2000, seed=6).arrival_s)
    assert (np.diff(again.arrival_s) >= 0).all()
    first = int(np.flatnonzero(traffic.input_tokens == again.input_tokens[0])[0])
    rows = (first + np.arange(50)) % len(traffic)
    assert np.array_equal(again.input_tokens[:50], traffic.input_tokens[rows])
    gaps = np.diff(traffic.arrival_s, prepend=0.0)
    assert np.diff(again.arrival_s[:50]) == pytest.approx(gaps[rows][1:])

"""Answers within what was measured, and how far others are from it."""

from dataclasses import replace

import pytest

import rackfit
from costmodel.evaluate import evaluate
from costmodel.question.measured_shapes import (
    BATCH_REACH,
    Worker,
    measured_workers,
    missing_of,
    most_sequences,
    nearest_to,
    widths_measured,
)
from costmodel.question.scenario import Scenario
from rackfit.api import make_instance
from rackfit.report.uncertainty_words import measured_lines
from solver.clock import Clock

ASKED = {"model": "gpt-oss-120b", "cluster": "hgx-h200", "slo": {"tpot": 0.02, "ttft": 2.0}}


def question(**more):
    workload = {"input_tokens": 1000, "output_tokens": 200}
    return Scenario.model_validate({**ASKED, "workload": workload, **more})


@pytest.fixture(scope="module")
def free():
    return rackfit.solve(question(), workers=1)


@pytest.fixture(scope="module")
def kept():
    return rackfit.solve(question(within_measured=True), workers=1)


def test_an_answer_within_what_was_measured_has_only_measured_widths_and_batches(kept):
    most = BATCH_REACH * max(w.most_sequences for w in measured_workers() if w.chip == "h200")
    for replica in kept.layout.replicas:
        shape = replica.shape
        assert widths_measured("h200", replica.role, shape.tp, shape.attention_dp, shape.pp, None)
        assert max(replica.rank_sequences()) <= most
    document = kept.as_dict()
    assert "widths" not in document["measured_distance"]["not_measured"]
    cost = document["evaluation"]["usd_per_m_output_tokens"]
    assert document["within_measured_usd_per_m_output_tokens"] == cost


def test_staying_there_costs_what_a_search_there_finds(free, kept):
    """Never less than the bound of the free search."""
    document = free.as_dict()
    within = document["within_measured_usd_per_m_output_tokens"]
    assert within >= document["certificate"]["bound_usd_per_m_output_tokens"]
    layout_kept = not evaluate(
        make_instance(question(within_measured=True)), free.layout
    ).violations
    if layout_kept:
        assert within == document["evaluation"]["usd_per_m_output_tokens"]
    else:
        assert within == pytest.approx(kept.evaluation.usd_per_m_output_tokens, rel=0.01)


def test_nobody_measured_a_chip_and_says_so():
    found = rackfit.solve(question(cluster="hgx-a100"), workers=1).as_dict()
    assert "chip" in found["measured_distance"]["not_measured"]
    assert found["within_measured_usd_per_m_output_tokens"] is None
    with pytest.raises(
        rackfit.NoFeasibleLayout, match="no worker that could run it was measured on a100"
    ):
        rackfit.solve(question(cluster="hgx-a100", within_measured=True), workers=1)
    asked = question(cluster="hgx-h20", engine="sglang", within_measured=True)
    with pytest.raises(
        rackfit.NoFeasibleLayout,
        match=r"no worker of SGLang .* measured on h20; without within_measured",
    ):
        rackfit.solve(asked, workers=1)


def test_what_is_missing_is_named_beside_what_is_there():
    one = measured_workers()[0]
    like = Worker(
        one.chip, one.engine, one.weights, one.role, one.tp, one.attention_dp, one.pp,
        one.most_sequences,
    )  # fmt: skip
    assert missing_of(like) == []
    assert missing_of(replace(like, sequences=10 * most_sequences([one.chip]))) == ["batch"]
    assert missing_of(replace(like, tp=7)) == ["widths"]
    assert missing_of(replace(like, weights="int4")) == ["precision"]
    assert missing_of(replace(like, chip="tpu-v6e", engine="acme")) == ["chip", "engine"]
    (distance, nearest), *_ = nearest_to(like)
    assert distance == 0
    assert nearest == one


def test_a_further_search_ends_with_the_first():
    clock = Clock(100.0)
    follower = clock.follower()
    assert 0 < follower.limit_s <= 100.0
    clock.stop()
    assert follower.stopped
    assert clock.follower().over


def test_what_was_not_looked_for_is_not_said_to_be_absent(free):
    """For requests over time nothing within what was measured is searched; it was said that none was found."""
    assert "within what was measured" in measured_lines(free)[-1]
    search = replace(free.search, traffic=object())
    assert not any(
        "within what was measured" in line for line in measured_lines(replace(free, search=search))
    )


def test_a_cost_within_what_was_measured_is_said_to_be_of_another_question(free):
    """Nobody measured experts apart: where they were asked for, a cheaper layout without them seemed to break the proof."""
    scenario = free.instance.scenario.model_copy(update={"apart": "only"})
    asked = replace(free, instance=replace(free.instance, scenario=scenario))
    assert ", with experts beside attention, within what was measured" in measured_lines(asked)[-1]

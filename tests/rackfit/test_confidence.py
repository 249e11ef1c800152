"""``solve --confidence``: the answer, its document and its words; and what every answer says of the parameter sets."""

import json

import pytest
from typer.testing import CliRunner

import rackfit
from costmodel.evaluate import evaluate
from costmodel.question.scenario import Scenario
from costmodel.worlds.across import across, costs_of
from costmodel.worlds.ensemble import worlds_of
from rackfit.api import make_instance
from rackfit.cli.app import build_app
from rackfit.console import make_console
from rackfit.report.render import print_result
from topology.errors import InstanceError

ASKED = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "slo": {"tpot": 0.02, "ttft": 2.0}}
CONFIDENCE = 0.9


def question(**more):
    workload = {"input_tokens": 100, "output_tokens": 1000}
    return Scenario.model_validate({**ASKED, "workload": workload, **more})


@pytest.fixture(scope="module")
def plain():
    return rackfit.solve(question(), workers=1)


@pytest.fixture(scope="module")
def sure():
    return rackfit.solve(question(), workers=1, confidence=CONFIDENCE)


def test_every_answer_says_what_it_costs_over_the_parameter_sets(plain):
    found = plain.as_dict()["worlds"]
    worlds = worlds_of(plain.instance)
    costs = costs_of(worlds, plain.layout)
    assert found["parameter_sets"] == len(worlds)
    quantiles = found["usd_per_m_output_tokens"]
    assert quantiles["p10"] <= quantiles["p50"] <= quantiles["p90"]
    assert quantiles["p90"] == sorted(costs.served)[21]
    missed = sum(cost == float("inf") for cost in costs.kept)
    assert found["share_meeting_targets"] == pytest.approx(1 - missed / len(worlds))
    assert 0 <= found["share_within_1_percent_of_best"] <= found["share_meeting_targets"]
    assert found["confidence"] is None


def test_an_answer_beside_a_better_one_is_close_to_the_best_in_fewer_sets(plain, sure):
    worlds = worlds_of(plain.instance)
    alone = across(worlds, [plain.layout])
    beside = across(worlds, [plain.layout, sure.layout])
    assert beside.share_close <= alone.share_close == alone.share_kept


def test_the_answer_meets_its_targets_in_nine_of_ten_sets_at_the_cost_it_says(plain, sure):
    found = sure.as_dict()
    worlds = worlds_of(sure.instance)
    each = [evaluate(world, sure.layout) for world in worlds]
    kept = sorted(one.usd_per_m_output_tokens for one in each if not one.violations)
    assert len(kept) >= CONFIDENCE * len(worlds)
    at = found["worlds"]["usd_per_m_output_tokens_at_confidence"]
    assert at == kept[21]
    bound = found["worlds"]["bound_usd_per_m_output_tokens_at_confidence"]
    assert bound == found["certificate"]["bound_usd_per_m_output_tokens"] <= at
    assert found["certificate"]["gap"] == pytest.approx(at / bound - 1)
    assert found["certificate"]["covers"][0].startswith("the cost in 90% of 24 parameter sets")
    assert costs_of(worlds, plain.layout).at(CONFIDENCE) >= bound
    own = evaluate(sure.instance, sure.layout)
    assert not own.violations
    assert sure.evaluation.usd_per_m_output_tokens == own.usd_per_m_output_tokens
    assert own.usd_per_m_output_tokens >= plain.certificate.bound_usd_per_m_output_tokens


def test_the_words_name_the_confidence(sure):
    console = make_console()
    with console.capture() as said:
        print_result(sure, console)
    text = said.get()
    cost = sure.search.worlds.usd_per_m_output_tokens
    assert "at a confidence of 90% proven" in text
    assert f"at most ${cost:.4f} per million output tokens with every target met" in text


@pytest.mark.parametrize(
    ("more", "confidence", "said"),
    [
        ({"profile": "physics"}, 0.9, "how far profile physics may be off is not known"),
        ({"engine": "any"}, 0.9, "the engine must be named"),
        ({}, 0.99, "must be 0.5 to 0.95, got 0.99"),
        ({}, 0.2, "must be 0.5 to 0.95, got 0.2"),
    ],
)
def test_a_confidence_that_cannot_be_told_is_refused(more, confidence, said):
    with pytest.raises(InstanceError, match=said):
        rackfit.solve(make_instance(question(**more)), confidence=confidence)


def test_a_confidence_is_not_of_traffic():
    asked = ["solve", "llama-3.1-8b-hgx-h100", "--confidence", "0.9", "--traffic", "nothing.csv"]
    found = CliRunner().invoke(build_app(), asked)
    assert found.exit_code != 0


def test_physics_has_no_parameter_sets():
    found = rackfit.solve(question(profile="physics"), workers=1).as_dict()
    assert found["worlds"] is None
    assert json.dumps(found)

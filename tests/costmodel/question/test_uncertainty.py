"""Intervals hold the prediction, widen with confidence, and follow from the profile's own errors."""

from itertools import pairwise

import pytest
from pydantic import ValidationError

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.profile_parts import HeldOut
from costmodel.question.scenario import Scenario
from costmodel.question.uncertainty import Figures, compare_costs, intervals_of

HELD_OUT = HeldOut(
    levels=(0.05, 0.25, 0.5, 0.75, 0.95),
    tpot=(0.8, 0.9, 1.05, 1.2, 1.6),
    ttft=(1.1, 1.2, 1.5, 2.0, 3.0),
    layout_ratio=(0.8, 0.95, 1.0, 1 / 0.95, 1.25),
)


@pytest.fixture(scope="module")
def instance():
    return resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat", profile="calibrated")
    )


def judged(instance, profile="calibrated", **changes):
    scenario = instance.scenario.model_copy(update={"profile": profile, **changes})
    asked = resolve_instance(scenario)
    return evaluate(asked, plain_layout(asked, "mixed", tp=1, attention_dp=1, batch=32))


FIGURES = ("tpot_s", "ttft_s", "ttft_mean_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
           "usd_per_m_output_tokens", "usd_per_m_tokens")  # fmt: skip


def test_intervals_hold_the_prediction_and_are_ordered(instance):
    evaluation = judged(instance)
    for name in FIGURES:
        low, high = getattr(evaluation.intervals, name)
        assert 0 < low <= getattr(evaluation, name) <= high
        assert evaluation.as_dict()["intervals"][name] == [low, high]
    assert evaluation.intervals.confidence == 0.9


def test_money_and_rates_are_off_as_tpot_is(instance):
    evaluation = judged(instance)
    slow = evaluation.intervals.tpot_s[1] / evaluation.tpot_s
    found = evaluation.intervals
    assert found.output_tokens_per_s[0] == pytest.approx(evaluation.output_tokens_per_s / slow)
    assert found.usd_per_m_tokens[1] == pytest.approx(evaluation.usd_per_m_tokens * slow)


def test_a_wider_confidence_gives_a_wider_interval(instance):
    figures = Figures(0.02, 0.5, 0.4, 10.0, 10.0, 8, 100.0, 0.2, 0.1, 0.0)
    some = [intervals_of(instance, figures, c) for c in (0.3, 0.6, 0.9, 0.98)]
    for name in FIGURES:
        ends = [getattr(one, name) for one in some]
        assert all(b[0] <= a[0] and a[1] <= b[1] for a, b in pairwise(ends))
        assert ends[-1][1] > ends[0][1]


def test_more_than_is_asked_for_is_not_served(instance):
    """With a rate, faster passes leave chips idle; slower ones may not reach it."""
    most = judged(instance).requests_per_s
    evaluation = judged(instance, rate=0.9 * most)
    low, high = evaluation.intervals.output_tokens_per_s
    assert high == pytest.approx(evaluation.output_tokens_per_s, rel=1e-12)
    assert low < evaluation.output_tokens_per_s
    least = evaluation.intervals.usd_per_m_output_tokens[0]
    assert least == pytest.approx(evaluation.usd_per_m_output_tokens, rel=1e-12)


def test_rent_does_not_follow_the_rate(instance):
    figures = Figures(0.02, 0.5, 0.4, 10.0, 10.0, 8, 100.0, 0.2, 0.1, 1.0)
    assert intervals_of(instance, figures).usd_per_m_tokens == pytest.approx((0.1, 0.1))


def test_a_profile_without_cross_validation_has_no_interval(instance):
    evaluation = judged(instance, "physics")
    assert evaluation.intervals is None
    assert evaluation.as_dict()["intervals"] is None
    assert "not compared with measurements" in evaluation.provenance["intervals"]
    compared = compare_costs(load_profile("physics"), 1.0, 1.1)
    assert compared.excess == pytest.approx(0.1)
    assert compared.within_noise is None


def test_a_one_sided_error_does_not_push_the_prediction_out():
    assert HELD_OUT.factors("ttft", 0.9) == pytest.approx((1.0, 3.0))
    assert HELD_OUT.factors("tpot", 0.9) == pytest.approx((0.8, 1.6))


def test_differences_below_the_noise_of_ratios_are_within_it():
    profile = load_profile("physics").model_copy(update={"held_out": HELD_OUT})
    for excess, within, turned in ((0.0, True, 0.5), (0.2, True, None), (0.25, True, 0.05), (0.3, False, 0.05)):  # fmt: skip
        compared = compare_costs(profile, 2.0, 2.0 * (1 + excess))
        assert compared.noise == pytest.approx(0.25)
        assert compared.within_noise is within or excess == 0.25  # on the edge
        assert turned is None or compared.turned == pytest.approx(turned)
    assert compare_costs(profile, 1.0, 1.1, 0.5).within_noise is False


def test_two_layouts_share_most_of_the_error():
    found = load_profile("calibrated").held_out
    assert found.ratio_noise(0.9) < found.factors("tpot", 0.9)[1] - 1.0
    assert found.layout_pairs > 1000
    # either layout may come first
    for low, high in zip(found.layout_ratio, reversed(found.layout_ratio), strict=True):
        assert low * high == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tpot": (0.8, 0.9)}, "2 quantiles, levels has 5"),
        ({"tpot": (0.8, 0.7, 1.0, 1.1, 1.2)}, "must not fall"),
        ({"levels": (0.5,), "tpot": (1.0,), "ttft": (), "layout_ratio": ()}, "at least two"),
    ],
)
def test_quantiles_that_are_none_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        HeldOut.model_validate(HELD_OUT.model_dump() | changes)


@pytest.mark.parametrize("confidence", [0.0, 0.95, 1.0])
def test_confidence_beyond_the_quantiles_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        HELD_OUT.factors("tpot", confidence)

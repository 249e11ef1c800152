"""Tokens of one pass fall unevenly on chips: how much the busiest has more, and where that is priced."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.passes.routed import excess_tokens
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario


@pytest.mark.parametrize(("chips", "each"), [(4, 50), (32, 400), (72, 1500)])
def test_the_busiest_of_many_draws_has_at_most_that_much_more(chips, each):
    """The maximal inequality: never below the mean of drawn maxima, and not twice it."""
    rng = np.random.default_rng(1)
    drawn = rng.multinomial(chips * each, np.full(chips, 1 / chips), size=2000)
    measured = drawn.max(axis=1).mean() - each
    found = float(excess_tokens(np.asarray(float(chips * each)), np.asarray(float(chips)), 1.0))
    assert measured < found < 1.75 * measured
    assert float(excess_tokens(np.asarray(100.0), np.asarray(1.0), 1.0)) == 0.0


def asked(load):
    workload = {"input_tokens": 1000, "output_tokens": 500, "expert_load": load}
    return resolve_instance(
        Scenario.model_validate(
            {"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": workload}
        )
    )


def test_an_answer_is_balanced_only_where_that_is_asked():
    even, drawn = asked("uniform"), asked("skewed")
    assert load_profile("calibrated").default.routing_noise == 1.0
    assert even.profile.for_chip("gb200").routing_noise == 0.0
    layout = plain_layout(even, "decode", tp=1, attention_dp=64, batch=64 * 32)
    (stage,) = evaluate(even, layout).priced.replicas[0].stages
    assert stage.imbalance == pytest.approx(1.0)
    noisy = replace(even, profile=drawn.profile)
    (stage,) = evaluate(noisy, layout).priced.replicas[0].stages
    chips, routed = 64, 64 * 32 * 8
    assert stage.imbalance == pytest.approx(1 + np.sqrt(2 * chips * np.log(chips) / routed))
    quiet, loud = (evaluate(one, layout).priced.replicas[0] for one in (even, noisy))
    assert float(loud.service.tpot_s) > float(quiet.service.tpot_s)


def test_more_tokens_in_a_pass_fall_more_evenly():
    instance = asked("skewed")
    found = []
    for batch in (1, 8, 64):
        layout = plain_layout(instance, "decode", tp=1, attention_dp=64, batch=64 * batch)
        found.append(evaluate(instance, layout).priced.replicas[0].stages[0].imbalance)
    assert found[0] > found[1] > found[2]

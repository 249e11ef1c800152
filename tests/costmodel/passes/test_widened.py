"""Weights in a format that a chip lacks: their products run at a share of the arithmetic, nothing else does."""

from dataclasses import replace

import pytest

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import Efficiency, Profile
from costmodel.question.scenario import Scenario
from costmodel.replica.replica import stage_terms
from rackfit.figures.roofline_plot import roofline_points


def prefill(cluster, widened):
    """Prefill by gpt-oss (experts in MXFP4, all else in bf16), by physics but for one number."""
    asked = {
        "model": "gpt-oss-120b",
        "cluster": cluster,
        "profile": "physics",
        "workload": {"input_tokens": 8000, "output_tokens": 10},
    }
    instance = resolve_instance(Scenario.model_validate(asked))
    own = Profile(name="own", description="", default=Efficiency(widened=widened))
    instance = replace(instance, profile=own)
    layout = plain_layout(instance, "prefill", tp=1, attention_dp=1, batch=1)
    return instance, stage_terms(instance, layout, layout.replicas[0])[0]


def parts(cluster, widened):
    instance, stage = prefill(cluster, widened)
    return {p.part: p.seconds for p in roofline_points(instance, stage, "prefill")}


def test_products_with_widened_weights_take_longer_and_no_others():
    """H100 has no FP4: its experts multiply at half of what FP8 units do; B200 has it."""
    whole, half = (parts("hgx-h100", one) for one in (1.0, 0.5))
    assert half["routed_experts"] == pytest.approx(2 * whole["routed_experts"], rel=1e-9)
    assert {k: v for k, v in half.items() if k != "routed_experts"} == pytest.approx(
        {k: v for k, v in whole.items() if k != "routed_experts"}
    )
    assert parts("hgx-b200", 0.5) == parts("hgx-b200", 1.0)


def test_a_roofline_counts_the_same_operations_whatever_share_is_reached():
    flops = []
    for share in (1.0, 0.25):
        instance, stage = prefill("hgx-h100", share)
        (experts,) = [
            p for p in roofline_points(instance, stage, "prefill") if p.part == "routed_experts"
        ]
        flops.append(experts.flops)
    assert flops[0] == pytest.approx(flops[1])

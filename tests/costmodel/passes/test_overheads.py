"""What a pass waits for beside its operations: who pays each cost, and how much of it."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.layout.plain_layout import plain_layout
from costmodel.passes.pass_time import told_share
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import Efficiency, Profile
from costmodel.question.scenario import Scenario
from costmodel.replica.replica import price_replica


def overhead(cluster, model="gpt-oss-120b", *, tp=1, batch=8, **costs):
    """Seconds of overhead in one decode pass of a replica by physics and these costs."""
    asked = {
        "model": model,
        "cluster": cluster,
        "profile": "physics",
        "workload": {"input_tokens": 1000, "output_tokens": 100},
    }
    instance = resolve_instance(Scenario.model_validate(asked))
    own = Profile(name="own", description="", default=Efficiency(**costs))
    instance = replace(instance, profile=own)
    layout = plain_layout(instance, "decode", tp=tp, attention_dp=1, batch=batch)
    (stage,) = price_replica(instance, layout, layout.replicas[0]).stages
    return stage.parts["overhead"]


def test_one_chip_has_nobody_to_tell_of_a_sequence_and_eight_tell_all():
    chips = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 72.0])
    assert told_share(chips, np.ones(6)) == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])
    assert told_share(np.ones(6), chips) == pytest.approx(told_share(chips, np.ones(6)))


@pytest.mark.parametrize(("tp", "share"), [(1, 0.0), (2, 1 / 3), (8, 1.0)])
def test_sequences_cost_by_the_chips_that_hear_of_them(tp, share):
    found = overhead("hgx-h100", tp=tp, batch=64, sequence_overhead_s=1e-5)
    assert found == pytest.approx(64 * 1e-5 * share)


def test_widened_experts_cost_where_the_chip_lacks_their_format():
    """gpt-oss has experts in MXFP4 in each of its 36 layers: H100 must widen them, B200 need not."""
    assert overhead("hgx-h100", widened_moe_overhead_s=1e-5) == pytest.approx(36e-5)
    assert overhead("hgx-b200", widened_moe_overhead_s=1e-5) == 0


def test_unfused_experts_cost_each_layer_that_has_them():
    assert overhead("hgx-b200", unfused_moe_overhead_s=1e-5) == pytest.approx(36e-5)
    assert overhead("hgx-b200", "llama-3.1-8b", unfused_moe_overhead_s=1e-5) == 0


def test_a_branch_pays_for_two_quantised_inputs_or_one_where_one_matrix_has_scales():
    """DeepSeek-R1 in NVFP4: of attention the second version quantises the output projection alone, the first nothing."""
    counts = {}
    for version in ("r1-nvfp4", "r1-0528-nvfp4-v2"):
        asked = {
            "model": f"deepseek-{version}",
            "cluster": "hgx-b200",
            "workload": {"input_tokens": 1000, "output_tokens": 100},
        }
        kinds = resolve_instance(Scenario.model_validate(asked)).operations.kinds
        counts[version] = sum(
            dict(kind.quantised).get("fp4", 0) * len(kind.layers) for kind in kinds
        )
    assert counts["r1-0528-nvfp4-v2"] - counts["r1-nvfp4"] == 61

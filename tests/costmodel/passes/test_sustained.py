"""Products on chips whose power holds the clock below that of the peak: none is priced quicker than they sustain."""

from dataclasses import replace

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.published import unseen_runs
from costmodel.passes.group import achieved_by
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.question.what_if import cluster_of
from topology.chip import Chip, ChipEfficiency, load_chip

CALIBRATED = load_profile("calibrated").model_copy(update={"paces": {}})
PHYSICS = load_profile("physics")
MOST = {"mi300x": (708e12, 1273e12), "mi325x": (843e12, 1519e12)}


@pytest.mark.parametrize("name", MOST)
def test_products_reach_what_the_maker_measured(name):
    """AMD's max-achievable FLOP/s of BF16 and FP8 are below the common share of the peak."""
    chip = load_chip(name)
    own = achieved_by(chip, CALIBRATED.for_chip(name))
    for dtype, most in zip(("bf16", "fp8"), MOST[name], strict=True):
        assert own.flops_per_s(dtype) == pytest.approx(most, rel=2e-3)
        share = CALIBRATED.for_chip(name).arithmetic(dtype)
        assert own.flops_per_s(dtype) < share * chip.flops_per_s[dtype]
    # what nobody measured keeps the common share
    assert own.flops_per_s("int8") == CALIBRATED.default.arithmetic("int8") * 2.6149e15


def test_the_roofline_and_other_chips_keep_the_peak():
    chip = load_chip("mi300x")
    assert achieved_by(chip, PHYSICS.for_chip("mi300x")).flops_per_s("bf16") == 1.3074e15
    h100, own = load_chip("h100"), CALIBRATED.for_chip("h100")
    assert own.on(h100) is own
    assert achieved_by(h100, own).flops_per_s("bf16") == h100.flops_per_s["bf16"] * own.arithmetic(
        "bf16"
    )


def unmeasured(chip: Chip) -> Chip:
    return chip.model_copy(update={"efficiency": ChipEfficiency()})


def test_prefill_is_slower_by_it_and_measured_runs_are_read_alike():
    """The judge, and predictions of measured runs, with the shares that the chip allows written into the profile."""
    chip = load_chip("mi300x")
    asked = {
        "model": "llama-3.1-70b",
        "cluster": "mi300x",
        "workload": "chat",
        "weight_dtype": "fp8",
    }
    found = resolve_instance(Scenario.model_validate(asked))
    layout = plain_layout(found, "prefill", tp=8, attention_dp=1, batch=1)
    free = CALIBRATED.default
    slow = CALIBRATED.model_copy(update={"chips": {"mi300x": free.on(chip)}, "engines": {}})
    rates = [
        evaluate(replace(found, profile=profile), layout).priced.prefill_per_s
        for profile in (CALIBRATED.common, slow)
    ]
    assert rates[0] == rates[1]
    quick = replace(
        found, cluster=cluster_of(found.scenario, unmeasured), profile=CALIBRATED.common
    )
    assert evaluate(quick, layout).priced.prefill_per_s > rates[0]
    written = {one.row.id: one.predicted for one in unseen_runs(slow) if one.chip == "mi300x"}
    common = {
        one.row.id: one.predicted for one in unseen_runs(CALIBRATED.common) if one.chip == "mi300x"
    }
    assert written == pytest.approx(common, rel=1e-12)
    assert written

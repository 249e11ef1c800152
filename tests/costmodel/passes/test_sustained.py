"""Products on chips whose power holds the clock below that of the peak: none is priced quicker than they sustain."""

from dataclasses import replace
from statistics import median

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
def test_products_reach_as_much_of_the_quickest_as_on_fitted_chips(name):
    """AMD's max-achievable FLOP/s of BF16 and FP8 stand beside the quickest products on the chips that were fitted."""
    chip, common = load_chip(name), CALIBRATED.for_chip(name)
    own = achieved_by(chip, common)
    for dtype, most in zip(("bf16", "fp8"), MOST[name], strict=True):
        reached = [load_chip(one).efficiency.sustained[dtype] for one in CALIBRATED.chips]
        assert common.best[dtype] == pytest.approx(median(reached))
        share = common.arithmetic(dtype) / median(reached)
        assert own.flops_per_s(dtype) == pytest.approx(most * share, rel=2e-3)
        assert own.flops_per_s(dtype) < 0.8 * common.arithmetic(dtype) * chip.flops_per_s[dtype]
    # what nobody measured keeps the common share
    assert own.flops_per_s("int8") == common.arithmetic("int8") * chip.flops_per_s["int8"]


def test_fp4_of_blackwell_ultra_is_far_from_its_peak():
    """Half as much again as that of Blackwell by the data sheets, next to nothing more by measured products."""
    rates = {
        name: achieved_by(load_chip(name), CALIBRATED.for_chip(name)).flops_per_s("fp4")
        for name in ("b200", "b300", "gb200", "gb300")
    }
    assert rates["b200"] < rates["b300"] < 1.2 * rates["b200"]
    assert 0.99 * rates["gb200"] < rates["gb300"] < 1.2 * rates["gb200"]


def test_no_product_is_quicker_than_the_quickest():
    """Where nothing is known of fitted chips, that alone counts; a chip that is quicker than they are gains nothing."""
    chip = load_chip("mi300x")
    free = CALIBRATED.default.model_copy(update={"best": {}})
    assert free.on(chip).arithmetic("fp8") == chip.efficiency.sustained["fp8"]
    quick = ChipEfficiency(sustained={"bf16": 1.0})
    eager = chip.model_copy(update={"efficiency": quick})
    assert CALIBRATED.default.on(eager).compute == CALIBRATED.default.compute
    # once it is said what holds on a chip, it holds
    assert CALIBRATED.default.on(chip).on(chip) == CALIBRATED.default.on(chip)


def test_the_roofline_and_fitted_chips_keep_their_shares():
    chip = load_chip("mi300x")
    assert achieved_by(chip, PHYSICS.for_chip("mi300x")).flops_per_s("bf16") == 1.3074e15
    for name, own in CALIBRATED.chips.items():
        fitted = load_chip(name)
        assert fitted.efficiency.sustained
        assert own.on(fitted).compute == own.compute


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

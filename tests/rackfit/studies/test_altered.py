"""Instances with one thing changed, and the balanced pass that prices wide groups."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.models.summary import summarise
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.studies.altered import with_chips, with_experts, with_ratio
from rackfit.studies.systems.balanced import balanced_decode, largest_balanced_decode
from rackfit.studies.systems.steps import SYSTEMS, step_of
from topology import load_chip
from topology.errors import InstanceError, NoFeasibleLayout


def instance(**more: Any) -> Instance:
    base = {"model": "deepseek-v3", "cluster": "nvl-64@2", "workload": "chat"}
    return resolve_instance(Scenario.model_validate(base | more))


def test_a_balanced_pass_is_the_evaluators_where_load_is_even() -> None:
    even = {"input_tokens": 4000, "output_tokens": 1000, "expert_load": "uniform"}
    asked = instance(workload=even)
    layout = plain_layout(asked, "decode", tp=1, attention_dp=64, batch=64 * 32)
    (price,) = evaluate(asked, layout).priced.replicas
    rate = asked.cluster.rate_for("dispatch", 0, 64, 1, top_k=8)
    found = balanced_decode(asked, 64, 32, rate)
    assert found.pass_s == pytest.approx(float(price.service.tpot_s), rel=1e-6)
    for part in ("dispatch", "combine", "routed_experts", "attention_context"):
        assert found.parts[part] == pytest.approx(price.stages[0].parts[part], rel=1e-6)


def test_the_largest_batch_meets_the_target_and_the_next_does_not() -> None:
    asked = instance(slo={"tpot": 0.02})
    rate = asked.cluster.rate_for("dispatch", 0, 64, 1, top_k=8)
    found = largest_balanced_decode(asked, 64, rate)
    assert found.pass_s <= 0.02 < balanced_decode(asked, 64, found.sequences + 1, rate).pass_s
    with pytest.raises(NoFeasibleLayout, match=r"a TPOT of 0\.1 ms allows not one"):
        largest_balanced_decode(instance(slo={"tpot": 0.0001}), 64, rate)
    with pytest.raises(NoFeasibleLayout, match="HBM allows not one"):
        largest_balanced_decode(asked, 2, rate)


def test_a_ratio_sets_the_nics_and_nothing_else() -> None:
    before, after = instance(), with_ratio(instance(), 8)
    old, new = (i.cluster.usable[0].chip for i in (before, after))
    assert new.nic_bytes_per_s == pytest.approx(new.scale_up_bytes_per_s / 8)
    assert new.model_copy(update={"nic_bytes_per_s": old.nic_bytes_per_s}) == old
    assert after.cluster.network is not None
    assert after.cluster.network.nic_bytes_per_s(1, 3) == pytest.approx(new.nic_bytes_per_s)
    assert after.digest != before.digest
    with pytest.raises(InstanceError, match="must be positive"):
        with_ratio(before, 0)


def test_failed_chips_stay_failed() -> None:
    asked = instance(failed="r1g3")
    changed = with_chips(asked, lambda chip: chip.model_copy(update={"hbm_bytes": 1e12}))
    assert len(changed.cluster.usable) == 127
    assert {placed.chip.hbm_bytes for placed in changed.cluster.chips} == {1e12}


def test_more_experts_are_more_bytes_at_the_same_work() -> None:
    small, large = with_experts(instance(), 128, 8), with_experts(instance(), 512, 8)
    one, many = summarise(small.model), summarise(large.model)
    assert many.total_params > 3.5 * one.total_params
    assert many.active_params == pytest.approx(one.active_params, rel=0.01)  # the router grows
    assert large.expert_loads.shape == (58, 512)
    assert summarise(with_experts(instance(), 256, 8).model) == summarise(instance().model)
    with pytest.raises(InstanceError, match="9 experts per token of 8"):
        with_experts(instance(), 8, 9)
    with pytest.raises(InstanceError, match="no routed experts"):
        with_experts(instance(model="llama-3.1-8b"), 8, 1)


def test_steps_lead_from_each_system_to_the_next() -> None:
    for name in SYSTEMS:
        assert len(step_of(name).build().usable) == 72
    assert step_of("gb200-nvl72").chip == load_chip("gb200")
    first = step_of("gb200-nvl72 + network").chip
    rubin = load_chip("rubin")
    assert first.scale_up_bytes_per_s == rubin.scale_up_bytes_per_s
    assert first.hbm_bytes_per_s == load_chip("gb200").hbm_bytes_per_s
    last = step_of("gb200-nvl72 + network + bandwidth + capacity").chip
    assert (last.hbm_bytes, last.hbm_bytes_per_s) == (rubin.hbm_bytes, rubin.hbm_bytes_per_s)
    assert last.flops_per_s == load_chip("gb200").flops_per_s
    with pytest.raises(InstanceError, match="unknown 'abacus'"):
        step_of("abacus")

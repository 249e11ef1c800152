"""The table of terms prices a row as ``evaluate`` prices its instance and layout, and never below physics."""

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.measured.predict import decode_batches, owners, predict_under, profile_pricing
from costmodel.measured.runs import run_table, runs_of
from costmodel.question.instance import Instance
from costmodel.question.profile import load_profile
from tests.measured.workers import layout_of


def under(instance, profile):
    return Instance(
        instance.scenario, instance.model, instance.cluster, instance.workload, profile,
        instance.expert_loads, instance.expert_loads_provenance,
    )  # fmt: skip


def as_run(profile, *, unfused):
    """The profile with or without what unfused expert layers take, on every chip."""
    most = max(one.unfused_moe_overhead_s for one in (profile.default, *profile.chips.values()))
    update = {"unfused_moe_overhead_s": most if unfused else 0.0}
    chips = {chip: one.model_copy(update=update) for chip, one in profile.chips.items()}
    return profile.model_copy(
        update={"chips": chips, "default": profile.default.model_copy(update=update)}
    )


@pytest.mark.parametrize("name", ["physics", "calibrated"])
def test_terms_equal_evaluate(sample, name):
    """At whole batches that divide over the ranks; every chip type, engine and mode of the sample.

    An instance names an engine and none of its releases and kernels, so that rows are priced without what a release
    adds, and whether expert layers are unfused is taken from the row.
    """
    profile = load_profile(name).model_copy(update={"launches": {}})
    batches = np.array(
        [r.row.decode.attention_dp * max(1, round(r.row.concurrency / r.row.decode.workers / r.row.decode.attention_dp)) for r in sample],
        dtype=float,
    )  # fmt: skip
    table = run_table(sample, batches)
    seconds = table.terms.seconds(profile_pricing(sample, profile)(owners(table)))
    tpot = table.tpot_s(seconds)
    for i, run in enumerate(sample):
        own = profile.of_engine(run.row.engine).routed_as(run.instance.workload.expert_load)
        unfused = run.row.decode.settings.unfused_experts
        assert unfused is None or run.row.engine == "trtllm"
        instance = under(run.instance, as_run(own, unfused=bool(unfused)))
        found = evaluate(instance, layout_of(run.row, instance, int(batches[i])))
        assert found.tpot_s == pytest.approx(tpot[i], rel=1e-6), run.row.id
    assert {run.row.mode for run in sample} == {"aggregated", "disaggregated"}


def test_no_prediction_is_below_the_physics_bound(sample):
    """At the same batch; every efficiency is at most 1 and every cost at least 0."""
    batches = decode_batches(sample, profile_pricing(sample, load_profile("calibrated")))
    table = run_table(sample, batches)
    times = {}
    for name in ("physics", "calibrated"):
        pricing = profile_pricing(sample, load_profile(name))
        times[name] = table.tpot_s(table.terms.seconds(pricing(owners(table))))
    assert np.all(times["calibrated"] >= times["physics"])


@pytest.mark.slow
def test_no_prediction_of_any_row_is_below_its_bound(rows):
    """At the batches that the calibrated profile gives."""
    runs, _ = runs_of(rows)
    pricing = profile_pricing(runs, load_profile("calibrated"))
    table = run_table(runs, decode_batches(runs, pricing))
    physics = profile_pricing(runs, load_profile("physics"))
    found, bound = (table.tpot_s(table.terms.seconds(p(owners(table)))) for p in (pricing, physics))
    assert len(runs) > 1700
    assert np.all(found >= bound)


def test_time_grows_with_batch_and_time_per_sequence_falls(sample):
    profile = load_profile("calibrated")
    aggregated = [run for run in sample if run.row.prefill is None]
    pricing = profile_pricing(aggregated, profile)
    previous = None
    for batch in (1.0, 4.0, 16.0, 64.0):
        batches = np.array([batch * run.row.decode.attention_dp for run in aggregated])
        table = run_table(aggregated, batches)
        decode = table.terms.seconds(pricing(owners(table)))[table.decode]
        if previous is not None:
            assert np.all(decode >= previous * (1 - 1e-12))
            assert np.all(decode <= 4 * previous * (1 + 1e-12))
        previous = decode


def test_shipped_profile_predicts_the_sample(sample):
    found = predict_under(sample, load_profile("calibrated"))
    measured = np.array([run.row.tpot_s for run in sample])
    assert np.median(np.abs(found.tpot_s / measured - 1)) < 0.15

"""Runs on chips that no fit saw: what is read of them, how far predictions are off, and that intervals hold them."""

import csv
from dataclasses import replace
from math import log
from statistics import mean, median

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.published import UnseenRun, interval_without, unseen_runs
from costmodel.measured.rows import Group
from costmodel.measured.runs import runs_of
from costmodel.measured.systems import slice_for
from costmodel.passes.pass_time import launched_of, ramp_share
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.replica.replica import price_replica
from topology import load_chip
from topology.catalogue import data_dir
from topology.chip import chip_names

PROFILE = load_profile("calibrated")


@pytest.fixture(scope="module")
def found():
    return unseen_runs(PROFILE)


def errors(found: list[UnseenRun], chip: str) -> list[float]:
    return [abs(one.error) for one in found if one.chip == chip]


def test_time_per_token_of_chips_that_were_left_out(found):
    """MI355X under ATOM and TPU v6e: within 20 % on average."""
    assert not any(one.rate for one in found if one.chip in ("mi355x", "tpu-v6e"))
    assert len(errors(found, "mi355x")) == 12
    assert len(errors(found, "tpu-v6e")) == 2
    assert mean(errors(found, "mi355x")) <= 0.2
    assert mean(errors(found, "tpu-v6e")) <= 0.2


def test_none_of_these_chips_was_fitted(found):
    assert {PROFILE.for_chip(one.chip).provenance for one in found} == {"assumed"}
    assert set(PROFILE.held_out.unlike) == {one.chip for one in found}


def test_intervals_hold_the_runs_of_these_chips(found):
    """Each chip by what the others were off: 85 to 95 % of the runs."""
    inside = 0
    for one in found:
        low, high = interval_without(PROFILE, one.chip)
        inside += low <= one.slower <= high
    assert 0.85 <= inside / len(found) <= 0.95


def test_rates_are_those_of_the_file(found):
    """What stands in for TPOT where a rate was published is the users' share of it."""
    with (data_dir("measured") / "chips.csv").open() as stream:
        rows = {row["id"]: row for row in csv.DictReader(stream)}
    rated = [one for one in found if one.rate]
    assert {one.row.id for one in rated} == {k for k, v in rows.items() if v["output_tokens_per_s"]}
    assert len(rated) == 14
    for one in rated:
        row = rows[one.row.id]
        assert one.measured == float(row["output_tokens_per_s"])
        assert float(row["silicon_tpot_ms"]) == pytest.approx(
            1e3 * float(row["concurrency"]) / one.measured, rel=1e-6
        )


def test_answers_on_these_chips_are_wider():
    """A little where runs were published, much where none was; both say so."""
    widths, said = {}, {}
    for cluster in ("hgx-b200", "mi355x", "gaudi3"):
        asked = {"model": "llama-3.1-8b", "cluster": cluster, "workload": "chat"}
        instance = resolve_instance(Scenario.model_validate(asked))
        found = evaluated(instance)
        low, high = found.intervals.tpot_s
        widths[cluster] = high / low
        wide = "that no fit saw" in found.provenance["intervals"]
        assert wide == (cluster != "hgx-b200")
        said[cluster] = [one for one in found.assumed if one.startswith("efficiency")]
    assert widths["gaudi3"] > 1.2 * widths["mi355x"] > 1.2 * widths["hgx-b200"]
    assert said["hgx-b200"] == []
    assert said["mi355x"] == ["efficiency (published runs alone) of mi355x"]
    assert said["gaudi3"] == ["efficiency (no run on it was measured) of gaudi3"]


def test_answers_have_the_pace_of_published_runs(found):
    """Nearly what these runs were off; a chip on which another's kernels run has that one's."""
    off = {
        chip: median(one.slower for one in found if one.chip == chip)
        for chip in PROFILE.held_out.unlike
    }
    for chip, ratio in off.items():
        pace = PROFILE.paces[chip]
        assert 0.8 < log(pace) / log(ratio) < 1.0
        for profile in (PROFILE, PROFILE.of_engine("vllm"), PROFILE.common):
            own, common = profile.for_chip(chip), profile.default
            assert own is profile.for_chip(chip)
            assert own.hbm == pytest.approx(common.hbm / pace)
            assert own.layer_overhead_s == pytest.approx(common.layer_overhead_s * pace)
            assert own.stream("activations") == pytest.approx(common.stream("activations") / pace)
    assert set(PROFILE.paces) - set(off) == {"mi325x"}
    assert PROFILE.paces["mi325x"] == PROFILE.paces["mi300x"]
    # one pass on such a chip takes so many times as long as without its pace
    asked = {"model": "llama-3.1-8b", "cluster": "tpu-v7", "workload": "chat"}
    paced = resolve_instance(Scenario.model_validate(asked))
    bare = replace(paced, profile=paced.profile.model_copy(update={"paces": {}}))
    slow, quick = (evaluated(one).tpot_s for one in (paced, bare))
    assert slow == pytest.approx(PROFILE.paces["tpu-v7"] * quick, rel=1e-3)


def evaluated(instance):
    return evaluate(instance, plain_layout(instance, "mixed", tp=1, attention_dp=1, batch=16))


def test_compiled_programs_launch_nothing():
    compiled = {name for name in chip_names() if load_chip(name).compiled}
    assert compiled == {name for name in chip_names() if name.startswith(("tpu-", "trn"))}
    asked = {"model": "llama-3.1-8b", "cluster": "tpu-v6e-2x4", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    (kind,) = instance.operations.kinds
    assert launched_of(kind, load_chip("tpu-v6e")) == 0 < launched_of(kind, load_chip("h100"))
    assert ramp_share(load_chip("tpu-v6e"), 8.0, 2.0**20) == 0
    assert ramp_share(load_chip("h100"), 8.0, 2.0**20) == pytest.approx(0.5)
    layout = plain_layout(instance, "decode", tp=8, attention_dp=1, batch=8)
    (stage,) = price_replica(instance, layout, layout.replicas[0]).stages
    own = instance.profile.for_chip("tpu-v6e")
    assert stage.parts["overhead"] == pytest.approx(
        32 * own.layer_overhead_s + 8 * own.sequence_overhead_s
    )


@pytest.mark.parametrize(
    ("cluster", "chips", "slice_"),
    [("tpu-v6e", 8, "tpu-v6e-2x4"), ("tpu-v6e", 5, "tpu-v6e-2x4"), ("tpu-v5p", 1, "tpu-v5p-2x2x1"),
     ("tpu-v6e", 1000, "tpu-v6e"), ("hgx-h100", 8, "hgx-h100"), ("nvl", 8, "nvl")],
)  # fmt: skip
def test_a_worker_stands_on_the_smallest_slice_that_holds_it(cluster, chips, slice_):
    assert slice_for(cluster, chips) == slice_


def test_an_engine_that_was_never_fitted_has_the_constants_of_one_like_it(found):
    (run,) = runs_of([next(one.row for one in found if one.row.engine == "atom")])[0]
    assert run.priced_as == "trtllm"
    assert run.row.decode == Group(8, 1, 1, 1, 8, run.row.decode.settings)
    assert run.instance.model.kv_dtype == "fp8"

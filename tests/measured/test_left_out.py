"""``validate --left-out``: a row's prediction does not rest on rows of its own model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.measured.fitting.crossvalidation import fold_of, predict_left_out
from costmodel.measured.fitting.fit import problem_of, start_of
from costmodel.measured.fitting.launches import architecture_of, fit_launches
from costmodel.measured.predict import launched, predict
from costmodel.measured.runs import runs_of
from rackfit.cli.commands.validate import LeftOutKey, validate
from topology.errors import InstanceError

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def problem(rows):
    some = [row for row in rows if row.system in ("h100_sxm", "h200_sxm")]
    runs = runs_of(some[::25])[0]
    return problem_of(runs, start_of(runs).pricing(runs))


@pytest.mark.parametrize("key", ["model", "system"])
def test_predictions_of_a_fold_do_not_see_its_measurements(problem, key):
    labels = [fold_of(run, key) for run in problem.runs]
    slow = np.array([label == max(labels) for label in labels])
    assert slow.any()
    assert not slow.all()
    runs = [
        replace(run, row=replace(run.row, tpot_s=3 * run.row.tpot_s, ttft_s=None)) if out else run
        for run, out in zip(problem.runs, slow, strict=True)
    ]
    changed = replace(problem, runs=runs, measured_s=np.where(slow, 3, 1) * problem.measured_s)
    before = predict_left_out(problem, key, problem.runs)
    after = predict_left_out(changed, key, problem.runs)
    assert after.tpot_s[slow] == pytest.approx(before.tpot_s[slow], rel=1e-9)
    assert after.ttft_s[slow] == pytest.approx(before.ttft_s[slow], rel=1e-9)
    # the other folds do see them
    assert np.all(after.tpot_s[~slow] != before.tpot_s[~slow])


@pytest.mark.parametrize(
    "more", [{"profile": "physics"}, {"load": Path("tests.json"), "measured": None}]
)
def test_left_out_is_refused_beside_what_it_replaces(more):
    asked = {"measured": Path("runs.csv"), "left_out": LeftOutKey.model} | more
    with pytest.raises(InstanceError, match="--left-out"):
        validate(**asked)


LAUNCH_S = 150e-6


@pytest.fixture(scope="module")
def held_by_the_host(rows):
    """Runs of two models under one release, as long as a fit says or as their host holds them back; and that fit."""
    some = [row for row in rows if row.engine == "trtllm" and row.system == "h100_sxm"]
    some = [row for row in some if row.prefill is None and row.concurrency > 1]
    dense = [row for row in some if row.model.endswith(("Qwen3-32B", "8B-Instruct"))][::11]
    runs = runs_of([replace(row, release="trtllm new") for row in dense])[0]
    fitted = start_of(runs)
    problem = problem_of(runs, fitted.pricing(runs))
    free = predict(runs, fitted.pricing(runs), {}).tpot_s
    slow = launched(fitted.pricing(runs), runs, {"trtllm new": LAUNCH_S})
    return problem, fitted, free, predict(runs, slow, {}).tpot_s


def test_a_host_that_holds_all_models_back_is_found(held_by_the_host):
    problem, fitted, free, held = held_by_the_host
    assert np.median(held / free) > 2
    found = fit_launches(replace(problem, measured_s=held), fitted)
    assert found == {"trtllm new": pytest.approx(LAUNCH_S, rel=0.05)}


def test_a_release_that_is_slow_with_one_model_only_is_not_held_by_its_host(held_by_the_host):
    problem, fitted, free, held = held_by_the_host
    models = np.array([architecture_of(run) for run in problem.runs])
    first = models == sorted(set(models))[0]
    apart = replace(problem, measured_s=np.where(first, held, free))
    assert fit_launches(apart, fitted) == {}
    # nor is one whose other models were not run
    assert fit_launches(replace(problem, measured_s=held), fitted, first) == {}


def test_what_few_rows_of_each_model_gain_is_no_host(held_by_the_host):
    """A floor that only the quickest rows of each model meet: both gain, not by what a parameter costs."""
    problem, fitted, free, _ = held_by_the_host
    models = np.array([architecture_of(run) for run in problem.runs])
    floor = launched(fitted.pricing(problem.runs), problem.runs, {"trtllm new": LAUNCH_S / 8})
    held = predict(problem.runs, floor, {}).tpot_s
    for name in set(models):
        assert 1 <= (held > 1.01 * free)[models == name].sum() <= 3
    assert fit_launches(replace(problem, measured_s=held), fitted) == {}


def test_one_user_is_served_from_a_graph(held_by_the_host):
    problem, fitted, _, _ = held_by_the_host
    run = problem.runs[0]
    alone = replace(run, row=replace(run.row, concurrency=1.0))
    for one, slower in ((run, True), (alone, False)):
        pricing = fitted.pricing([one])
        held = launched(pricing, [one], {"trtllm new": LAUNCH_S})
        free, other = (predict([one], p, {}).tpot_s[0] for p in (pricing, held))
        assert (other > 1.5 * free) == slower, (free, other)


def test_a_host_is_known_from_the_other_models(rows):
    """Half of the runs are of a release that holds them back: those of a model that the fit never saw are predicted so."""
    some = [row for row in rows if row.engine == "trtllm" and row.system == "h100_sxm"]
    some = [row for row in some if row.prefill is None and row.concurrency > 1][::9]
    late = np.arange(len(some)) % 2 == 1
    named = [replace(r, release="trtllm new" * bool(x)) for r, x in zip(some, late, strict=True)]
    runs = runs_of(named)[0]
    assert len(runs) == len(named)
    pricing = start_of(runs).pricing(runs)
    measured = predict(runs, launched(pricing, runs, {"trtllm new": LAUNCH_S}), {}).tpot_s
    runs = [
        replace(run, row=replace(run.row, tpot_s=float(tpot), ttft_s=None))
        for run, tpot in zip(runs, measured, strict=True)
    ]
    plain = [replace(run, row=replace(run.row, release="")) for run in runs]
    problem = problem_of(runs, pricing)
    errors = [
        np.median(np.abs(np.log(predict_left_out(problem, "model", known).tpot_s / measured))[late])
        for known in (runs, plain)
    ]
    assert errors[0] < 0.2, errors
    assert errors[1] > 0.5, errors

"""``validate --left-out``: a row's prediction does not rest on rows of its own model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.measured.fitting.crossvalidation import fold_of, predict_left_out
from costmodel.measured.fitting.fit import problem_of, start_of
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

"""What no factor per deployment could better, beside which calibrations by a few runs are read."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration.left_out import best_factors
from costmodel.measured.predict import predict_under
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile

PROFILE = load_profile("calibrated")


@pytest.fixture(scope="module")
def pool(rows):
    """Two models on one chip under one engine, with the times that the profile gives, apart by known factors."""
    some = [r for r in rows if r.system == "h100_sxm" and r.engine == "vllm" and r.prefill is None]
    runs = runs_of(some[::12])[0]
    exact = predict_under(runs, PROFILE).tpot_s
    return [
        replace(run, row=replace(run.row, tpot_s=float(time)))
        for run, time in zip(runs, exact, strict=True)
    ]


def test_the_factor_is_that_with_the_least_mean_error(pool):
    off = np.exp(0.3 * np.random.default_rng(2).standard_normal(len(pool)))
    runs = [
        replace(run, row=replace(run.row, tpot_s=run.row.tpot_s * float(by)))
        for run, by in zip(pool, off, strict=True)
    ]
    found = best_factors(runs, set(range(len(runs))), PROFILE)
    names = np.array([run.instance.model.name for run in runs])
    for name in set(names.tolist()):
        here = names == name
        mine = set(found[here].tolist())
        assert len(mine) == 1
        error = np.abs(mine.pop() / off[here] - 1).mean()
        tried = min(np.abs(f / off[here] - 1).mean() for f in np.linspace(0.3, 3.0, 2701))
        assert error <= tried + 1e-6


def test_deployments_without_a_chosen_run_keep_their_predictions(pool):
    names = [run.instance.model.name for run in pool]
    slower = [replace(run, row=replace(run.row, tpot_s=2 * run.row.tpot_s)) for run in pool]
    found = best_factors(slower, {0}, PROFILE)
    assert len(set(names)) > 1
    for name, factor in zip(names, found, strict=True):
        assert factor == pytest.approx(2.0 if name == names[0] else 1.0)

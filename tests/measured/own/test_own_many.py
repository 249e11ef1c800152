"""What makes a calibration by many runs quick: equal deployments are priced once, parts start near the whole's answer."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.fitting.fit import LogErrors, problem_of
from costmodel.measured.own import calibration
from costmodel.measured.own.calibration import pricing_at, update_cell
from costmodel.measured.own.prior import prior_of, shipped_known
from costmodel.measured.predict import predict
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile

pytest.importorskip("scipy")

PROFILE, KNOWN = load_profile("calibrated"), shipped_known()


@pytest.fixture(scope="module")
def made(rows):
    """Runs on one chip under one engine, with the times that parameters off the shipped ones give, and scatter."""
    some = [
        row
        for row in rows
        if row.system == "h200_sxm" and row.engine == "sglang" and row.prefill is None
    ]
    runs = runs_of(some[:36:3])[0]
    hidden = prior_of(KNOWN, PROFILE, "h200", "sglang").mean
    hidden[:-1] += 0.3
    tpot = predict(runs, pricing_at(hidden), PROFILE.first_token).tpot_s
    tpot = tpot * np.exp(0.05 * np.random.default_rng(0).standard_normal(len(runs)))
    return [
        replace(run, row=replace(run.row, tpot_s=float(one), ttft_s=None))
        for run, one in zip(runs, tpot, strict=True)
    ]


def test_runs_of_one_deployment_are_priced_once_and_each_counts(made, monkeypatch):
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    again = [
        replace(run, row=replace(run.row, id=f"{run.row.id} {i}", tpot_s=run.row.tpot_s * slower))
        for i, slower in enumerate((1.0, 1.1, 1.2))
        for run in made[:6]
    ]
    priced: list[int] = []

    def counted(some, pricing):
        priced.append(len(some))
        return problem_of(some, pricing)

    monkeypatch.setattr(calibration, "problem_of", counted)
    together = update_cell(prior, again, PROFILE, KNOWN).after
    assert priced == [6]
    monkeypatch.setattr(calibration, "_distinct", lambda runs: (runs, np.arange(len(runs))))
    plain = update_cell(prior, again, PROFILE, KNOWN).after
    assert together.mean == pytest.approx(plain.mean, abs=1e-6)
    assert together.row_sd == pytest.approx(plain.row_sd, rel=1e-6)


def test_a_start_near_the_answer_leads_to_the_same_in_fewer_steps(made, monkeypatch):
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    steps: list[int] = []
    slopes = LogErrors.slopes
    monkeypatch.setattr(LogErrors, "slopes", lambda *a: steps.append(1) or slopes(*a))
    far = update_cell(prior, made[1:], PROFILE, KNOWN).after
    cold = len(steps)
    near = update_cell(prior, made[1:], PROFILE, KNOWN, start=far).after
    assert 2 * (len(steps) - cold) < cold
    # the scatter has settled within 3 %, and parameters follow it
    assert (np.abs(near.mean - far.mean) <= 0.05 * far.sd).all()

"""Parameter sets from resampled measurements: what they rest on, and what is shipped."""

import csv
import gzip
import io

import numpy as np
import pytest

from costmodel.measured.fitting import resampling
from costmodel.measured.fitting.crossvalidation import fold_of
from costmodel.measured.fitting.fit import fit, predicted_tpot_s, problem_of, start_of
from costmodel.question.profile import load_profile
from costmodel.worlds.ensemble import COLUMNS, values_of

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def worlds(sample):
    return resampling.worlds_from(sample, 5)


def test_rows_of_a_model_a_system_and_an_engine_count_alike(sample):
    first, second = resampling.resampled(sample, 2)
    assert first.sum() == pytest.approx(len(sample))
    assert not np.allclose(first, second)
    labels = [tuple(fold_of(run, key) for key in resampling.FOLDS) for run in sample]
    for label in set(labels):
        here = {round(float(w), 9) for w, one in zip(first, labels, strict=True) if one == label}
        assert len(here) == 1


def test_a_row_counted_twice_is_a_row_that_is_there_twice(sample):
    runs = sample[::3]
    once = problem_of(runs, start_of(runs).pricing(runs))
    both = [*runs, *runs[:6]]
    twice = problem_of(both, start_of(both).pricing(both))
    weights = np.array([2.0] * 6 + [1.0] * (len(runs) - 6))
    counted, there, plain = fit(once, weights=weights), fit(twice), fit(once)
    errors = [np.log(predicted_tpot_s(once, one)) for one in (counted, there, plain)]
    np.testing.assert_allclose(errors[0], errors[1], atol=2e-3)
    assert np.abs(errors[0] - errors[2]).max() > 1e-2


def test_a_fit_from_another_is_the_same_fit(sample):
    problem = problem_of(sample, start_of(sample).pricing(sample))
    kept = np.array([fold_of(run, "system") != "h200" for run in sample])
    near = fit(problem)
    alone = fit(problem, kept)
    again = fit(problem, kept, near=near)
    assert again.structure == alone.structure
    rows = [run for run, good in zip(sample, kept, strict=True) if good]
    for name, values in alone.values(rows).items():
        np.testing.assert_allclose(again.values(rows)[name], values, rtol=0.05, err_msg=name)


def test_factors_are_as_wide_as_what_parameters_leave_unexplained(worlds):
    assert 0.0 < worlds.share <= 1.0
    assert len(set(worlds.factors)) == 5
    assert min(worlds.factors) < 1.0 < max(worlds.factors)


def test_a_slowed_profile_takes_longer_and_no_rate_exceeds_its_peak():
    profile = load_profile("calibrated")
    own = profile.for_chip("h100")
    slow, quick = (resampling.slowed(profile, factor).for_chip("h100") for factor in (1.25, 0.5))
    assert slow.hbm == pytest.approx(own.hbm / 1.25, rel=1e-3)
    assert slow.kernel_overhead_s == pytest.approx(own.kernel_overhead_s * 1.25, rel=1e-3)
    assert slow.grouped == own.grouped
    assert quick.hbm == 1.0
    assert quick.kernel_overhead_s == pytest.approx(own.kernel_overhead_s / 2, rel=1e-3)


def test_the_file_holds_every_constant_of_every_world(worlds):
    text = gzip.decompress(resampling.worlds_csv(worlds)).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    assert len({row["world"] for row in rows}) == 5
    profile = worlds.profiles[3]
    for row in rows:
        if row["world"] == "3" and not row["engine"]:
            found = tuple(float(row[name]) for name in COLUMNS[3:])
            assert found == values_of(profile.for_chip(row["chip"]))


def test_coverage_is_of_runs_that_the_worlds_never_saw(sample, monkeypatch):
    seen = []
    own = resampling.worlds_from

    def spy(runs, number):
        seen.append({fold_of(run, "system") for run in runs})
        return own(runs, number)

    monkeypatch.setattr(resampling, "worlds_from", spy)
    first = next(resampling.coverage(sample, "system", 0.8, 5))
    assert first.fold not in seen[0]
    assert 0 <= first.covered <= first.n == sum(fold_of(r, "system") == first.fold for r in sample)
    assert first.excess > 0

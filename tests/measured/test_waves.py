"""Releases whose requests of one length do not come in waves are found by what their rows measured."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.fitting.fit import Problem, fit, predicted_tpot_s, problem_of, start_of
from costmodel.measured.fitting.waves import fit_of_waves, scattered_releases, without_waves
from costmodel.measured.predict import scattered, wave_shares, waved
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile

pytest.importorskip("scipy")


@pytest.fixture(scope="module")
def problem(rows):
    """Workers of an engine that prefills first, of two releases and more."""
    some = [
        row for row in rows if row.engine == "sglang" and row.prefill is None and row.fixed_lengths
    ]
    runs = [replace(run, row=replace(run.row, scattered=False)) for run in runs_of(some[::2])[0]]
    return problem_of(runs, start_of(runs).pricing(runs))


def releases_of(problem, least):
    names = np.array([run.row.release for run in problem.runs])
    return [str(one) for one in np.unique(names) if (names == one).sum() >= least and one]


def test_a_release_that_was_made_without_waves_is_found_and_no_other(problem):
    one = releases_of(problem, 15)[0]
    truth = start_of(problem.runs)
    made = predicted_tpot_s(without_waves(problem, (one,)), truth)
    asked = Problem(problem.runs, problem.table, problem.batches, made)
    assert scattered_releases(asked, truth) == (one,)
    seen, fitted, found = fit_of_waves(asked)
    assert found == (one,)
    assert {r.row.release for r in seen.runs if r.row.scattered} == {one}
    again = predicted_tpot_s(seen, fitted)
    assert np.median(np.abs(again / made - 1)) < 0.03


def test_times_made_of_waves_speak_for_them(problem):
    made = predicted_tpot_s(problem, start_of(problem.runs))
    asked = Problem(problem.runs, problem.table, problem.batches, made)
    assert scattered_releases(asked, start_of(problem.runs)) == ()
    assert fit_of_waves(asked)[2] == ()


def test_rows_that_are_not_chosen_have_no_say(problem):
    one = releases_of(problem, 15)[0]
    truth = start_of(problem.runs)
    made = predicted_tpot_s(without_waves(problem, (one,)), truth)
    asked = Problem(problem.runs, problem.table, problem.batches, made)
    others = np.array([run.row.release != one for run in problem.runs])
    assert scattered_releases(asked, truth, others) == ()


def test_requests_that_come_one_by_one_see_all_prefill_of_the_others(problem):
    batches = np.array([run.row.concurrency for run in problem.runs])
    names = {run.row.release for run in problem.runs}
    apart = scattered(problem.runs, names)
    assert waved(problem.runs).all()
    assert not waved(apart).any()
    assert (wave_shares(apart, batches) == 1).all()
    assert (wave_shares(problem.runs, batches) <= 0.5).all()
    kept = problem.runs[0].passes(8.0)
    assert apart[0].passes(8.0) is kept


def test_the_shipped_profile_says_which_releases_these_are():
    """And prices their rows so: SGLang 0.5.6.post2, whose TPOT with waves would be far below what ran."""
    assert load_profile("calibrated").scattered == ("sglang 0.5.6.post2",)


def test_fit_is_unchanged_where_no_release_is_found(problem):
    made = predicted_tpot_s(problem, start_of(problem.runs))
    asked = Problem(problem.runs, problem.table, problem.batches, made)
    assert np.array_equal(fit_of_waves(asked)[1].x, fit(asked).x)

"""Noise of levels and of ratios, from planted errors."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.fitting.crossvalidation import LeftOut
from costmodel.measured.fitting.fit import Problem
from costmodel.measured.fitting.held_out import held_out_of, layout_pairs, with_held_out
from costmodel.measured.recipes import UNKNOWN
from costmodel.measured.rows import Group
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile


@pytest.fixture(scope="module")
def runs(rows):
    """Rows of one model and engine, aggregated, three layouts of each at the same load."""
    some = [
        r
        for r in rows
        if r.prefill is None and r.concurrency == 16
        if replace(r.decode, settings=UNKNOWN) == Group(4, 1, 1, 1)
    ]
    built = [
        replace(row, id=f"{row.id} {tp}", decode=Group(tp, 1, 1, 1), concurrency=4.0 * tp)
        for row in some[:40]
        for tp in (2, 4, 8)
    ]
    return runs_of(built)[0]


def problem_and_folds(runs, predicted_s):
    measured = np.array([run.row.tpot_s for run in runs])
    problem = Problem(runs=runs, table=None, batches=np.ones(len(runs)), measured_s=measured)
    nothing = np.full(len(runs), np.nan)
    return problem, LeftOut("model", (), predicted_s, nothing, nothing, ())


def test_an_error_that_layouts_share_is_no_noise_between_them(runs):
    rng = np.random.default_rng(3)
    measured = np.array([run.row.tpot_s for run in runs])
    of_group = {}
    shared = np.array(
        [of_group.setdefault((r.row.model, r.chip, r.row.engine, r.row.input_tokens, r.row.output_tokens), rng.normal(0, 0.3)) for r in runs]
    )  # fmt: skip
    problem, left = problem_and_folds(runs, measured * np.exp(shared))
    found = held_out_of(problem, [left])
    assert found.layout_pairs == len(layout_pairs(runs)) > 100
    assert found.ratio_noise(0.9) == pytest.approx(0.0, abs=1e-9)
    assert found.factors("tpot", 0.9)[1] > 1.1


def test_independent_errors_are_found_back_as_noise_of_ratios(runs):
    """Errors of standard deviation s by row differ between two rows by s times the root of two."""
    rng = np.random.default_rng(4)
    measured = np.array([run.row.tpot_s for run in runs])
    folds = [
        problem_and_folds(runs, measured * np.exp(rng.normal(0, 0.1, len(runs))))[1]
        for _ in range(40)
    ]
    found = held_out_of(problem_and_folds(runs, measured)[0], folds)
    assert np.log1p(found.ratio_noise(0.9)) == pytest.approx(1.645 * 0.1 * 2**0.5, rel=0.05)
    assert np.log(found.factors("tpot", 0.9)[1]) == pytest.approx(1.645 * 0.1, rel=0.05)


def test_pairs_differ_in_layout_alone(runs):
    pairs = layout_pairs(runs)
    for first, second in pairs[::7]:
        one, other = runs[first].row, runs[second].row
        assert (one.model, one.system, one.engine) == (other.model, other.system, other.engine)
        assert (one.input_tokens, one.output_tokens) == (other.input_tokens, other.output_tokens)
        assert one.decode != other.decode


def test_other_loads_are_not_compared(runs):
    crowded = [
        replace(run, row=replace(run.row, concurrency=run.row.concurrency * 5.0**run.row.decode.tp))
        for run in runs
    ]
    assert len(layout_pairs(crowded)) == 0


def test_nothing_left_out_is_no_interval():
    profile = load_profile("physics")
    assert with_held_out(profile, None, ()).held_out is None

"""Optima beside the best measured runs: factors whose product is the whole, and their table."""

from dataclasses import replace

import pytest

import rackfit
from benchmarks.frontier import best_run, chips_of, groups_of, measured_rate, question, split
from costmodel.measured.frontier_report import HEADING, LISTED, frontier_lines, read_splits
from costmodel.measured.predict import predict_under
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile


@pytest.fixture(scope="module")
def group(rows):
    """The largest group of runs of Llama on H100."""
    return next(
        one for one in groups_of(rows) if one[0].system == "h100_sxm" and "Llama" in one[0].model
    )


@pytest.fixture(scope="module")
def row(group):
    return best_run(group).row


@pytest.fixture(scope="module")
def found(group):
    return split(best_run(group))


def test_the_factors_lead_from_the_measured_run_to_the_answer(row, found):
    answer = rackfit.solve(question(row), workers=1).evaluation
    best = answer.output_tokens_per_s / answer.chips_total
    assert answer.tpot_s <= row.tpot_s * (1 + 1e-9)
    measured = row.concurrency * row.output_tokens / chips_of(row)
    measured /= row.ttft_s + row.output_tokens * row.tpot_s
    assert found.output_tokens_per_s == pytest.approx(measured)
    assert found.whole == pytest.approx(best / measured, rel=0.015)
    assert found.apart >= 1.0


def test_the_first_factor_is_the_error_of_the_model(row, found):
    (run,), _ = runs_of([row])
    one = predict_under([run], load_profile("calibrated"))
    seconds = one.ttft_s[0] + row.output_tokens * one.tpot_s[0]
    assert found.model_error == pytest.approx(
        (row.ttft_s + row.output_tokens * row.tpot_s) / seconds
    )


def test_the_best_run_of_a_group_serves_most_per_chip(rows, group, row):
    assert len(group) > 5
    assert len({(one.model, one.system, one.input_tokens, one.output_tokens) for one in group}) == 1
    assert measured_rate(row) == max(map(measured_rate, group))
    assert sum(len(one) for one in groups_of(rows)) == sum(one.ttft_s is not None for one in rows)


def test_a_run_below_the_physics_bound_is_no_best_run(group):
    wrong = replace(group[0], concurrency=group[0].concurrency * 100)
    found = best_run([wrong, *group[1:]])
    assert found.row == group[1]


def test_groups_with_a_large_factor_are_listed(found):
    small = dict.fromkeys(("model_error", "batch", "balance", "widths", "apart", "idle_chips"), 1.0)
    plain = replace(found, **small)
    large = replace(plain, widths=2.0, balance=0.6)
    assert plain.whole == 1.0
    assert large.whole == pytest.approx(1.2)
    lines = frontier_lines([plain, large])
    assert HEADING in lines
    assert f"The 1 groups with a factor above {LISTED:g}:" in lines
    assert lines[-1].endswith("| 1.00 | 1.00 | 0.60 | 2.00 | 1.00 | 1.00 | 1.20 |")
    assert frontier_lines([]) == []


def test_every_shipped_group_has_its_factors():
    shipped = read_splits()
    assert len({one.run for one in shipped}) == len(shipped) > 30
    assert all(min(one.factors) > 0 for one in shipped)

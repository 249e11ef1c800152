"""Runs are chosen for what they tell of a choice."""

from math import erf, exp, pi, sqrt

import numpy as np
import pytest

from costmodel.measured.own.design import Question, choose

DRAWS = 4000


def question(costs, layouts, runs, row_sd=0.05, draws=DRAWS):
    """Of costs and times that are linear in independent normal parameters."""
    found = np.random.default_rng(1).standard_normal((draws // 2, len(layouts[0])))
    found = np.concatenate([found, -found])
    found = np.linalg.solve(np.linalg.cholesky(np.cov(found.T)), found.T).T
    return Question(
        np.array(costs), np.array(costs) + found @ np.array(layouts, dtype=float).T,
        found @ np.array(runs, dtype=float).T, row_sd,
    )  # fmt: skip


def test_the_gain_of_two_layouts_is_the_closed_form():
    """``s phi(d / s) - d Phi(-d / s)`` for a difference ``d`` that runs explain with deviation ``s``."""
    asked = question([0.0, 0.05], [[0.1, 0.0], [0.0, 0.1]], [[1.0, -1.0]])
    s = sqrt(0.02) * sqrt(2.0 / (2.0 + 0.05**2))
    z = 0.05 / s
    closed = s * exp(-(z**2) / 2) / sqrt(2 * pi) - 0.05 * 0.5 * (1 - erf(z / sqrt(2)))
    assert asked.gain([0]) == pytest.approx(closed, rel=0.05)
    assert asked.gain([]) == pytest.approx(0.0)


def test_what_runs_explain_is_the_fall_of_the_covariance():
    rng = np.random.default_rng(4)
    layouts, runs = rng.standard_normal((2, 3)), rng.standard_normal((4, 3))
    asked = question([0, 0], layouts, runs)
    slopes = runs[[0, 2, 2]]
    after = np.linalg.inv(np.eye(3) + slopes.T @ slopes / 0.05**2)
    fall = np.diag(layouts @ (np.eye(3) - after) @ layouts.T)
    assert asked.explained([0, 2, 2], asked.costs) == pytest.approx(fall)


def test_a_run_that_is_repeated_tells_more_than_once():
    asked = question([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]], row_sd=1.0)
    once, twice = (asked.explained([0] * times, asked.costs)[0] for times in (1, 2))
    left = [
        np.var(asked.costs - asked.after([0] * times, asked.costs), axis=0)[0] for times in (1, 2)
    ]
    assert left == pytest.approx([1 / 2, 1 / 3], rel=0.05)
    assert once == pytest.approx(1 / 2)
    assert twice == pytest.approx(2 / 3)


def test_a_run_that_tells_layouts_apart_comes_before_one_that_moves_both():
    """The first parameter weighs on both layouts alike, the second on one of them."""
    asked = question([0.0, 0.02], [[0.3, 0.0], [0.3, 0.1]], [[1.0, 0.0], [0.0, 1.0]])
    first = choose(asked, 1)[0]
    assert first.run == 1
    assert first.gain > 0.01


def test_a_pair_is_told_apart_by_its_own_run():
    """The third layout is open most, and a run of it saves most; the pair's order hangs on the second parameter."""
    layouts = [[0.0, 0.1, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.5]]
    asked = question([0.0, 0.0, 0.1], layouts, np.eye(3))
    assert choose(asked, 1)[0].run == 2
    pick = choose(asked, 1, (0, 1))[0]
    assert pick.run == 1
    # the angle between what is seen and what is
    assert pick.right == pytest.approx(1 - np.arctan(0.05) / pi, abs=0.01)
    assert asked.right([2], (0, 1)) == pytest.approx(0.5, abs=0.03)


def test_where_the_choice_is_clear_the_answers_cost_is_measured():
    asked = question([0.0, 5.0], [[0.0, 0.3], [0.3, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    picks = choose(asked, 2)
    assert picks[0].run == 1
    assert picks[0].answer_sd < 0.1 * asked.answer_sd([])
    assert picks[1].answer_sd <= picks[0].answer_sd


def test_the_chance_of_another_order():
    asked = question([0.0, 0.001, 10.0], [[1, 0], [0, 1], [1, 1]], [[1, 0]])
    assert asked.open_pairs()[0, 1] == pytest.approx(0.5, abs=0.02)
    assert asked.open_pairs()[0, 2] < 1e-6

"""Runs are chosen for what they tell of a choice."""

from math import erf, exp, pi, sqrt

import numpy as np
import pytest

from costmodel.measured.own.design import Question, choose


def question(costs, layouts, runs, row_sd=0.05, covariance=None):
    size = len(layouts[0])
    return Question(
        np.eye(size) if covariance is None else covariance,
        row_sd,
        np.array(costs),
        np.array(layouts, dtype=float),
        np.array(runs, dtype=float),
    )


def test_the_gain_of_two_layouts_is_the_closed_form():
    """``s phi(d / s) - d Phi(-d / s)`` for a difference ``d`` that runs explain with deviation ``s``."""
    asked = question([0.0, 0.05], [[0.1, 0.0], [0.0, 0.1]], [[1.0, -1.0]])
    explained = asked.explained([0])
    s = sqrt(explained[0, 0] + explained[1, 1] - 2 * explained[0, 1])
    z = 0.05 / s
    closed = s * exp(-(z**2) / 2) / sqrt(2 * pi) - 0.05 * 0.5 * (1 - erf(z / sqrt(2)))
    assert asked.gain(explained) == pytest.approx(closed, rel=0.05)


def test_what_runs_explain_is_the_fall_of_the_covariance():
    rng = np.random.default_rng(4)
    root = rng.standard_normal((3, 3))
    asked = question([0, 0], rng.standard_normal((2, 3)), rng.standard_normal((4, 3)),
                     covariance=root @ root.T)  # fmt: skip
    chosen = [0, 2]
    slopes = asked.runs[chosen]
    after = np.linalg.inv(np.linalg.inv(asked.covariance) + slopes.T @ slopes / 0.05**2)
    fall = asked.layouts @ (asked.covariance - after) @ asked.layouts.T
    assert asked.explained(chosen) == pytest.approx(fall)


def test_a_run_that_tells_layouts_apart_comes_before_one_that_moves_both():
    """The first parameter weighs on both layouts alike, the second on one of them."""
    asked = question([0.0, 0.02], [[0.3, 0.0], [0.3, 0.1]], [[1.0, 0.0], [0.0, 1.0]])
    first = choose(asked, 1)[0]
    assert first.run == 1
    assert first.gain > 0.01


def test_where_the_choice_is_clear_the_answers_cost_is_measured():
    asked = question([0.0, 5.0], [[0.0, 0.3], [0.3, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    picks = choose(asked, 2)
    assert picks[0].run == 1
    assert picks[0].answer_sd < 0.1 * asked.answer_sd(np.zeros((2, 2)))
    assert picks[1].answer_sd <= picks[0].answer_sd


def test_the_chance_of_another_order():
    asked = question([0.0, 0.0, 10.0], [[1, 0], [0, 1], [1, 1]], [[1, 0]])
    assert asked.open_pairs()[0, 1] == pytest.approx(0.5)
    assert asked.open_pairs()[0, 2] < 1e-6

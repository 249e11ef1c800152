"""Axis values that are written as text, ``+50%`` or ``30 ms``, are numbers in words and figures."""

from __future__ import annotations

from typing import Any

import pytest

from rackfit.studies.base import Options
from rackfit.studies.run import StudyResult
from tests.rackfit.studies.asking import ask

TOKENS, TPOT = 1000, 0.02
LENGTH, SPEED = "workload.input_tokens", "slo.tpot"
NODE: dict[str, Any] = {"cluster": ["hgx-h100"]}


def asked(name: str, over: dict[str, list[Any]]) -> StudyResult:
    """A study of a small question."""
    return ask(
        name, over, Options(gap=0.1), model="llama-3.1-8b", cluster="hgx-h100",
        workload={"input_tokens": TOKENS, "output_tokens": 100}, slo={"ttft": 2.0, "tpot": TPOT},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "over", "text"),
    [
        ("context", {"model": ["llama-3.1-8b"], LENGTH: ["+50%", TOKENS]}, "1,000 to 1,500 tokens"),
        ("prices", {LENGTH: ["+50%", TOKENS]}, "1,500 prompt tokens: "),
        ("frontier", {**NODE, SPEED: ["+50%", TPOT]}, "20 ms instead of 30 ms per token"),
        ("fleet-size", {**NODE, SPEED: ["30 ms", TPOT], "mean_rate": [10.0]}, "At 30 ms per token"),
    ],
)
def test_words_and_figures_have_the_number(
    name: str, over: dict[str, list[Any]], text: str
) -> None:
    found = asked(name, over)
    axis = LENGTH if LENGTH in over else SPEED
    assert [row[axis] for row in found.rows] == over[axis]
    assert any(text in line for line in found.conclusion)
    (chart, *_) = found.study.figures(found.rows)
    unit = 1.0 if axis == LENGTH else 1e3
    plain = unit * (TOKENS if axis == LENGTH else TPOT)
    assert {x for _, x, _, _ in chart.values} == {plain, 1.5 * plain}


def test_a_fleet_without_a_target_on_speed_says_so() -> None:
    found = asked("fleet-size", {**NODE, SPEED: [None, "30 ms"], "mean_rate": [10.0]})
    assert any(line.startswith("At any speed: ") for line in found.conclusion)
    (chart,) = found.study.figures(found.rows)
    assert [x for _, x, _, _ in chart.values] == [30.0]

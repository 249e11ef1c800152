"""What is said of a question at once rests on answers to other targets, judged under the new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.evaluate import evaluate
from rackfit.api import make_instance, solve
from rackfit.cli.question import build_scenario
from rackfit.documents.result import Result
from rackfit.serve.sight import Sights

SCENARIO = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}


def asked(folder: Path, ttft_s: float | None, tpot_s: float | None, **more: Any) -> str:
    """A question in a file."""
    slo = {"ttft": ttft_s, "tpot": tpot_s}
    path = folder / "asked.json"
    path.write_text(json.dumps({**SCENARIO, "slo": slo, **more}))
    return str(path)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """At a loose TPOT and a tight one."""
    folder = tmp_path_factory.mktemp("asked")
    return [
        solve(build_scenario(asked(folder, 2.0, tpot)), gap=0.05, beside=False)
        for tpot in (0.05, 0.01)
    ]


@pytest.fixture
def sights(answers: list[Result]) -> Sights:
    found = Sights()
    for answer in answers:
        found.add(answer)
    return found


def test_between_two_answers_the_tight_ones_layout_holds(
    sights: Sights, answers: list[Result], tmp_path: Path
) -> None:
    name = asked(tmp_path, 2.0, 0.02)
    seen = json.loads(sights.of(name) or "")
    loose, tight = answers
    assert seen["misses"] == []
    assert seen["evaluation"]["usd_per_m_output_tokens"] == tight.evaluation.usd_per_m_output_tokens
    assert seen["bound"] == loose.certificate.bound_usd_per_m_output_tokens
    here = solve(build_scenario(name), gap=0.05, beside=False)
    assert here.evaluation.usd_per_m_output_tokens >= seen["bound"]


def test_of_answers_that_hold_the_cheapest_is_shown(
    sights: Sights, answers: list[Result], tmp_path: Path
) -> None:
    seen = json.loads(sights.of(asked(tmp_path, None, 0.06)) or "")
    assert (
        seen["evaluation"]["usd_per_m_output_tokens"]
        == answers[0].evaluation.usd_per_m_output_tokens
    )
    assert seen["bound"] == 0.0  # none of the answers was for targets as loose


def test_what_misses_the_targets_is_said_to(
    sights: Sights, answers: list[Result], tmp_path: Path
) -> None:
    name = asked(tmp_path, 2.0, 0.004)
    seen = json.loads(sights.of(name) or "")
    judged = evaluate(make_instance(name), answers[1].layout)
    assert seen["misses"] == [str(one) for one in judged.violations] != []


@pytest.mark.parametrize("more", [{"rate": 1.0}, {"model": "llama-3.1-70b"}, {"pay": "used"}])
def test_another_question_shows_nothing(sights: Sights, tmp_path: Path, more: Any) -> None:
    assert sights.of(asked(tmp_path, 2.0, 0.02, **more)) is None


def test_what_is_wrong_is_left_to_the_answer(sights: Sights, tmp_path: Path) -> None:
    assert sights.of(asked(tmp_path, -1.0, 0.02)) is None
    assert sights.of(str(tmp_path / "none.json")) is None

"""What ``rackfit move`` refuses: options, documents, and questions about another model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.question.scenario import Scenario
from rackfit.documents.result import read_result
from tests.rackfit.cli.test_move import rackfit, solved_in
from topology.errors import InstanceError, NoFeasibleLayout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_in(tmp_path_factory.mktemp("move"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--most-bytes", "3 parsecs"), "--most-bytes: expected a quantity in B"),
        (("--most-bytes", "-1 GB"), "--most-bytes: expected at least 0 B"),
        (("--most-bytes", "1 GB", "--within", "0.1"), "two budgets: give one of them"),
        (("--within", "-0.1"), "--within: expected a share from 0 to 10"),
        (("--during", "0"), "--during: expected requests per second, got 0"),
        (("--start", "1 GB"), "--start: expected a quantity in s"),
        (("--failed", "r9"), "r9"),
        (("--cluster", "hgx-h100@2"), "has no such chip"),
        (("--cluster", "hgx-h200@3"), "is a h100 where it runs and a h200 in hgx-h200"),
        (("--engine", "any"), "any is no choice here"),
        (("--time-limit", "-1"), "positive seconds"),
    ],
)
def test_bad_options_are_refused(words: tuple[str, ...], message: str, running: Path) -> None:
    found = rackfit("move", running, *words)
    assert isinstance(found.exception, InstanceError), found.output
    assert message in str(found.exception)


def test_options_of_a_question_have_no_meaning_for_a_document(running: Path) -> None:
    found = rackfit("move", running, running, "--failed", "r1", "--most-bytes", "1 GB")
    assert isinstance(found.exception, InstanceError)
    assert {problem.place for problem in found.exception.problems} == {"--failed", "--most-bytes"}


def test_another_model_is_no_move(running: Path) -> None:
    asked = Scenario(model="llama-3.1-8b", cluster="hgx-h100@3", workload="chat")
    path = running.parent / "model.json"
    path.write_text(json.dumps(asked.model_dump(mode="json", exclude_none=True)))
    found = rackfit("move", running, path)
    assert isinstance(found.exception, InstanceError)
    assert "the running layout serves deepseek-v2-lite" in str(found.exception)


def test_the_same_model_in_another_precision_is_told_by_what_differs(running: Path) -> None:
    """It was said to be no other model than the one that runs."""
    instance, _, _ = read_result(running)
    asked = instance.scenario.model_copy(update={"kv_dtype": "fp8"})
    path = running.parent / "fp8.json"
    path.write_text(json.dumps(asked.model_dump(mode="json", exclude_none=True)))
    found = rackfit("move", running, path)
    assert isinstance(found.exception, InstanceError)
    message = "model: replicas of deepseek-v2-lite that run cannot change KV cache bf16 to fp8"
    assert message in str(found.exception)


def test_all_wrong_numbers_are_said_at_once(running: Path) -> None:
    words = [
        "--most-bytes",
        "3kg",
        "--within",
        "11",
        "--during",
        "-4",
        "--start",
        "3kg",
        "--gap",
        "4",
    ]
    found = rackfit("move", running, *words)
    assert isinstance(found.exception, InstanceError)
    places = [problem.place for problem in found.exception.problems]
    assert sorted(places) == sorted([*words[::2], "--most-bytes"])


def test_what_runs_must_be_a_layout_that_can_run(running: Path, tmp_path: Path) -> None:
    data = json.loads(running.read_text())
    replicas = data["layout"]["replicas"]
    replicas.append(replicas[0])
    path = tmp_path / "twice.json"
    path.write_text(json.dumps(data))
    for words in ((path, "--failed", "r2"), (path, running)):
        found = rackfit("move", *words)
        assert isinstance(found.exception, InstanceError)
        assert "the running layout: cannot be priced" in str(found.exception)


def test_what_nothing_can_serve_is_infeasible(running: Path) -> None:
    found = rackfit("move", running, "--rate", 1e6)
    assert isinstance(found.exception, NoFeasibleLayout)

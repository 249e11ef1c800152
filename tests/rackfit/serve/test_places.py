"""An error says which field of the request is wrong, not which option or file the request became."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rackfit.serve.asked import Compare, Replay, Size, Solve
from rackfit.serve.offered import Question
from rackfit.serve.places import as_asked
from topology.catalogue import catalogue_names, checked, resolve
from topology.errors import InstanceError

SCENARIO = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}


@pytest.mark.parametrize(
    ("kind", "more", "told", "place", "message"),
    [
        (Replay, {"document": {}}, ("--duration", "leave out --rate"), "duration_s", "leave out rate"),
        (Replay, {"document": {}}, ("asked-layout.json: layout", "is missing"), "document: layout", "is missing"),
        (Compare, {"document": {}, "second": {}}, ("asked-second.json", "x"), "second", "x"),
        (Solve, {"scenario": SCENARIO}, ("--ttft-p99", "needs --traffic, or --rate"), "ttft_p99_s", "needs traffic"),
        (Solve, {"scenario": SCENARIO}, ("models", "unknown name 'CON'; known: a, b; or give a path"), "models", "unknown name 'CON'; known: a, b; or give a file's name and its content in files"),
        (Size, {"scenario": SCENARIO, "buy": ["a"], "rate": 1.0}, ("asked-scenario.json: slo", "--buy"), "scenario: slo", "buy"),
    ],
)  # fmt: skip
def test_options_and_files_are_told_as_fields(
    kind: type[Question], more: dict[str, Any], told: tuple[str, str], place: str, message: str
) -> None:
    problem = {"place": told[0], "message": told[1]}
    line = json.dumps({"error": {"kind": "bad_input", "problems": [problem]}}).encode() + b"\n"
    found = as_asked(line, kind.model_validate(more))
    assert found.endswith(b"\n")
    (said,) = json.loads(found)["error"]["problems"]
    assert said == {"place": place, "message": message}


def test_a_document_is_left_alone() -> None:
    """Words of an answer may hold options: commands that start servers do."""
    line = b'{"document": {"words": ["--rate"]}}\n'
    assert as_asked(line, Solve.model_validate({"scenario": SCENARIO})) == line


def test_names_are_listed_where_the_command_would_list_them() -> None:
    """A request reads no path, and who sends it may have no command line."""
    with pytest.raises(InstanceError) as told:
        resolve("gwen3", "models")
    (problem,) = told.value.problems
    assert "`rackfit catalogue models`" in problem.message
    assert "or give a path" in problem.message
    line = json.dumps(
        {
            "error": {
                "kind": "bad_input",
                "problems": [{"place": "models", "message": problem.message}],
            }
        }
    )
    found = json.loads(
        as_asked(line.encode() + b"\n", Solve.model_validate({"scenario": SCENARIO}))
    )
    (said,) = found["error"]["problems"]
    assert "did you mean qwen3" in said["message"]
    assert (
        f"known: {', '.join(catalogue_names('models'))}; or give a file's name" in said["message"]
    )
    assert "rackfit" not in said["message"]
    assert "path" not in said["message"]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Solve, {"scenario": SCENARIO, "seed": True}),
        (Solve, {"scenario": SCENARIO, "gap": False}),
        (Solve, {"scenario": SCENARIO, "seed": "3"}),
        (Solve, {"scenario": {**SCENARIO, "rate": True}}),
        (Solve, {"scenario": {**SCENARIO, "limits": {"max_pipeline_stages": True}}}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": True}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 1, "spare": True}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 1, "replay": 1}),
        (Replay, {"document": {}, "concurrency": True}),
    ],
)  # fmt: skip
def test_a_number_is_a_number_and_a_switch_a_switch(
    kind: type[Question], given: dict[str, Any]
) -> None:
    with pytest.raises(InstanceError) as told, checked("request"):
        kind.model_validate(given)
    (problem,) = told.value.problems
    assert re.search("expected (a number|true or false), got ", problem.message)


def test_numbers_of_all_kinds_pass() -> None:
    asked = Size.model_validate(
        {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 2, "spare": "node", "seed": 3.0}
    )
    assert (asked.rate, asked.spare, asked.seed) == (2.0, "node", 3)

"""An error says which field of the request is wrong, not which option or file the request became."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackfit.serve.asked import Compare, Replay, Size, Solve
from rackfit.serve.offered import Question
from rackfit.serve.places import as_asked

SCENARIO = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}


@pytest.mark.parametrize(
    ("kind", "more", "told", "place", "message"),
    [
        (Replay, {"document": {}}, ("--duration", "leave out --rate"), "duration_s", "leave out rate"),
        (Replay, {"document": {}}, ("asked-layout.json: layout", "is missing"), "document: layout", "is missing"),
        (Compare, {"document": {}, "second": {}}, ("asked-second.json", "x"), "second", "x"),
        (Solve, {"scenario": SCENARIO}, ("--ttft-p99", "needs --traffic, or --rate"), "ttft_p99_s", "needs traffic, or --rate"),
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

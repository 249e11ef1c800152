"""A file that --load does not read, and another form of the command does."""

from __future__ import annotations

from pathlib import Path

import pytest
from results import saved
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from topology.errors import InstanceError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vllm-run.json", "a result of vllm bench serve"),
        ("sglang-run.jsonl", "a result of sglang.bench_serving"),
        ("aiperf-run.json", "a result of AIPerf or GenAI-Perf"),
        ("guidellm-run.json", "a result of GuideLLM"),
        ("stage-run.json", "a result of inference-perf"),
        ("agg-run.json", "a result of InferenceX rows"),
        ("own-runs.csv", "a table of runs (CSV)"),
    ],
)
def test_a_result_of_a_tool_goes_without_load(folder: Path, name: str, kind: str) -> None:
    said = CliRunner().invoke(build_app(), ["validate", "--load", str(folder / name)])
    assert isinstance(said.exception, InstanceError)
    (problem,) = said.exception.problems
    assert problem.message.startswith(f"{kind}, which --load does not read; leave --load out")
    assert problem.message.endswith(f"rackfit validate {folder / name}")


def test_a_file_of_no_tool_is_told_what_a_load_test_is(tmp_path: Path) -> None:
    said = CliRunner().invoke(build_app(), ["validate", "--load", str(saved(tmp_path, {"x": 1}))])
    assert isinstance(said.exception, InstanceError)
    (problem,) = said.exception.problems
    assert problem.message == "expected an object with a list `runs`, one object for each load test"

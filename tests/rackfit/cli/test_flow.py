"""``rackfit flow`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from costmodel.flow.judge import load_placement, tokens_per_s
from costmodel.flow.question import load_flow
from costmodel.flow.rates import priced
from rackfit.cli.app import build_app
from topology.catalogue import data_dir, read_data
from topology.errors import InstanceError, NoFeasibleLayout


def run(*words: object) -> Any:
    return CliRunner().invoke(build_app(), ["flow", *map(str, words)])


def test_value_bound_and_placement_are_printed_and_written(tmp_path: Path) -> None:
    out = tmp_path / "ranges.json"
    result = run("helix-single24", "--out", out)
    assert result.exit_code == 0, result.output
    assert "2,045.64 tokens/s, proven optimal" in result.output
    question = load_flow("helix-single24")
    assert tokens_per_s(question, load_placement(out)) == pytest.approx(2045.641047)
    again = run("helix-single24", "--placement", out, "--json")
    document = json.loads(again.output)
    assert document["status"] == "optimal"
    assert document["tokens_per_s"] == pytest.approx(2045.641047)
    held = {node: one["layers"] for node, one in document["placement"].items()}
    assert held == json.loads(out.read_text())


def test_json_has_money_of_all_machines(tmp_path: Path) -> None:
    document = json.loads(run("helix-quality10", "--json").output)
    question = load_flow("helix-quality10")
    price = question.usd_per_hour
    assert price is not None
    assert document["usd_per_hour"] == price
    per_m = price / 3600 / document["tokens_per_s"] * 1e6
    assert document["usd_per_m_tokens"] == pytest.approx(per_m)
    assert document["bound_usd_per_m_tokens"] <= per_m
    assert document["unused"] == []


def test_rates_may_come_from_the_cost_model() -> None:
    document = json.loads(run("helix-single24", "--model", "llama-3.1-70b", "--json").output)
    asked = priced(load_flow("helix-single24"), "llama-3.1-70b", "chat")
    assert document["model"]["name"] == asked.model.name
    kinds = asked.machines.items()
    assert document["rates_tokens_per_s"] == {k: list(m.tokens_per_s) for k, m in kinds}
    placement = {int(node): tuple(one["layers"]) for node, one in document["placement"].items()}
    assert document["tokens_per_s"] == pytest.approx(tokens_per_s(asked, placement))
    assert document["gap"] < 0.01


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "unknown name 'nowhere'"),
        (("helix-quality10", "--gap", "-1"), "--gap"),
        (("helix-quality10", "--time-limit", "-1"), "time limit"),
        (("helix-quality10", "--placement", "nowhere.json"), "nowhere.json"),
        (("helix-quality10", "--workload", "chat"), "--model"),
        (("helix-quality10", "--model", "nothing"), "unknown name 'nothing'"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert isinstance(result.exception, InstanceError)
    assert said in str(result.exception)


def test_all_that_is_wrong_with_options_is_said_at_once() -> None:
    words = ("--gap", "-1", "--time-limit", "-1", "--profile", "physics", "--workload", "chat")
    result = run("nowhere", *words)
    assert isinstance(result.exception, InstanceError)
    places = [problem.place for problem in result.exception.problems]
    assert places == ["time limit", "--gap", "--workload", "--profile", "flows"]


def test_machines_that_cannot_hold_the_model_are_an_answer(tmp_path: Path) -> None:
    data = read_data(data_dir("flows") / "helix-quality10.yaml")
    path = tmp_path / "few.yaml"
    path.write_text(yaml.safe_dump({**data, "nodes": ["T4", "L4"]}))
    result = run(path)
    assert isinstance(result.exception, NoFeasibleLayout)
    assert "hold 18 layers" in str(result.exception)


def test_a_model_name_that_is_no_text_is_refused() -> None:
    found = run("helix-single24", "--model", "\ud800")
    assert isinstance(found.exception, InstanceError)
    assert "question: model: expected text" in str(found.exception)

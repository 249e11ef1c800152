"""The published JSON Schemas are those of the code, and real input and output pass them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario, load_scenario
from costmodel.question.workload import Limits, Prices, Slo, Workload
from rackfit.api import solve
from rackfit.documents.new_scenario import scenario_text
from rackfit.documents.result import Result
from rackfit.documents.schema import FOLDER, published, schema_text
from topology.catalogue import catalogue_names, data_dir
from topology.errors import InstanceError


@pytest.fixture(scope="module")
def answer() -> Result:
    """A small solved instance with experts."""
    workload = Workload(input_tokens=1000, output_tokens=200)
    return solve(Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload=workload), workers=1)


def _schema(name: str) -> dict[str, Any]:
    schema = json.loads((FOLDER / name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return dict(schema)


@pytest.mark.parametrize("name", sorted(published()))
def test_published_file_is_up_to_date(name: str) -> None:
    """If this fails: python -m rackfit.documents.schema"""
    assert (FOLDER / name).read_text() == schema_text(published()[name])


def test_real_output_passes(answer: Result) -> None:
    jsonschema.validate(json.loads(answer.text()), _schema("result.schema.json"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("layout", "replicas", 0, "shape", "tp"), 0),
        (("layout", "replicas", 0, "role"), "draft"),
        (("evaluation", "chips_total"), "eight"),
        (("schema_version",), "2.0"),
        (("memory",), []),
    ],
)
def test_wrong_output_does_not(answer: Result, path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(answer.text())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, _schema("result.schema.json"))


@pytest.mark.parametrize("name", catalogue_names("scenarios"))
def test_shipped_scenarios_pass(name: str) -> None:
    files = [data_dir("scenarios") / f"{name}{suffix}" for suffix in (".yaml", ".json")]
    path = next(path for path in files if path.is_file())
    jsonschema.validate(yaml.safe_load(path.read_text()), _schema("scenario.schema.json"))


@pytest.mark.parametrize(
    "change",
    [{"modell": "x"}, {"pay": "half"}, {"slo": {"ttft": "two"}}, {"workload": {"input_tokens": 1}}],
)
def test_wrong_scenarios_do_not(change: dict[str, object]) -> None:
    data = {"model": "m", "cluster": "c", "workload": "chat", **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, _schema("scenario.schema.json"))


def test_new_scenario_passes_and_means_what_it_says(tmp_path: Path) -> None:
    text = scenario_text("null", "deepseek-v3", "gb200-nvl72@2", input_tokens=123)
    assert text.startswith("# yaml-language-server: $schema=file://")
    jsonschema.validate(yaml.safe_load(text), _schema("scenario.schema.json"))
    path = tmp_path / "s.yaml"
    path.write_text(text)
    scenario = load_scenario(str(path))
    assert scenario.name == "null"
    assert isinstance(scenario.workload, Workload)
    assert scenario.workload.input_tokens == 123
    assert (scenario.slo.ttft, scenario.slo.tpot) == (2.0, 0.03)


@pytest.mark.parametrize(
    ("model", "cluster", "input_tokens"),
    [
        ("deepseek-v3", "gb200-nvl72", 4000),
        ("llama-3.1-8b", "hgx-h100", 4000),
        ("qwen3-30b-a3b", "mi300x", 4000),
        ("llama-3.1-8b", "hgx-h100", 1),
    ],
)
def test_new_scenario_with_every_comment_taken_away_still_loads(
    tmp_path: Path, model: str, cluster: str, input_tokens: int
) -> None:
    """The commented keys are keys that exist, with their defaults, and go together."""
    written = scenario_text("all", model, cluster, input_tokens=input_tokens)
    lines = written.splitlines()
    opened = []
    for line in lines:
        bare = line.strip().removeprefix("# ")
        key = bare.split(":")[0]
        known = line.strip().startswith("# ") and ":" in bare and key.strip().isidentifier()
        opened.append(line.replace("# ", "", 1) if known else line)
    text = "\n".join(opened) + "\n"
    path = tmp_path / "s.yaml"
    path.write_text(text)
    scenario = load_scenario(str(path))
    assert (
        scenario.limits
        == Scenario.model_validate({"model": "m", "cluster": "c", "workload": "chat"}).limits
    )
    assert (scenario.weight_dtype, scenario.kv_dtype, scenario.rate) == ("fp8", "fp8", 100)
    instance = resolve_instance(scenario)
    tiers = {tier.kind for placed in instance.cluster.chips for tier in placed.chip.tiers}
    assert (scenario.speculative is None) == (instance.model.mtp is None)
    assert set(scenario.kv_tiers) == tiers
    waits = instance.workload.hold_s is not None
    assert waits == (input_tokens > 1)


@pytest.mark.parametrize(
    ("model", "left_out"), [("deepseek-v3", []), ("llama-3.1-8b", ["speculative"])]
)
def test_new_scenario_explains_every_key(model: str, left_out: list[str]) -> None:
    """In words those that the others exclude; drafts are left out where the model has none."""
    named = set(re.findall(r"\w+", scenario_text("all", model, "hgx-h100")))
    keys = {key for kind in (Scenario, Workload, Slo, Prices, Limits) for key in kind.model_fields}
    assert sorted(keys - named) == left_out


def test_new_scenario_refuses_what_the_model_refuses() -> None:
    with pytest.raises(InstanceError, match="ttft"):
        scenario_text("x", "deepseek-v3", "gb200-nvl72", ttft="soon")

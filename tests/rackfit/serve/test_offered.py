"""Files that a request brings are found by the last part of the paths that its layout holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Client, started

import rackfit
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.serve.offered import by_last_part
from topology.catalogue import data_dir

SCENARIO = {"cluster": "hgx-h100", "workload": "chat", "slo": {"tpot": 0.03}}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started("--time-limit", "300")


def test_a_layout_of_an_own_model_is_taken_with_the_file_beside_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    config = (data_dir("models") / "llama-3.1-8b.json").read_text()
    (tmp_path / "my-model/config.json").write_text(config)
    scenario = Scenario.model_validate({**SCENARIO, "model": "my-model/config.json"})
    document = json.loads(rackfit.solve(resolve_instance(scenario), time_limit_s=20).text())
    status, told = client.ask("evaluate", document=document)
    assert (status, told["error"]["kind"]) == (400, "bad_input")
    assert "'my-model/config.json' is not offered" in told["error"]["problems"][0]["message"]
    status, told = client.ask("evaluate", document=document, files={"config.json": config})
    assert (status, told["evaluation"]) == (200, document["evaluation"])
    status, told = client.ask("evaluate", document=document, files={"my-model.json": config})
    assert (status, told["evaluation"]) == (200, document["evaluation"])


@pytest.mark.parametrize(
    ("scenario", "files", "named"),
    [
        ({"model": "a/config.json"}, {"config.json"}, {"model": "a.json"}),
        ({"model": "../config.json"}, {"config.json"}, {"model": "config.json"}),
        ({"cluster": "/racks/mine.yaml@2"}, {"mine.yaml"}, {"cluster": "mine.yaml@2"}),
        ({"workload": {"expert_load": "x/n.json"}}, {"n.json"}, {"workload": {"expert_load": "n.json"}}),
        ({"speculative": {"draft": "b/config.json"}}, {"config.json"}, {"speculative": {"draft": "b.json"}}),
        # what is not offered stays, and is refused
        ({"model": "/etc/passwd", "cluster": "../b.yaml"}, {"a.yaml"}, {"model": "/etc/passwd", "cluster": "../b.yaml"}),
        ({"model": "a/../config.json"}, set(), {"model": "a/../config.json"}),
    ],
)  # fmt: skip
def test_offered_files_are_found_by_the_last_part_of_a_path(
    scenario: dict[str, Any], files: set[str], named: dict[str, Any]
) -> None:
    asked = {"scenario": scenario, "files": dict.fromkeys(files, "x")}
    found: Any = by_last_part(asked)
    assert found["scenario"] == named
    assert set(found["files"].values()) <= {"x"}


def test_two_paths_are_not_one_file() -> None:
    one, two = ({"instance": {"scenario": {"model": f"{name}/config.json"}}} for name in "ab")
    files = {"config.json": "x"}
    with pytest.raises(
        ValueError, match=r"'a/config.json' and 'b/config.json' would both be config.json"
    ):
        by_last_part({"document": one, "second": two, "files": files})
    both: Any = by_last_part({"document": one, "second": two, "files": files | {"b.json": "y"}})
    assert both["files"] == {"config.json": "x", "a.json": "x", "b.json": "y"}
    assert both["second"]["instance"]["scenario"]["model"] == "b.json"

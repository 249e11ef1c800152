"""``rackfit plan`` where several models share units within an hour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from costmodel.evaluate import evaluate
from rackfit.cli.app import build_app
from rackfit.documents.result import read_result
from solver.plan import day
from topology.errors import InstanceError, NoFeasibleLayout

PLAN: dict[str, Any] = {
    "name": "p",
    "models": [
        {"model": "llama-3.1-8b", "workload": "chat", "slo": {"ttft": "1 s", "tpot": "30 ms"}, "requests_per_s": [2, 6, 4]},
        {"model": "llama-3.1-70b", "workload": "chat", "slo": {"ttft": "2 s", "tpot": "50 ms"}, "requests_per_s": [1, 2, 2.5]},
    ],
    "units": [{"cluster": "hgx-h200", "count": 2}],
}  # fmt: skip


def run(folder: Path, *words: object, **changes: Any) -> Result:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**PLAN, **changes}))
    return CliRunner().invoke(build_app(), ["plan", str(path), *map(str, words)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One plan as a document, and the folder where its layouts lie."""
    folder = tmp_path_factory.mktemp("shared")
    found = run(folder, "--json", "--replay", "--out", folder / "out")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout), folder / "out"


def test_one_node_serves_two_models(made: tuple[dict[str, Any], Path]) -> None:
    document, _ = made
    unit = {"hgx-h200": 1}
    for hour in document["hours"]:
        assert hour["fleet_by_model"] == dict.fromkeys(hour["fleet_by_model"], unit)
        assert hour["shared_by_model"] == hour["fleet_by_model"]
        assert hour["standing_by"] == {"hgx-h200": 0}
        assert hour["usd"] == pytest.approx(document["usd_per_day"] / 24)
    assert document["status"] == "optimal"
    assert document["gap"] < 1e-4
    assert "share them chip by chip in any way" in document["covers"][0]
    assert document["confirmed"]["all_meet"]


def test_the_models_of_a_node_have_chips_of_their_own(made: tuple[dict[str, Any], Path]) -> None:
    document, folder = made
    names = {name for hour in document["hours"] for name in hour["layouts"]}
    assert len(names) == 2
    used = []
    for name in sorted(names):
        instance, layout, _ = read_result(folder / name)
        assert evaluate(instance, layout).feasible
        used.append({chip for replica in layout.replicas for chip in replica.chips})
        assert not used[-1] & set(instance.scenario.taken)
    assert not used[0] & used[1]
    serving = [one for one in document["columns"] if one["shared"]]
    assert sum(one["units"] for one in serving if one["requests_per_s"] > 0) <= 1
    for one in serving:
        assert one["requests_per_s"] <= one["most_requests_per_s"]


def test_a_plan_in_words_says_which_units_are_shared(tmp_path: Path) -> None:
    said = run(tmp_path).stdout
    assert "no plan of whole units, shared by models or not, with any layouts" in " ".join(
        said.split()
    )
    assert said.count("1 shared") == 6
    assert "beside llama-3.1-70b on 6 chips" in " ".join(said.split())


def test_models_that_may_not_share_take_a_node_each(tmp_path: Path) -> None:
    said = " ".join(run(tmp_path, share=False).stdout.split())
    assert "shared" not in said
    assert "up to 2 rented by the hour" in said
    few = run(tmp_path, share=False, units=[{"cluster": "hgx-h200", "count": 1}])
    assert isinstance(few.exception, NoFeasibleLayout)
    assert "unless models can share it (share: true)" in str(few.exception)


def test_what_is_wrong_with_sharing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day, "offers_for", None)  # said before the first search
    found = run(tmp_path, share=True, units=[{"cluster": "gb200-nvl72", "count": 200}])
    assert isinstance(found.exception, InstanceError)
    assert "p: share: models share units of up to 40,000 choices" in str(found.exception)
    found = run(tmp_path, share="perhaps")
    assert isinstance(found.exception, InstanceError)
    assert "share" in str(found.exception)

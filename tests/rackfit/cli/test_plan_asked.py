"""``rackfit plan`` with other traffic, units and hours, and of an ordinary scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from costmodel.plan.changed import MOST_CHIPS, hourly, plan_question
from costmodel.plan.question import PlanUnits, load_plan, rates_of
from rackfit.cli.app import build_app
from solver.plan.groups import Start
from topology import load_cluster
from topology.errors import InstanceError

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b", "cluster": "hgx-h100@3", "workload": "chat", "slo": {"tpot": "30 ms"},
}  # fmt: skip


def written(folder: Path, **changes: Any) -> str:
    path = folder / "question.yaml"
    path.write_text(yaml.safe_dump({**SCENARIO, **changes}))
    return str(path)


def trace(folder: Path, arrivals: list[float]) -> str:
    path = folder / "trace.csv"
    rows = "".join(f"{at:.3f},1000,100\n" for at in arrivals)
    path.write_text("t_s,input_tokens,output_tokens\n" + rows)
    return str(path)


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["plan", *map(str, words)])


def test_an_hour_has_the_highest_rate_of_its_parts(tmp_path: Path) -> None:
    calm = np.arange(0.0, 3600.0, 10.0)
    busy = np.arange(3600.0, 4200.0, 0.5)  # ten minutes of two requests/s
    rest = np.arange(4200.0, 6000.0, 10.0)
    path = trace(tmp_path, [*calm, *busy, *rest])
    assert hourly(path) == pytest.approx((0.1, 2.0))
    assert hourly(path, 1) == pytest.approx((0.1,))
    with pytest.raises(InstanceError, match=r"--hours: .* lasts 1\.66 h, 3 h are asked for"):
        hourly(path, 3)


def test_requests_that_come_at_once_have_no_rate(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="all requests come at once: they have no rate"):
        hourly(trace(tmp_path, [5.0, 5.0]))


def test_a_scenario_plans_the_hours_of_its_traffic(tmp_path: Path) -> None:
    path = trace(tmp_path, list(np.arange(0.0, 7100.0, 5.0)))
    asked = plan_question(written(tmp_path), traffic=path)
    (model,) = asked.models
    assert model.model == "llama-3.1-8b"
    assert model.slo.tpot == 0.03
    assert model.traffic == path
    assert [peak for _, peak in rates_of(asked)[0]] == pytest.approx([0.2, 0.2], rel=0.02)
    assert [(one.cluster, one.count) for one in asked.units] == [("hgx-h100", 3)]
    bought = plan_question(written(tmp_path), traffic=path, buy=["gb200-nvl72", "hgx-h200"])
    assert [(one.cluster, one.count) for one in bought.units] == [
        ("gb200-nvl72", MOST_CHIPS // 72), ("hgx-h200", MOST_CHIPS // 8),
    ]  # fmt: skip
    assert all(one.reserved_range == (0, one.count) for one in bought.units)


def test_a_rate_that_does_not_change_is_planned_for_a_day(tmp_path: Path) -> None:
    path = written(tmp_path, rate=50)
    assert plan_question(path).models[0].requests_per_s == (50.0,) * 24
    found = run(path, "--hours", 2, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert [hour["requests_per_s"] for hour in document["hours"]] == [{"llama-3.1-8b": 50.0}] * 2
    assert [hour["fleet_by_model"]["llama-3.1-8b"]["hgx-h100"] for hour in document["hours"]]


def test_the_cluster_of_a_scenario_is_one_unit_only_where_its_number_says_so(
    tmp_path: Path,
) -> None:
    """One node was all there was of the kind to buy, and the rate more than all units carry."""
    bought = plan_question(written(tmp_path, cluster="hgx-h100", rate=50), buy=["hgx-h100"])
    assert [one.count for one in bought.units] == [MOST_CHIPS // 8]
    there = plan_question(written(tmp_path, rate=50), buy=["hgx-h100"])
    assert [one.count for one in there.units] == [3]


def test_weights_come_from_the_memory_of_hosts_without_flash(tmp_path: Path) -> None:
    """No unit of MI355X could be planned with: a scenario has no key that says another source than flash."""
    path = written(tmp_path, cluster="mi355x", rate=20, model="llama-3.1-70b")
    found = run(path, "--hours", 1, "--buy", "mi355x", "--json")
    assert found.exit_code == 0, found.output
    (column, *_) = json.loads(found.stdout)["columns"]
    assert 0.1 < column["start_s"] < 60
    quick = Start(None, 0.0)
    chips = {name: load_cluster(name).chips[0].chip for name in ("mi355x", "hgx-h100", "tpu-v7")}
    assert quick.bytes_per_s(chips["mi355x"]) == chips["mi355x"].host_bytes_per_s
    flash = chips["hgx-h100"].tier("flash")
    assert flash is not None
    assert quick.bytes_per_s(chips["hgx-h100"]) == flash.read_bytes_per_s
    units = [PlanUnits(cluster=name, count=1) for name in chips]
    with pytest.raises(InstanceError) as refused:
        Start("disk", 0.0).check(units)
    assert [str(problem) for problem in refused.value.problems] == [
        "load_from: mi355x has no disk tier: say host",
        "load_from: tpu-v7 has no tier, nor is its host_bytes_per_s known: a cluster file with a chip of its own may say it",
    ]


def test_drafts_are_planned_with(tmp_path: Path) -> None:
    drafts = {"draft_tokens": 3, "acceptance": 0.9, "draft": "llama-3.1-8b-eagle3"}
    usd = []
    for more in ({}, {"speculative": drafts}):
        path = written(tmp_path, cluster="hgx-h100@12", rate=100, slo={"tpot": "12 ms"}, **more)
        found = run(path, "--hours", 1, "--json")
        assert found.exit_code == 0, found.output
        usd.append(json.loads(found.stdout)["usd_per_day"])
    assert usd[1] < usd[0]


def test_a_draft_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    drafts = {"acceptance": 0.9, "draft": "./own/config.json"}
    model = {"model": "llama-3.1-8b", "requests_per_s": [1], "speculative": drafts}
    path = tmp_path / "plan.yaml"
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text("{}")
    units = [{"cluster": "hgx-h100", "count": 1}]
    path.write_text(yaml.safe_dump({"name": "one", "models": [model], "units": units}))
    (asked,) = load_plan(str(path)).models
    assert asked.speculative is not None
    assert asked.speculative.draft == str(tmp_path / "own/config.json")


def test_a_plan_of_other_units_and_fewer_hours() -> None:
    whole = load_plan("two-models-day")
    asked = plan_question("two-models-day", buy=["gb200-nvl72"], hours=3)
    assert [one.called for one in asked.models] == [one.called for one in whole.models]
    assert [own[:3] for own in rates_of(whole)] != rates_of(whole)
    assert [[peak for _, peak in own[:3]] for own in rates_of(whole)] == [
        [peak for _, peak in own] for own in rates_of(asked)
    ]
    assert [one.cluster for one in asked.units] == ["gb200-nvl72"]
    kept = plan_question("two-models-day", buy=[whole.units[0].cluster])
    assert kept.units == whole.units[:1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two-models-day", "--hours", 25), "--hours: expected 1 to 24, as many as two-models-day has, got 25"),
        (("two-models-day", "--traffic", "chat-poisson"), "--traffic: two-models-day has 2 models"),
        (("two-models-day", "--buy", "hgx-h100@2"), "--buy: hgx-h100@2: name one unit"),
        (("deepseek-v3-gb200-nvl72",), "scenario: a scenario has no requests by hour"),
        (("two-models-day", "--hours", 10**9), "--hours: expected 1 to 744, got 1000000000"),
        (("glm-5.2-million-tokens",), "scenario: kv_tiers: is not planned with: leave it out"),
        (("nope",), "plans: unknown name 'nope'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(words: tuple[object, ...], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


def planned(folder: Path, *models: dict[str, Any], units: list[dict[str, Any]]) -> str:
    """A plan's file."""
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"name": "p", "models": list(models), "units": units}))
    return str(path)


SMALL = {"model": "llama-3.1-8b", "slo": {"tpot": "30 ms"}, "requests_per_s": [20]}


def test_a_kind_that_an_engine_does_not_run_on_is_left_out_with_a_word(tmp_path: Path) -> None:
    """It refused the whole plan, once other models were searched."""
    units = [{"cluster": kind, "count": 2} for kind in ("hgx-h100", "mi300x")]
    path = planned(tmp_path, {**SMALL, "engine": "vllm"}, units=units)
    document = json.loads(run(path, "--json").stdout)
    (out,) = document["left_out"]
    assert (out["model"], out["unit"]) == ("llama-3.1-8b", "mi300x")
    assert "does not run on mi300x" in out["reason"]
    assert {one["unit"] for one in document["columns"]} == {"hgx-h100"}
    words = run(path, "--buy", "hgx-h100,mi300x").stdout
    assert f"llama-3.1-8b runs on no mi300x: {out['reason']}" in words
    alone = run(path, "--buy", "mi300x,mi325x").exception
    assert isinstance(alone, InstanceError)
    assert len(alone.problems) == 2
    any_engine = planned(tmp_path, {**SMALL, "engine": "any"}, units=units)
    (out,) = json.loads(run(any_engine, "--json").stdout)["left_out"]
    assert "TensorRT-LLM" in out["reason"]


def test_what_is_wrong_with_any_model_is_said_before_the_first_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.plan.offers.offer", lambda *_, **__: pytest.fail("searched"))
    wrong = [
        {**SMALL, "name": "longer", "workload": {"input_tokens": 10**6, "output_tokens": 9}},
        {**SMALL, "name": "none", "model": "llama-9"},
    ]
    units = [{"cluster": "hgx-h100", "count": 2}]
    found = run(planned(tmp_path, SMALL, *wrong, units=units)).exception
    assert isinstance(found, InstanceError)
    assert [str(one).partition(": ")[0] for one in found.problems] == ["longer", "none"]


def test_chips_that_may_be_lost_are_units_of_each_kind(tmp_path: Path) -> None:
    """As many units of any kind were lost as the smallest kind has for so many chips: two of 32 chips for 16."""
    units = [{"cluster": kind, "count": 5} for kind in ("hgx-h100", "gh200-nvl32")]
    path = planned(tmp_path, SMALL, units=units)
    document = json.loads(run(path, "--spare", 16, "--json").stdout)
    assert document["survives"] == {"chips": 16, "of": "any units that hold them, in any hour"}
    left = {one["unit"]: one["requests_per_s"] for one in document["columns"] if one["units"] == 1}
    assert min(left.values()) > 20, "one unit of either is enough"
    large = ("--spare", 16, "--buy", "gh200-nvl32")
    assert json.loads(run(path, *large, "--json").stdout)["hours"][0]["fleet_by_model"] == {
        "llama-3.1-8b": {"gh200-nvl32": 2}
    }
    assert document["hours"][0]["fleet_by_model"] == {"llama-3.1-8b": {"hgx-h100": 3}}
    assert "after the loss of any units that hold 16 chips" in run(path, "--spare", 16).stdout
    alike = json.loads(run(path, "--spare", 8, "--json").stdout)
    assert alike["survives"] == {"units": 1, "of": "any kind, in any hour"}
    message = "--spare: 25 chips are 4 units of hgx-h100; at most 3 are planned for"
    assert message in str(run(path, "--spare", 25).exception)
    both = Path(path).read_text() + "spare: 1\nspare_chips: 8\n"
    Path(path).write_text(both)
    assert "give one of them" in str(run(path).exception)

"""Running a study: failed points are kept apart, finished ones are never asked twice."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.figures.live import specs_of
from rackfit.studies import point as point_module
from rackfit.studies.base import solved
from rackfit.studies.point import Options
from rackfit.studies.run import StudyResult, study
from topology.errors import InstanceError

BASE = {
    "model": "llama-3.1-8b",
    "cluster": "hgx-h100",
    "workload": "chat",
    "slo": {"tpot": 0.03},
}
OVER = {"cluster": ["hgx-h100", "no-such"], "slo.tpot": [0.0005, 0.02, 0.05]}


def ask(cache: Path | None = None, jobs: int = 1) -> StudyResult:
    return study("grid", BASE, over=OVER, jobs=jobs, cache=cache, options=Options(gap=0.05))


@pytest.fixture(scope="module")
def result() -> StudyResult:
    return ask()


def test_failed_points_are_reported_and_the_rest_kept(result: StudyResult) -> None:
    assert [row["status"] for row in result.rows] == [
        "infeasible", "optimal", "optimal", "bad_input", "bad_input", "bad_input",
    ]  # fmt: skip
    assert "0.5 ms" in result.rows[0]["error"]
    assert "no-such" in result.rows[3]["error"]
    assert result.conclusion[-1] == "4 of 6 points have no answer."


def test_a_tighter_target_never_costs_less(result: StudyResult) -> None:
    fast, slow = solved(result.rows)
    assert fast["tpot_s"] <= 0.02
    assert fast["usd_per_m_output_tokens"] >= slow["bound_usd_per_m_output_tokens"]


def test_conclusion_figure_and_table_agree(result: StudyResult, tmp_path: Path) -> None:
    result.write(tmp_path)
    document = json.loads((tmp_path / "grid.json").read_text())
    with (tmp_path / "grid.csv").open() as file:
        table = list(csv.DictReader(file))
    costs = [row["usd_per_m_output_tokens"] for row in document["rows"] if not row["error"]]
    assert [float(row["usd_per_m_output_tokens"]) for row in table if not row["error"]] == costs
    assert f"${min(costs):.4f}" in document["conclusion"][0]
    figure = (tmp_path / "grid.svg").read_text()
    assert all(f"{cost:.4g}" in figure for cost in costs)
    assert figure.count('aria-roledescription="bar"') == len(costs)


def test_finished_points_are_reused_and_only_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(tmp_path)
    assert first.reused == 0
    assert len(list(tmp_path.glob("*.json"))) == 3
    next(iter(tmp_path.glob("*.json"))).write_text("{ broken")
    asked = []
    real = point_module.search
    monkeypatch.setattr(point_module, "search", lambda *a, **k: (asked.append(1), real(*a, **k))[1])
    second = ask(tmp_path)
    assert len(asked) == 1
    assert second.reused == 2
    assert second.rows == first.rows
    study("grid", BASE, over=OVER, cache=tmp_path, options=Options(gap=0.06))
    assert len(asked) == 4


def test_a_bug_in_one_point_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(point_module, "search", broken)
    got = ask(tmp_path)
    assert got.rows[1]["error"] == "ZeroDivisionError: by zero"
    assert got.conclusion == ["No point has an answer."]
    assert list(tmp_path.iterdir()) == []


def test_two_processes_give_the_same_table(result: StudyResult) -> None:
    assert ask(jobs=2).rows == result.rows


def test_wrong_jobs_are_refused() -> None:
    with pytest.raises(InstanceError, match="jobs"):
        ask(jobs=0)


def test_hostile_names_are_escaped(result: StudyResult, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    rows = tuple({**row, "cluster": bad, "bottleneck": bad} for row in result.rows)
    StudyResult(result.study, result.base, result.axes, rows, 0).write(tmp_path)
    assert "<script" not in (tmp_path / "grid.svg").read_text()
    page = (tmp_path / "grid.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    ((_, spec),) = specs_of(page)
    assert any(bad in row["words"] for row in spec["datasets"]["rows"])


def test_command_line(tmp_path: Path) -> None:
    command = [
        "study", "grid", "--over", "model=llama-3.1-8b", "--over", "cluster=hgx-h100,no-such",
        "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(build_app(), command)
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == 2
    assert "cluster=no-such" in done.stderr
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [
        ".csv", ".html", ".json", ".svg",
    ]  # fmt: skip
    none = CliRunner().invoke(build_app(), [*command[:4], "--over", "cluster=no-such"])
    assert none.exit_code == 2
    assert "unknown name 'no-such'; `rackfit catalogue clusters` lists all" in none.stderr
    several = [*command[:4], "--over", "slo.tpot=0.02,0.05", "--over", "cluster=no-such"]
    said = CliRunner().invoke(build_app(), several).stderr
    assert (
        said.count("unknown name 'no-such'") == 1
    )  # with the place of one point, and how many more
    assert "slo.tpot=0.02, cluster=no-such and 1 more: " in said
    tight = [*command[:4], "--over", "slo.tpot=1e-6", "--over", "cluster=hgx-h100,no-such"]
    assert CliRunner().invoke(build_app(), tight).exit_code == 1


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def stop(done: int, total: int, row: object, reused: bool) -> None:
        if done == 2:
            raise KeyboardInterrupt

    options = Options(gap=0.05)
    with pytest.raises(KeyboardInterrupt):
        study("grid", BASE, over=OVER, cache=tmp_path, options=options, on_point=stop)
    assert ask(tmp_path).reused == 2


def test_the_grids_page_says_every_value_and_how_many_chips(
    result: StudyResult, tmp_path: Path
) -> None:
    """Labels of bars were cut after two lines; chips stood in the 24th column of a table that scrolls."""
    result.write(tmp_path)
    page = (tmp_path / "grid.html").read_text()
    ((_, spec),) = specs_of(page)
    found = solved(result.rows)
    labels = {row["x"].replace("\n", " ") for row in spec["datasets"]["rows"]}
    assert labels == {f"cluster {row['cluster']}, tpot {row['slo.tpot']}" for row in found}
    chips = [f"{row['chips_used']} of {row['chips_total']}" for row in found]
    assert [row["about"] for row in spec["datasets"]["rows"]] == [f"{c} chips" for c in chips]
    table = page.split("<h2>Table</h2>")[1]
    head = re.findall(r'<th scope="col">([^<]*)</th>', table)
    assert head[:3] == ["cluster", "slo.tpot", "chips in use"]
    for row, said in zip(found, chips, strict=True):
        assert f"<td>{row['cluster']}</td><td>{row['slo.tpot']}</td><td>{said}</td>" in table

"""``rackfit move``: what stays, what every state in between serves, bytes and seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from costmodel.change.joined import joined
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import resolve_instance
from costmodel.question.workload import Slo
from rackfit.cli.app import build_app
from rackfit.documents.result import read_result
from rackfit.documents.schema import FOLDER
from solver.clock import Clock
from solver.move.between import through
from solver.move.move import Candidate
from solver.move.steps import Walk
from topology.errors import NoLayoutInTime

WORDS = (
    "--model", "deepseek-v2-lite", "--cluster", "hgx-h100@3", "--input-tokens", "1000", "--output-tokens", "200",
    "--ttft", "1s", "--tpot", "20ms",
)  # fmt: skip


def rackfit(*words: object) -> Result:
    return CliRunner().invoke(build_app(), list(map(str, words)))


def moved(*words: object) -> dict[str, Any]:
    found = rackfit("move", *words, "--json")
    assert found.exit_code == 0, (found.output, found.exception)
    return dict(json.loads(found.stdout))


def solved_in(folder: Path) -> Path:
    """What runs: the answer to the question, in a file."""
    path = folder / "running.json"
    found = rackfit("solve", *WORDS, "--out", path)
    assert found.exit_code == 0, found.output
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_in(tmp_path_factory.mktemp("move"))


def states(running: Path, document: dict[str, Any], change: dict[str, Any]) -> list[Layout]:
    """Every state of the steps, built anew from the chips that they name: during and after each."""
    instance, before, _ = read_result(running)
    after = Layout.model_validate(document["layout"])
    new = {one.chips: one for one in after.replicas}
    failed = resolve_instance(instance.scenario.model_copy(update=change)).cluster
    on: dict[tuple[str, ...], tuple[Layout, Any]] = {
        one.chips: (before, one)
        for one in before.replicas
        if failed.usable_ids.issuperset(one.chips)
    }
    found = []
    for step in document["steps"]:
        for one in step["stop"]:
            del on[tuple(one["chips"])]
        found.append(list(on.values()))
        for one in [*step["start"], *step["change_while_running"]]:
            on[tuple(one["chips"])] = (after, new[tuple(one["chips"])])
        found.append(list(on.values()))
    return [
        joined([part.model_copy(update={"replicas": (one,)}) for part, one in state])
        for state in found
    ]


@pytest.mark.parametrize(
    ("words", "change", "during"),
    [
        (("--failed", "r1"), {"failed": ("r1",)}, 240.0),
        (("--tpot", "10ms"), {"slo": Slo(ttft=1.0, tpot=0.01)}, 390.0),
        (("--tpot", "40ms", "--weights-from", "peers"), {"slo": Slo(ttft=1.0, tpot=0.04)}, 600.0),
    ],
)
def test_every_state_between_passes_the_evaluator(
    words: tuple[str, ...], change: dict[str, Any], during: float, running: Path, tmp_path: Path
) -> None:
    out = tmp_path / "after.json"
    document = moved(running, *words, "--within", 0.02, "--during", during, "--out", out)
    schema = json.loads((FOLDER / "move.schema.json").read_text())
    jsonschema.validate(document, schema)
    instance, before, _ = read_result(running)
    asked = resolve_instance(instance.scenario.model_copy(update=change))
    between = through(instance, asked, during)
    assert len(document["steps"]) > 0
    said = [
        document["steps"][i // 2][("during", "after")[i % 2]]
        for i in range(2 * len(document["steps"]))
    ]
    for layout, state in zip(states(running, document, change), said, strict=True):
        judged = evaluate(between, layout)
        assert judged.feasible
        assert state["feasible"]
        assert state["requests_per_s"] == pytest.approx(judged.priced.requests_per_s)
        assert judged.priced.requests_per_s >= document["least_requests_per_s"] - 1e-6
    assert document["least_requests_per_s"] >= min(
        during, document["one_by_one"]["least_requests_per_s"] * (1 - 1e-9)
    )
    final, layout, written = read_result(out)
    assert evaluate(final, layout).feasible
    assert written["layout"] == document["layout"]
    cost = document["evaluation"]["usd_per_m_output_tokens"]
    best = min(one["usd_per_m_output_tokens"] for one in document["candidates"])
    assert document["bound_usd_per_m_output_tokens"] <= cost <= 1.02 * best * (1 + 1e-6)
    assert document["moved_bytes"] == min(
        one["moved_bytes"]
        for one in document["candidates"]
        if one["usd_per_m_output_tokens"] <= 1.02 * best * (1 + 1e-6)
        and one["least_requests_per_s"] >= during
    )
    restart = document["plain_restart"]
    assert document["read_bytes"] < restart["read_bytes"]
    assert document["moved_bytes"] <= document["read_bytes"]
    assert restart["seconds"] > 0
    assert before != layout


def test_what_cannot_be_kept_is_said_with_the_shortfall(running: Path) -> None:
    document = moved(running, "--failed", "r1", "--during", 1200)
    assert not document["before"]["feasible"]
    (broken,) = document["before"]["violations"]
    assert broken["rule"] == "rate_served"
    assert "1200 are asked for" in broken["message"]
    text = rackfit("move", running, "--failed", "r1", "--during", 1200).stdout
    assert "cannot keep to the targets while it goes on" in text
    assert "1200 are asked for" in text


def test_nothing_moves_within_a_budget_of_nothing(running: Path) -> None:
    document = moved(running, "--failed", "r1", "--most-bytes", "0")
    assert document["moved_bytes"] == 0
    dearer = document["evaluation"]["usd_per_m_output_tokens"]
    more = moved(running, "--failed", "r1", "--most-bytes", "1 TB")
    assert more["evaluation"]["usd_per_m_output_tokens"] <= dearer
    assert more["moved_bytes"] <= 1e12


def test_candidates_are_named_for_what_they_are(running: Path) -> None:
    """The cheapest of running replicas may restart them: it is not what runs."""
    document = moved(running, "--failed", "r1")
    names = {one["name"] for one in document["candidates"]}
    assert names == {"best", "kept and new replicas", "of running replicas alone"}
    assert "of running replicas alone" in rackfit("move", running, "--failed", "r1").output


def test_ways_that_take_longer_to_judge_than_there_is_time_are_left_out(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = running, "--tpot", "10ms", "--time-limit", "600"
    assert len(moved(*words)["candidates"]) > 1
    monkeypatch.setattr("solver.move.move._AS_LONG", 1e9)
    (one,) = moved(*words)["candidates"]
    assert one["name"] == "best"  # with the fewest starts
    (one,) = moved(*words, "--most-bytes", "0")["candidates"]
    assert one["name"] != "best"
    assert one["moved_bytes"] == 0


def test_where_the_search_has_no_layout_in_time_what_still_runs_is_the_answer(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise NoLayoutInTime("the time limit came before the first verified layout")

    monkeypatch.setattr("solver.move.move.searched", late)
    document = moved(running, "--failed", "r1")
    schema = json.loads((FOLDER / "move.schema.json").read_text())
    jsonschema.validate(document, schema)
    (one,) = document["candidates"]
    assert one["name"] == "what still runs"
    assert document["moved_bytes"] == 0
    assert document["bound_usd_per_m_output_tokens"] is None
    assert document["steps"] == []
    assert 0 < len(document["layout"]["replicas"]) == document["replicas_that_stay"]
    said = " ".join(rackfit("move", running, "--failed", "r1").output.split())
    assert "the search ended before it had a layout, so that this has no bound" in said
    found = rackfit("move", running, "--tpot", "1ms")  # what runs does not meet that
    assert isinstance(found.exception, NoLayoutInTime)


def test_what_still_runs_is_a_choice_where_the_search_was_stopped(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best layout alone was judged by then, and moves more than is allowed."""

    def stopped(
        ways: list[tuple[str, Walk]], budget: object, clock: Clock, found: list[Candidate]
    ) -> None:
        name, walk = ways[0]
        found.append(Candidate(name, walk, walk.steps))
        clock.stop()

    monkeypatch.setattr("solver.move.move._judge", stopped)
    document = moved(running, "--tpot", "40ms", "--most-bytes", "0")
    assert [one["name"] for one in document["candidates"]] == ["best", "what still runs"]
    assert document["candidates"][0]["moved_bytes"] > document["moved_bytes"] == 0
    cost = document["evaluation"]["usd_per_m_output_tokens"]
    assert 0 < document["bound_usd_per_m_output_tokens"] <= cost
    found = rackfit("move", running, "--tpot", "10ms", "--most-bytes", "0")  # what runs misses that
    assert isinstance(found.exception, NoLayoutInTime)


def test_the_same_layout_is_no_move(running: Path) -> None:
    document = moved(running, running)
    assert document["steps"] == []
    assert document["moved_bytes"] == 0
    assert document["replicas_that_stay"] == len(document["layout"]["replicas"])


def test_a_target_document_is_walked_to(running: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    rackfit("solve", *WORDS[:-1], "10ms", "--out", other)
    near, placed = moved(running, other), moved(running, other, "--as-placed")
    assert near["moved_bytes"] <= placed["moved_bytes"]
    assert placed["layout"] == read_result(other)[2]["layout"]
    compared = json.loads(rackfit("diff", running, other, "--json").stdout)
    assert placed["moved_bytes"] == pytest.approx(compared["bytes_to_load"])


def test_a_scenario_is_solved_from_what_runs(running: Path, tmp_path: Path) -> None:
    instance, _, _ = read_result(running)
    scenario = tmp_path / "asked.json"
    asked = instance.scenario.model_copy(update={"failed": ("r1",)})
    scenario.write_text(json.dumps(asked.model_dump(mode="json", exclude_none=True)))
    assert moved(running, scenario)["layout"] == moved(running, "--failed", "r1")["layout"]

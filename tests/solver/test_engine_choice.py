"""The engine as a choice: the cheapest of the engines, under the least of their bounds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.engine_files import engine_names, engine_versions
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.api import make_instance, solve
from rackfit.cli.app import main
from rackfit.documents.result import Result, read_result
from rackfit.report.uncertainty_words import engine_lines
from solver.answer import Progress, SearchResult
from solver.clock import Clock
from solver.engine_choice import Keep, Searched, cheapest_engine
from topology.errors import InstanceError, NoFeasibleLayout


def scenario(engine: str, cluster: str = "hgx-h100", model: str = "gpt-oss-120b") -> Scenario:
    workload = Workload(input_tokens=4000, output_tokens=1000)
    return Scenario(
        model=model,
        cluster=cluster,
        workload=workload,
        slo=Slo(ttft=2.0, tpot=0.015),
        engine=engine,
    )


@cache
def answered(engine: str) -> Result:
    return solve(scenario(engine), workers=1)


def test_any_is_the_cheapest_engine_alone() -> None:
    found = answered("any")
    alone = {name: answered(name) for name in engine_names()}
    costs = {name: one.evaluation.usd_per_m_output_tokens for name, one in alone.items()}
    assert found.evaluation.usd_per_m_output_tokens == min(costs.values())
    cheapest = min(costs, key=costs.__getitem__)
    assert found.instance.scenario.engine == f"{cheapest}@{engine_versions(cheapest)[0]}"
    assert found.layout == alone[cheapest].layout
    assert evaluate(found.instance, found.layout).violations == ()
    bounds = [one.certificate.bound_usd_per_m_output_tokens for one in alone.values()]
    assert found.certificate.bound_usd_per_m_output_tokens == min(bounds)
    assert found.status == "optimal"
    said = {one.engine.partition("@")[0]: one for one in found.search.engines}
    assert {name: one.usd_per_m_output_tokens for name, one in said.items()} == costs
    assert all(one.label in found.certificate.covers[0] for one in said.values())


def test_the_answer_says_what_each_engine_costs(tmp_path: Path) -> None:
    found = answered("any")
    lines = engine_lines(found)
    assert len(lines) == len(engine_names())
    assert lines[0].endswith("(this answer)")
    assert engine_lines(answered("vllm")) == []
    path = tmp_path / "layout.json"
    found.write(path)
    instance, layout, data = read_result(path)
    assert [one["engine"] for one in data["engines"]] == [e.engine for e in found.search.engines]
    assert instance.engine == found.instance.engine
    assert evaluate(instance, layout).violations == ()
    written = json.loads(path.read_text())["instance"]["scenario"]["engine"]
    assert written == data["engines"][0]["engine"]


def played(seen: list[str], clock: Clock, stopped: list[SearchResult]) -> SearchResult:
    """The choice over the answers of each engine; what is kept during each search, and whose runner-up is sought."""

    def one(
        question: Instance, progress: Callable[[Progress], None] | None, keep: Keep
    ) -> Searched:
        name = str(question.scenario.engine).partition("@")[0]
        found = answered(name).search
        keep(lambda: None)
        if (kept := clock.kept()) is not None:
            stopped.append(kept)

        def finish() -> SearchResult:
            seen.append(name)
            return found

        return found, finish

    instance = make_instance(scenario("any"))
    return cheapest_engine(instance, one, clock=clock, gap=0.01, seed=0, on_progress=None)


def test_a_runner_up_is_sought_where_it_may_become_the_answer() -> None:
    seen: list[str] = []
    clock = Clock()
    found = played(seen, clock, [])
    cost = found.evaluation.usd_per_m_output_tokens
    assert cost is not None
    may = [
        name
        for name in engine_names()
        if answered(name).certificate.bound_usd_per_m_output_tokens < cost
    ]
    assert found.instance is not None
    chosen = str(found.instance.scenario.engine).partition("@")[0]
    assert sorted(seen) == sorted({chosen, *may})
    assert len(seen) < len(engine_names())
    assert clock.kept().certificate == found.certificate


def test_an_engine_that_was_searched_is_kept_while_the_next_one_is() -> None:
    stopped: list[SearchResult] = []
    played([], Clock(), stopped)
    assert len(stopped) == len(engine_names()) - 1
    names = [str(one.instance.scenario.engine) for one in stopped if one.instance is not None]
    assert names[0].startswith(engine_names()[0])
    assert all("alone" in one.certificate.covers[0] for one in stopped)


def test_an_engine_that_refuses_is_left_out_with_its_reason() -> None:
    """No engine but TensorRT-LLM is without a list of its model classes; PaLM is in none."""
    short = Workload(input_tokens=1000, output_tokens=100)
    asked = scenario("any", model="palm-540b", cluster="hgx-h200@2")
    found = solve(asked.model_copy(update={"slo": Slo(), "workload": short}), workers=1)
    said = {one.engine.partition("@")[0]: one for one in found.search.engines}
    assert said["vllm"].usd_per_m_output_tokens is None
    assert "has no class for palm-540b" in said["vllm"].reason
    assert said["trtllm"].usd_per_m_output_tokens is not None
    assert any("vLLM 0.33.0 alone: nothing" in line for line in engine_lines(found))
    assert found.status == "optimal"


def test_nothing_is_said_engine_by_engine() -> None:
    with pytest.raises(NoFeasibleLayout, match=r"(?s)SGLang.*TensorRT-LLM.*vLLM") as stop:
        solve(scenario("any", model="deepseek-v3"), workers=1)
    assert stop.value.proven
    with pytest.raises(InstanceError, match="does not run on") as refused:
        solve(scenario("any", cluster="tpu-v5e"), workers=1)
    assert len(refused.value.problems) == len(engine_names())


def test_explain_wants_one_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "--model", "gpt-oss-120b", "--cluster", "hgx-h100", "--engine", "any"]
    monkeypatch.setattr(sys, "argv", ["rackfit", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "name one engine here" in capsys.readouterr().err

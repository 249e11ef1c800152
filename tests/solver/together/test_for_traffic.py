"""Several models with traffic on one cluster: each meets its percentiles on chips of its own, and the bound holds for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import judged
from costmodel.together.question import Models, load_together, resolve_together
from rackfit.cli.app import build_app
from rackfit.documents.result import read_result
from rackfit.documents.schema import FOLDER
from solver.answer import SearchResult
from solver.clock import Clock
from solver.together.for_traffic import divide_for_traffic, traffic_of
from solver.traffic.asked import Asked
from solver.traffic.losses import losses
from solver.traffic.search import search_traffic
from tests.solver.traffic.few_draws import few_draws
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime

#: how near searches go: what is tested holds for any layout that they find
GAP = 0.5
#: every fifth request of a trace, in a file beside the question
TRAFFIC = "chats.csv"
SMALL = {
    "model": "llama-3.1-8b", "workload": "chat", "slo": {"ttft": "1 s", "tpot": "30 ms"},
    "traffic": TRAFFIC, "rate": 8,
}  # fmt: skip
LARGE = {
    "model": "llama-3.1-70b", "workload": "chat", "slo": {"ttft": "3 s", "tpot": "60 ms"},
    "traffic": TRAFFIC, "rate": 2.5, "goodput": 0.99,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def few() -> Iterator[None]:
    with few_draws():
        yield


@cache
def chats() -> str:
    """Nearly 2,000 requests, as many as a draw has at least."""
    found = load_traffic("azure-conversation-2023").rows(np.arange(0, 9739, 5))
    columns = (found.arrival_s, found.input_tokens, found.output_tokens)
    rows = (f"{at:.3f},{prompt},{answer}\n" for at, prompt, answer in zip(*columns, strict=True))
    return "".join(("t_s,input_tokens,output_tokens\n", *rows))


def written(folder: Path, *models: object, **changes: Any) -> Path:
    (folder / TRAFFIC).write_text(chats())
    path = folder / "several.yaml"
    path.write_text(yaml.safe_dump({"cluster": "hgx-h200", "models": list(models), **changes}))
    return path


def asked(folder: Path, *models: object, **changes: Any) -> Models:
    return resolve_together(load_together(str(written(folder, *models, **changes))))


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), list(map(str, words)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    """Both models on one node: the document, the folder it is in, and what was printed."""
    folder = tmp_path_factory.mktemp("traffic")
    found = run("solve", written(folder, SMALL, LARGE), "--gap", GAP, "--out", folder / "out")
    assert found.exit_code == 0, found.output
    document = json.loads((folder / "out" / "together.json").read_text())
    return document, folder / "out", found.stdout


def test_each_layout_meets_fresh_requests_on_chips_of_its_own(
    made: tuple[dict[str, Any], Path, str], tmp_path: Path
) -> None:
    document, folder, _ = made
    jsonschema.validate(document, json.loads((FOLDER / "together.schema.json").read_text()))
    each = traffic_of(asked(tmp_path, SMALL, LARGE), 0)
    used: list[str] = []
    for one, own in zip(document["models"], each, strict=True):
        assert one["result"]["traffic"]["confirmed"]
        assert one["rate"] == pytest.approx(own.peak_rate)
        instance, layout, _ = read_result(folder / one["file"])
        for draw in range(3):
            met = replay(instance, layout, own.another(0, 100 + draw), Course.of(instance))
            assert judged(met, own.targets).meets
        used += [chip for replica in layout.replicas for chip in replica.chips]
    assert len(used) == len(set(used)) == document["chips_used"] <= 8


def test_the_bound_is_what_all_models_cost_at_least_alone(
    made: tuple[dict[str, Any], Path, str], tmp_path: Path
) -> None:
    document, _, _ = made
    least = 0.0
    models = asked(tmp_path, SMALL, LARGE)
    for instance, own in zip(models.instances, traffic_of(models, 0), strict=True):
        found = search_traffic(instance.scenario, own, clock=Clock(), gap=GAP)
        money = found.evaluation.usd_per_hour
        assert money is not None
        least += money / (1 + found.certificate.gap)
    proof = document["certificate"]
    assert proof["bound_usd_per_hour"] == pytest.approx(least, rel=1e-6)
    assert document["usd_per_hour"] == pytest.approx(least * (1 + proof["gap"]))
    assert sum(one["bound_alone_usd_per_hour"] for one in document["models"]) == pytest.approx(
        least
    )


def test_the_words_say_what_replays_met(made: tuple[dict[str, Any], Path, str]) -> None:
    _, _, said = made
    assert "all met TTFT P99 1 s, TPOT P99 30 ms" in said
    assert "all met TTFT P99 3 s, TPOT P99 60 ms, goodput 99.0%" in said
    assert "2 models on" in said


def test_after_the_loss_of_any_node_each_model_meets_its_targets_at_its_peak(
    tmp_path: Path,
) -> None:
    small = SMALL | {"rate": 20, "peak": 2}
    models = asked(tmp_path, small, SMALL | {"name": "b"}, cluster="hgx-h100@3", spare="node")
    found = divide_for_traffic(models, clock=Clock(), gap=GAP)
    each = traffic_of(models, 0)
    assert each[0].peak_rate == pytest.approx(40.0)
    for at, (layout, own) in enumerate(zip(found.layouts, each, strict=True)):
        left = list(losses(found.judged.instances[at], layout, "node"))
        assert left
        assert found.replayed[at].losses == len(left)
        instance = found.judged.instances[at]
        for rest in left:
            met = replay(instance, rest, own.runs(0)[1], Course.of(instance))
            assert judged(met, own.targets).meets


def test_models_that_fit_alone_but_not_together_are_refused_with_what_each_needs(
    tmp_path: Path,
) -> None:
    names = ("a", "b", "c")
    failed = "+".join(f"r0g{chip}" for chip in range(2, 8))
    models = asked(tmp_path, *(SMALL | {"name": name} for name in names), failed=failed)
    with pytest.raises(
        NoFeasibleLayout, match=r"its 2 chips .* a at least \$1.*for 8 requests/s"
    ) as error:
        divide_for_traffic(models, clock=Clock(), gap=GAP)
    assert error.value.proven


def test_a_model_whose_share_of_the_time_is_too_short_has_what_the_others_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two minutes four searches have shares; the second model needs more than its own, and there is more."""
    shares: list[tuple[str, float]] = []
    needs = {"llama-3.1-8b": 1.0, "llama-3.1-70b": 50.0}

    def searched(scenario: Scenario, asked: Asked, *, clock: Clock, **how: Any) -> SearchResult:
        assert clock.limit_s is not None
        shares.append((scenario.model, clock.limit_s))
        if clock.limit_s < needs[scenario.model]:
            raise NoLayoutInTime("the time limit came before a layout")
        return search_traffic(scenario, asked, clock=Clock(), **how)

    monkeypatch.setattr("solver.together.for_traffic.search_traffic", searched)
    models = asked(tmp_path, SMALL, LARGE)
    found = divide_for_traffic(models, clock=Clock(120), gap=GAP)
    assert len(found.layouts) == 2
    assert [name for name, _ in shares[:3]] == ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-70b"]
    assert shares[0][1] == pytest.approx(30, abs=2)
    assert shares[2][1] > 2 * shares[1][1]
    needs["llama-3.1-70b"] = 1000.0
    with pytest.raises(NoLayoutInTime, match=r"llama-3\.1-70b: the time limit came"):
        divide_for_traffic(models, clock=Clock(120), gap=GAP)


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        ([SMALL, {**LARGE, "traffic": None, "goodput": None}], {}, "llama-3.1-70b needs one too"),
        ([SMALL], {"pay": "whole"}, "pay: whole is for steady rates"),
        ([{**SMALL, "traffic": None, "goodput": 0.9}], {}, "goodput and peak are of traffic"),
        ([{**SMALL, "traffic": None}], {"spare": "node"}, "spare is of traffic"),
        ([{**SMALL, "slo": {}}], {}, "traffic has no target"),
        (
            [{"model": "llama-3.1-8b", "workload": "chat"}],
            {},
            r"models\[0\].rate: is missing: give a rate, or traffic",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, models: list[object], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InstanceError, match=message):
        asked(tmp_path, *models, **changes)


def test_all_traffic_that_cannot_be_read_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "at-once.csv").write_text("t_s,input_tokens,output_tokens\n0,10,10\n0,20,20\n")
    models = asked(
        tmp_path,
        {**SMALL, "traffic": "at-once.csv", "rate": None},
        {**LARGE, "traffic": "no-such-trace"},
    )
    with pytest.raises(InstanceError) as error:
        divide_for_traffic(models, clock=Clock())
    assert error.value.problems[0].place == "models[0].traffic"
    assert "no-such-trace" in str(error.value)


def test_requests_longer_than_a_model_supports_are_named_with_its_place(tmp_path: Path) -> None:
    """The message came after the search for the model before it, and did not say which of the models it spoke of."""
    models = asked(
        tmp_path,
        {**SMALL, "traffic": "chat-poisson", "rate": 1.0},
        {
            **LARGE,
            "model": "olmoe-1b-7b",
            "traffic": "azure-code-2023",
            "rate": 1.0,
            "workload": {"input_tokens": 1000, "output_tokens": 100},
        },
    )
    with pytest.raises(InstanceError) as error:
        divide_for_traffic(models, clock=Clock())
    (problem,) = error.value.problems
    assert problem.place == "models[1].workload"
    assert "more than the 4096 positions that olmoe-1b-7b supports" in problem.message

"""The hunt sees planted faults, and draws and alters questions as it says. ``make hunt`` asks thousands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.hunt import asking
from benchmarks.hunt.asking import ask
from benchmarks.hunt.clusters import DrawnCluster, _draw_failures
from benchmarks.hunt.models import described
from benchmarks.hunt.neighbours import neighbours
from benchmarks.hunt.outcome import Outcome
from benchmarks.hunt.questions import Question, draw_question
from benchmarks.hunt.running import hunt
from benchmarks.hunt.summary import read_outcomes, summary
from benchmarks.hunt.variants import draw_variants
from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import load_scenario
from rackfit.api import solve
from rackfit.documents.result import Result
from solver.certificate import Certificate
from topology.errors import VerificationError

NODE = {"rack": "node", "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}}


def question(*sizes: int) -> Question:
    """A small dense model on nodes of so many H100."""
    domains = [{**NODE, "chips": [{"chip": "h100", "count": size}]} for size in sizes]
    cluster = DrawnCluster(domains, {"kind": "leaf-spine"} if len(sizes) > 1 else None)
    workload = {"input_tokens": 1000, "output_tokens": 200}
    scenario = {"workload": workload, "slo": {"tpot": 0.03}, "pay": "used"}
    return Question(3, described("llama-3.1-8b", None), cluster, scenario)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawn question is one node of four chips."""
    monkeypatch.setattr(asking, "draw_question", lambda seed, folder: question(4))


Solve = Callable[..., Result]


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[Result], Result]) -> None:
    def changed(instance: Instance, **options: Any) -> Result:
        return change(solve(instance, **options))

    monkeypatch.setattr(asking, "solve", changed)


def kinds(outcome: Outcome) -> set[str]:
    return {failure["kind"] for failure in outcome.failures}


@pytest.mark.usefixtures("asked")
def test_a_bound_that_is_too_high_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def raised(result: Result) -> Result:
        proof = result.certificate
        higher = Certificate(proof.bound_usd_per_m_output_tokens * 1.03, proof.gap, proof.covers)
        return replace(result, search=replace(result.search, certificate=higher))

    assert not ask(3, tmp_path / "before").failures
    planted(monkeypatch, raised)
    assert {"bound beaten", "contradiction"} <= kinds(ask(3, tmp_path / "after"))


@pytest.mark.usefixtures("asked")
def test_figures_that_move_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def flattered(result: Result) -> Result:
        better = replace(result.evaluation, ttft_s=result.evaluation.ttft_s * 0.999)
        return replace(result, search=replace(result.search, evaluation=better))

    planted(monkeypatch, flattered)
    outcome = ask(3, tmp_path)
    assert kinds(outcome) == {"figures move"}
    assert "ttft_s" in outcome.failures[0]["detail"]


@pytest.mark.usefixtures("asked")
def test_a_failed_verification_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(instance: Instance, **options: Any) -> Result:
        raise VerificationError("planted")

    monkeypatch.setattr(asking, "solve", failing)
    assert kinds(ask(3, tmp_path)) == {"exit 4"}


def test_a_question_is_its_seed(tmp_path: Path) -> None:
    for seed in (3, 4, 5):
        texts = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            draw_question(seed, folder).write(folder)
            texts.append({path.name: path.read_text() for path in folder.iterdir()})
        assert texts[0] == texts[1]


def test_layouts_around_an_answer_are_layouts(tmp_path: Path) -> None:
    """Every rule of form holds for them, and their batches add up."""
    instance = resolve_instance(load_scenario(str(question(4).write(tmp_path))))
    result = solve(instance, time_limit_s=60)
    made = list(neighbours(result.layout))
    assert made
    for words, layout in made:
        broken = {violation.rule for violation in evaluate(instance, layout).violations}
        # (limits: one prompt more than a full prefill pass takes)
        held = {"hbm_capacity", "limits", "ttft_target", "tpot_target", "uplink_capacity"}
        assert broken <= held, words


def test_domains_in_another_order_hold_the_same_layouts(tmp_path: Path) -> None:
    asked = question(4, 2, 8)
    instance = resolve_instance(load_scenario(str(asked.write(tmp_path))))
    result = solve(instance, time_limit_s=60)
    variants = {variant.name: variant for variant in draw_variants(asked, (), 99)}
    permuted = variants["domains in another order"]
    assert permuted.places != dict(enumerate(permuted.places))
    other = resolve_instance(load_scenario(str(permuted.question.write(tmp_path / "permuted"))))
    there = permuted.here(result.layout)
    judged = evaluate(other, there)
    assert judged.usd_per_m_output_tokens == result.evaluation.usd_per_m_output_tokens
    assert permuted.back(there) == result.layout


def test_a_hunt_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "hunt.jsonl"
    known = Outcome(7, answer="optimal", cost=1.0, gap=0.0, binding="proven").as_dict()
    out.write_text(json.dumps(known) + "\n" + '{"seed": 80, "ans')
    assert list(read_outcomes(out)) == [7]
    hunt([8], out, processes=1)
    found = read_outcomes(out)
    assert set(found) == {7, 8}
    assert found[8]["answer"]
    text = summary(found)
    assert "questions          2: " in text
    assert "uplink binds       1 proven" in text


def test_failures_have_names_of_chips_that_are_there() -> None:
    """A row of several domains counts each of them."""
    node = {**NODE, "chips": [{"chip": "h100", "count": 8}], "count": 3}
    small = {**NODE, "chips": [{"chip": "h100", "count": 2}]}
    for seed in range(200):
        cluster = DrawnCluster([node, small], {"kind": "leaf-spine"})
        _draw_failures(Random(seed), cluster)
        for name in (*cluster.failed, *cluster.taken):
            chip = re.fullmatch(r"r(\d+)g(\d+)(\.nic)?", name)
            if chip is not None:
                assert int(chip[2]) < (2 if chip[1] == "3" else 8), name
                assert chip[1] in ("0", "3")

"""The hunt sees planted faults, and draws and alters questions as it says. ``make hunt`` asks thousands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hunt import asking
from benchmarks.hunt.asking import ask
from benchmarks.hunt.neighbours import neighbours
from benchmarks.hunt.questions import draw_question
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

#: questions that are solved at once: one domain of one chip type, and two domains
ONE, TWO = 14, 4

Solve = Callable[..., Result]


def planted(monkeypatch: pytest.MonkeyPatch, change: Callable[[Result], Result]) -> None:
    def changed(instance: Instance, **options: Any) -> Result:
        return change(solve(instance, **options))

    monkeypatch.setattr(asking, "solve", changed)


def kinds(outcome: asking.Outcome) -> set[str]:
    return {failure["kind"] for failure in outcome.failures}


def test_a_bound_that_is_too_high_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def raised(result: Result) -> Result:
        proof = result.certificate
        higher = Certificate(proof.bound_usd_per_m_output_tokens * 1.03, proof.gap, proof.covers)
        return replace(result, search=replace(result.search, certificate=higher))

    assert not ask(ONE, tmp_path / "before").failures
    planted(monkeypatch, raised)
    assert {"bound beaten", "contradiction"} <= kinds(ask(ONE, tmp_path / "after"))


def test_figures_that_move_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def flattered(result: Result) -> Result:
        better = replace(result.evaluation, ttft_s=result.evaluation.ttft_s * 0.999)
        return replace(result, search=replace(result.search, evaluation=better))

    planted(monkeypatch, flattered)
    outcome = ask(ONE, tmp_path)
    assert kinds(outcome) == {"figures move"}
    assert "ttft_s" in outcome.failures[0]["detail"]


def test_a_failed_verification_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(instance: Instance, **options: Any) -> Result:
        raise VerificationError("planted")

    monkeypatch.setattr(asking, "solve", failing)
    assert kinds(ask(ONE, tmp_path)) == {"exit 4"}


def test_a_question_is_its_seed(tmp_path: Path) -> None:
    for seed in (3, 4, 5):
        texts = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            draw_question(seed, folder).write(folder)
            texts.append({path.name: path.read_text() for path in folder.iterdir()})
        assert texts[0] == texts[1]


def test_layouts_around_an_answer_are_layouts(tmp_path: Path) -> None:
    """Every rule of form holds for them, and their batches add up."""
    instance = resolve_instance(load_scenario(str(draw_question(TWO, tmp_path).write(tmp_path))))
    result = solve(instance, time_limit_s=60)
    made = list(neighbours(result.layout))
    assert made
    for words, layout in made:
        broken = {violation.rule for violation in evaluate(instance, layout).violations}
        assert broken <= {"hbm_capacity", "ttft_target", "tpot_target", "uplink_capacity"}, words


def test_domains_in_another_order_hold_the_same_layouts(tmp_path: Path) -> None:
    question = draw_question(TWO, tmp_path)
    question.cluster.scale_out = {"kind": "leaf-spine"}  # a leaf for every domain
    instance = resolve_instance(load_scenario(str(question.write(tmp_path))))
    result = solve(instance, time_limit_s=60)
    variants = {variant.name: variant for variant in draw_variants(question, (), 99)}
    permuted = variants["domains in another order"]
    assert permuted.places != dict(enumerate(permuted.places))
    other = resolve_instance(load_scenario(str(permuted.question.write(tmp_path / "permuted"))))
    there = permuted.here(result.layout)
    judged = evaluate(other, there)
    assert judged.usd_per_m_output_tokens == result.evaluation.usd_per_m_output_tokens
    assert permuted.back(there) == result.layout


def test_a_hunt_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "hunt.jsonl"
    known = asking.Outcome(ONE, answer="optimal", cost=1.0, gap=0.0, binding="proven").as_dict()
    out.write_text(json.dumps(known) + "\n" + '{"seed": 80, "ans')
    assert list(read_outcomes(out)) == [ONE]
    hunt([TWO], out, processes=1)
    found = read_outcomes(out)
    assert set(found) == {ONE, TWO}
    assert found[TWO]["cost"] > 0
    text = summary(found)
    assert "questions          2: 2 optimal" in text
    assert "uplink binds       1 proven" in text

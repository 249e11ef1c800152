"""An answer for one engine is exported as it stands; of any other answer the evaluator says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import solved

from costmodel.evaluate import evaluate
from costmodel.question.engine_files import EngineName, load_engine
from rackfit.exporters.export import export_layout
from rackfit.importers.running import evaluate_running, verdict

ENGINES: tuple[EngineName, ...] = ("sglang", "trtllm", "vllm")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "cluster"),
    [("gpt-oss-120b", "hgx-h100"), ("llama-3.1-70b", "hgx-h100"), ("deepseek-v3", "gb200-nvl72")],
)
def test_the_answer_is_exported_without_loss(engine: EngineName, model: str, cluster: str) -> None:
    result = solved(model, cluster, engine)
    exported = export_layout(result.instance, result.layout, engine)
    assert exported.limits == ()
    assert exported.loss == 0
    assert not any("no configuration" in note for note in exported.notes)
    assert any(load_engine(engine).title in line for line in result.certificate.covers)
    assert result.certificate.gap < 0.01


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_makes_no_layout_cheaper(engine: EngineName) -> None:
    free = solved("gpt-oss-120b", "hgx-h100").certificate
    held = solved("gpt-oss-120b", "hgx-h100", engine).evaluation.usd_per_m_output_tokens
    assert held is not None
    assert held >= free.bound_usd_per_m_output_tokens


def test_the_evaluator_names_what_an_engine_does_not_run() -> None:
    for engine, model, cluster, text in (
        ("vllm", "deepseek-v3", "gb200-nvl72", "vLLM loads no placement"),
        ("sglang", "qwen3-235b-a22b", "hgx-h200@2", "SGLang gives every chip the same number"),
        ("trtllm", "gpt-oss-120b", "hgx-h100", "TensorRT-LLM gives every chip the same number"),
    ):
        result = solved(model, cluster)
        scenario = result.instance.scenario.model_copy(update={"engine": engine})
        judged = evaluate(replace(result.instance, scenario=scenario), result.layout)
        found = [str(one) for one in judged.violations if one.rule == "engine_runs"]
        assert any(text in message for message in found), found
        now, before = judged.usd_per_m_output_tokens, result.evaluation.usd_per_m_output_tokens
        assert now is not None
        assert before is not None
        assert now >= before  # collectives in place of all-to-all cost more, never less


def test_what_runs_is_compared_with_what_its_engine_runs(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("vllm serve x --tensor-parallel-size 8 --enable-expert-parallel\n")
    scenario = solved("gpt-oss-120b", "hgx-h100", "vllm").instance.scenario
    running = evaluate_running(scenario, "vllm", script, compare=True)
    assert running.instead is not None
    assert running.evaluation.feasible
    assert evaluate(running.instead.instance, running.instead.layout).violations == ()
    assert running.excess is not None
    assert f"{running.excess:.1%} more than needed" in verdict(running)
    assert verdict(running).endswith("of the best that vLLM runs\n")

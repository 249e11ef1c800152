"""KV outside HBM in launch files: refused where passes read it, noted where it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvTier, Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout, write_files
from rackfit.importers.deployment import import_deployment
from solver.kv_search import kv_plans
from solver.place.held_kv import with_idle
from topology.errors import ExportError, InstanceError

WORKLOAD = {"input_tokens": 4000, "output_tokens": 500, "cached_tokens": 3000, "hold_s": 100,
            "return_rate": 0.5}  # fmt: skip


def layout(tier: str, idle_in: str | None = None) -> Layout:
    kv = [{"chip": "r0g0", "tier": tier, "sequences": 8, "bytes": 3.9e9}]
    if idle_in is not None:
        idle = {"tier": idle_in, "idle": True, "sequences": 50, "bytes": 2e10}
        kv.append({"chip": "r0g0", **idle})
    shape = {"tp": 1, "ep": 1, "pp": 1, "attention_dp": 1, "batch": 8}
    stage = {"layers": [0, 31], "chips": ["r0g0"]}
    replica = {"role": "mixed", "shape": shape, "stages": [stage], "kv": kv}
    return Layout.model_validate({"replicas": [replica]})


@pytest.fixture
def instance() -> Instance:
    scenario = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": WORKLOAD,
                "kv_tiers": ["host", "flash"]}  # fmt: skip
    return resolve_instance(Scenario.model_validate(scenario))


@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm", "dynamo", "slurm"])
def test_caches_read_from_a_tier_are_refused(instance: Instance, target: str) -> None:
    with pytest.raises(ExportError, match="every pass reads KV from host"):
        export_layout(instance, layout("host"), target)


def test_the_judge_and_the_search_keep_running_kv_in_hbm_under_an_engine(
    instance: Instance,
) -> None:
    asked = instance.scenario.model_copy(update={"engine": "trtllm", "kv_tiers": ("host",)})
    under = resolve_instance(asked)
    broken = [v for v in evaluate(under, layout("host")).violations if v.rule == "engine_runs"]
    assert [v.message.partition(";")[0] for v in broken] == ["every pass reads KV from host"]
    assert "engine_runs" not in {v.rule for v in evaluate(instance, layout("host")).violations}
    assert {plan.generate for plan in kv_plans(under)} == {"hbm"}
    assert {plan.generate for plan in kv_plans(instance)} == {"hbm", "host"}


def test_idle_kv_is_noted(instance: Instance) -> None:
    notes = export_layout(instance, layout("hbm", "flash"), "sglang").notes
    assert any("20 GB of idle KV in flash of the mixed replicas" in note for note in notes), notes
    plain = export_layout(instance, layout("hbm", "flash"), "json")
    assert not any("idle KV" in note for note in plain.notes)
    assert '"tier": "flash"' in "".join(plain.files.values())


@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm"])
@pytest.mark.parametrize("tier", ["hbm", "host"])
def test_idle_kv_is_read_back_to_the_same_figures(
    instance: Instance, target: str, tier: KvTier, tmp_path: Path
) -> None:
    plain = layout("hbm")
    kept = with_idle(instance, plain.replicas[0], tier, 50)
    held = Layout(replicas=(kept,))
    exported = export_layout(instance, held, target)
    write_files(exported.files, tmp_path / "out")
    read = import_deployment(instance, target, tmp_path / "out").layout
    assert read.replicas[0].idle_kv == kept.idle_kv
    judged = evaluate(instance, read)
    assert judged.usd_per_m_output_tokens == pytest.approx(
        exported.deployed.usd_per_m_output_tokens
    )
    without = evaluate(instance, plain).usd_per_m_output_tokens
    assert judged.usd_per_m_output_tokens != pytest.approx(without)


def test_a_remark_on_idle_kv_that_cannot_be_is_refused(instance: Instance, tmp_path: Path) -> None:
    commands = tmp_path / "commands.sh"
    for wrong in ("tape:4", "hbm", "hbm:many", "hbm:-1"):
        commands.write_text(f"# rackfit: idle={wrong}\nvllm serve m --max-num-seqs 3\n")
        with pytest.raises(InstanceError, match="idle"):
            import_deployment(instance, "vllm", commands)

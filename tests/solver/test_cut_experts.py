"""Searches cut experts where that serves cheapest, and their proofs cover it."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.search import search
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import cuts_experts


def asked(**more: object) -> Instance:
    workload = {"input_tokens": 4000, "output_tokens": 1000}
    data = {
        "model": "gpt-oss-120b", "cluster": "hgx-h200", "workload": workload, "slo": {"tpot": "6 ms"},
        **more,
    }  # fmt: skip
    return resolve_instance(Scenario.model_validate(data))


def test_a_server_without_expert_parallelism_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an engine that places no experts, uneven loads make whole ones a fifth dearer; nothing lies below the bound."""
    instance = asked(engine="vllm")
    found = search(instance, clock=Clock(60), gap=0.01)
    cost = found.evaluation.usd_per_m_output_tokens
    assert cost is not None
    assert any(replica.cuts_experts for replica in found.layout.replicas)
    assert any(
        "each expert cut over all chips of a stage of 2, 3, 4" in one
        for one in found.certificate.covers
    )
    assert any("slices of fewer than 128 columns" in one for one in found.certificate.covers)
    again = evaluate(instance, found.layout)
    assert not again.violations
    cut = [replica.stages[0] for replica in found.layout.replicas if replica.cuts_experts]
    maps = found.layout.expert_maps
    every = {layer: tuple(range(128)) for layer in instance.operations.moe_layers}
    assert all(maps[stage.expert_map or ""] == every for stage in cut)
    wrong = maps | {stage.expert_map or "": {0: (1, 1)} for stage in cut}
    said = evaluate(instance, found.layout.model_copy(update={"expert_maps": wrong})).violations
    assert {one.rule for one in said} == {"experts_placed"}
    assert "a map lists every expert once" in said[0].message
    assert again.usd_per_m_output_tokens == pytest.approx(cost, rel=1e-12)
    exported = export_layout(instance, found.layout, "vllm")
    assert exported.loss == 0.0
    assert "--enable-expert-parallel" not in exported.files["commands.sh"]
    monkeypatch.setattr("solver.shapes.shapes.NARROWEST", 10**6)
    # another name, as what an earlier search knows of a question is kept
    whole = search(asked(engine="vllm", name="whole"), clock=Clock(60), gap=0.01)
    assert whole.certificate.bound_usd_per_m_output_tokens > cost
    assert (
        "not covered: experts that are each cut over all chips of a stage"
        in whole.certificate.covers
    )


def test_slices_are_filled_up_as_engines_fill_them() -> None:
    """gpt-oss in MXFP4: 90 blocks of 32 columns, every buffer a multiple of 64; in bfloat16 slices are equal."""
    mxfp4, bf16 = asked(), asked(weight_dtype="bf16")
    columns = {2: 1472, 3: 960, 4: 768, 5: 576, 6: 512, 7: 448, 8: 384}
    assert [chips for chips in range(1, 9) if cuts_experts(mxfp4, chips)] == list(columns)
    assert [chips for chips in range(1, 9) if cuts_experts(bf16, chips)] == [2, 3, 4, 5, 6, 8]
    moe, even = mxfp4.operations.moe, bf16.operations.moe
    assert moe is not None
    assert even is not None
    assert not moe.cut_over(11)  # nine blocks on each of ten chips: none is left for the last
    for chips, width in columns.items():
        assert float(moe.slice_share(chips)) == pytest.approx(width / 2880, rel=1e-12)
        assert float(even.slice_share(chips)) == pytest.approx(1 / chips, rel=1e-12)
    server = FoundServer("x", "decode", tp=8, attention_dp=1, pp=1, batch=8, sharded_experts=True)
    layout = build_layout(mxfp4, [server]).layout
    assert layout.replicas[0].cuts_experts
    (stage,) = evaluate(mxfp4, layout).priced.replicas[0].stages
    slots = len(mxfp4.operations.moe_layers) * moe.expert_bytes * moe.num_experts
    assert stage.memory["experts"][0] == pytest.approx(slots * 384 / 2880, rel=1e-12)
    pricer = Pricer(mxfp4, pool_classes(mxfp4.cluster))
    assert pricer.of_shapes is not None
    assert pricer.of_shapes.load(8, 0) == pytest.approx((384 / 2880,) * 2, rel=1e-12)


def test_cuts_go_between_blocks_of_scales() -> None:
    """Experts of 768 columns: FP8 in blocks of 128 over 2, 3 or 6 chips, bfloat16 over 4 as well."""
    fp8, bf16 = (asked(model=f"qwen3-30b-a3b{name}") for name in ("-fp8", ""))
    assert [chips for chips in range(1, 9) if cuts_experts(fp8, chips)] == [2, 3, 6]
    assert [chips for chips in range(1, 9) if cuts_experts(bf16, chips)] == [2, 3, 4, 6]
    fp4 = asked(model="deepseek-v4.1-flash", cluster="gb200-nvl72")  # 2304 columns, 72 blocks of 32
    assert [n for n in range(1, 19) if cuts_experts(fp4, n)] == [2, 3, 4, 6, 8, 9, 12, 18]

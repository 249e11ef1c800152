"""What the engines refuse or do otherwise, on the search's side, the judge's side and in the files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import PROFILE
from engine_questions import asked, lines_of, parts, ranks
from launch_lines import read_lines

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.api import solve
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from solver.bounds.pricing import Pricer
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import ROLES, enumerate_shapes
from topology.errors import ExportError, InstanceError


def test_a_class_without_all_to_all_gathers(tmp_path: Path) -> None:
    """SGLang's gpt-oss has no DeepEP path: ``none``, priced as all-gather and reduce-scatter."""
    instance = asked("gpt-oss-120b", "hgx-h100", "sglang")
    (line,) = lines_of(instance, ranks("mixed", 8), "sglang")
    assert line.value("--moe-a2a-backend") == "none"
    assert line.value("--ep-dispatch-algorithm") == "dynamic"
    assert "--deepep-mode" not in line.words
    free = replace(instance, scenario=instance.scenario.model_copy(update={"engine": None}))
    gathered, sent = (parts(one, ranks("mixed", 8)) for one in (instance, free))
    # 8 chips' tokens reach each chip instead of top-4 copies
    assert gathered["dispatch"] > sent["dispatch"]
    assert gathered["routed_experts"] == sent["routed_experts"]


def test_gathered_tokens_cost_an_all_gather() -> None:
    instance = asked("gpt-oss-120b", "hgx-h100", "sglang", profile="physics")
    chips = [placed.id for placed in instance.cluster.usable]
    rate = instance.cluster.rate("all-gather", chips)
    found = parts(instance, ranks("decode", 8, batch=80))
    operations = instance.operations
    sent = 80 * operations.hidden_size * operations.activation_bytes
    layers = len(operations.moe_layers)
    expected = layers * (rate.latency_s + rate.s_per_byte * sent)
    assert found["dispatch"] == pytest.approx(expected, rel=1e-9)
    assert found["combine"] == pytest.approx(expected, rel=1e-9)


@cache
def without_targets(engine: str | None) -> Result:
    """The answer where HBM alone stops a larger batch."""
    workload = Workload(input_tokens=4000, output_tokens=1000)
    scenario = Scenario(model="llama-3.1-70b", cluster="hgx-h100", workload=workload,
                        profile=str(PROFILE), engine=engine)  # fmt: skip
    return solve(scenario, workers=1)


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_the_engine_keeps_some_hbm(engine: str) -> None:
    """The limit is the search's, the judge's and the file's."""
    result = without_targets(engine)
    largest = max(
        float(stage.used_bytes.max())
        for price in result.evaluation.priced.replicas
        for stage in price.stages
    )
    chip = result.instance.cluster.usable[0].chip
    assert 0.9 * chip.hbm_bytes < largest <= 0.95 * chip.hbm_bytes * (1 + 1e-9)
    files = export_layout(result.instance, result.layout, engine).files
    fractions = [
        float(value)
        for text in files.values()
        for name in (
            "--gpu-memory-utilization ",
            "--mem-fraction-static ",
            "free_gpu_memory_fraction: ",
        )
        for value in [part.split()[0] for part in text.split(name)[1:]]
    ]
    assert fractions
    assert max(fractions) <= 0.95
    free = without_targets(None)
    judged = evaluate(under_engine(free.instance, engine), free.layout)
    broken = [one.message for one in judged.violations if one.rule == "hbm_capacity"]
    engine_facts = result.instance.engine
    assert engine_facts is not None
    assert broken
    assert f"that {engine_facts.label} leaves ({engine_facts.memory.source})" in broken[0]
    with pytest.raises(ExportError, match=f"solve with --engine {engine}"):
        export_layout(free.instance, free.layout, engine)
    deployed = export_layout(free.instance, free.layout, engine, allow_approximate=True)
    assert deployed.deployed.violations == ()
    assert deployed.loss > 0


@pytest.mark.parametrize(
    ("model", "runner"), [("qwen3-235b-a22b", True), ("qwen3-235b-a22b-fp8", False)]
)
def test_bf16_experts_behind_deepep_name_their_runner(model: str, runner: bool) -> None:
    """By itself SGLang takes the Triton runner for bf16 experts, which refuses DeepEP's tokens."""
    name = "qwen3-235b-a22b"
    instance = asked(name, "hgx-h200", "sglang", weight_dtype=None if runner else "fp8")
    (line,) = lines_of(instance, ranks("decode", 8), "sglang")
    assert line.value("--moe-a2a-backend") == "deepep"
    assert ("--moe-runner-backend" in line.words) == runner
    if runner:
        assert line.value("--moe-runner-backend") == "deep_gemm"


@pytest.mark.parametrize(
    ("engine", "kv", "said"),
    [("sglang", None, "bf16"), ("sglang", "fp8", "fp8_e4m3"), ("vllm", None, "bfloat16"), ("vllm", "fp8", "fp8")],
)  # fmt: skip
def test_every_precision_that_is_priced_is_written(engine: str, kv: str | None, said: str) -> None:
    """``auto`` stores the sparse attention's KV in FP8 on Blackwell, whatever is priced."""
    instance = asked("deepseek-v3.2", "hgx-b200", engine, kv_dtype=kv)
    line = lines_of(instance, ranks("decode", 8), engine)[0]
    assert line.value("--kv-cache-dtype") == said
    assert line.value("--dtype") == "bfloat16"


def test_a_class_without_redundant_experts_gets_none() -> None:
    """vLLM's gpt-oss stops at --enable-eplb."""
    instance = asked("gpt-oss-120b", "hgx-h100", "vllm")
    shapes = enumerate_shapes(instance, pool_classes(instance.cluster))
    assert set(shapes.slots.tolist()) == {128, 0}  # 0: cut
    spare = FoundServer("x", "mixed", tp=1, attention_dp=4, pp=1, batch=8, spare=4)
    layout = build_layout(instance, [spare]).layout
    broken = [v.message for v in evaluate(instance, layout).violations if v.rule == "engine_runs"]
    assert any("the class of gpt-oss-120b has none in vLLM" in one for one in broken)
    assert any("vllm/model_executor/models/interfaces.py" in one for one in broken)
    with pytest.raises(ExportError, match="has no redundant experts"):
        export_layout(instance, layout, "vllm")
    exported = export_layout(instance, layout, "vllm", allow_approximate=True)
    assert "--enable-eplb" not in exported.files["commands.sh"]
    assert exported.deployed.violations == ()
    wide = asked("deepseek-v3", "hgx-h200@2", "vllm")
    slots = enumerate_shapes(wide, pool_classes(wide.cluster)).slots
    assert slots.max() > 256


@pytest.mark.parametrize(
    ("role", "backend"),
    [
        ("prefill", "deepep_high_throughput"),
        ("decode", "deepep_low_latency"),
        ("mixed", "allgather_reducescatter"),
    ],
)
def test_servers_that_decode_keep_their_cuda_graphs(role: str, backend: str) -> None:
    """High-throughput DeepEP turns CUDA graphs off, so no server that decodes has it."""
    instance = asked("deepseek-v3", "hgx-h200", "vllm")
    (line,) = lines_of(instance, ranks(role, 8, batch=32), "vllm")
    assert line.value("--all2all-backend") == backend
    shapes = enumerate_shapes(instance, pool_classes(instance.cluster))
    rates = Pricer(instance, pool_classes(instance.cluster)).rates(shapes)
    here = (shapes.role == ROLES.index(role)) & (shapes.attention_dp == 8) & (shapes.tp == 1)  # type: ignore[arg-type]
    cut = shapes.slots == 0
    assert set(rates.skewed[here & ~cut]) == {0.0 if role == "mixed" else 1.0}
    assert set(rates.skewed[here & cut]) == {0.0}


def test_one_attention_rank_exchanges_nothing() -> None:
    """vLLM has no all-to-all without data-parallel ranks: outputs are summed, and priced so."""
    instance = asked("deepseek-v3", "hgx-h200", "vllm")
    server = ranks("decode", 1, tp=8, batch=8)
    (line,) = lines_of(instance, server, "vllm")
    assert "--enable-expert-parallel" in line.words
    assert "--all2all-backend" not in line.words
    found = parts(instance, server)
    assert found["dispatch"] == found["combine"] == 0
    layers = instance.operations.num_layers
    assert found["all_reduce"] > 0
    moe = len(instance.operations.moe_layers)
    dense = resolve_instance(instance.scenario.model_copy(update={"profile": "physics"}))
    rate = dense.cluster.rate("all-reduce", [placed.id for placed in dense.cluster.usable][:8])
    sent = 8 * dense.operations.hidden_size * dense.operations.activation_bytes
    # one sum after attention, one after the feed-forward part, experts or not
    expected = 2 * layers * (rate.latency_s + rate.s_per_byte * sent)
    assert parts(dense, server)["all_reduce"] == pytest.approx(expected, rel=1e-9)
    assert moe < layers


@pytest.fixture
def uneven(tmp_path: Path) -> str:
    """Hosts of 3, 3, 2 and twice 8 chips."""
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    domains = [
        {"rack": f"host{n}", "fabric": fabric, "chips": [{"chip": "h100", "count": count}]}
        for n, count in enumerate((3, 3, 2, 8, 8))
    ]
    path = tmp_path / "uneven.yaml"
    cluster = {"name": "uneven", "domains": domains, "scale_out": {"kind": "rail-optimised"}}
    path.write_text(yaml.safe_dump(cluster))
    return str(path)


@pytest.mark.parametrize(
    ("first", "count", "backend"),
    [(0, 8, "none"), (8, 8, "deepep"), (8, 16, "deepep"), (4, 16, "none")],
)
def test_deepep_takes_whole_groups_of_a_host(
    uneven: str, first: int, count: int, backend: str
) -> None:
    """Ranks 0-7, 8-15, ... of DeepEP share a host each; parts of such groups exchange by collectives."""
    instance = asked("qwen3-235b-a22b", uneven, "sglang", weight_dtype="fp8")
    chips = tuple(placed.id for placed in instance.cluster.usable[first : first + count])
    server = replace(ranks("mixed", count, batch=count * 2), chips=chips)
    layout = build_layout(instance, [server]).layout
    lines = read_lines(export_layout(instance, layout, "sglang").files["commands.sh"])
    assert {line.value("--moe-a2a-backend") for line in lines} == {backend}
    shapes = enumerate_shapes(instance, pool_classes(instance.cluster))
    pricer = Pricer(instance, pool_classes(instance.cluster))
    mixed = (shapes.role == ROLES.index("mixed")) & (shapes.tp == 1) & (shapes.pp == 1)
    rows = np.flatnonzero(mixed & (shapes.attention_dp == 8))
    rates = pricer.rates(shapes.take(rows))
    parts_of = [sorted(chips for _, chips in shapes.parts(row)) for row in rows.tolist()]
    whole = np.array([parts == [8] for parts in parts_of])
    assert whole.any()
    assert not whole.all()
    assert (rates.skewed == whole).all()


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
@pytest.mark.parametrize("cluster", ["tpu-v5e", "trn2", "gaudi3", "cloudmatrix384", "mi300x"])
def test_chips_without_the_engine_are_refused(engine: str, cluster: str) -> None:
    with pytest.raises(InstanceError, match="does not run on"):
        asked("llama-3.1-8b", cluster, engine)
    workload = Workload(input_tokens=1000, output_tokens=100)
    free = resolve_instance(Scenario(model="llama-3.1-8b", cluster=cluster, workload=workload))
    layout = build_layout(free, [ranks("mixed", 1, tp=1, batch=4)]).layout
    with pytest.raises(ExportError, match="does not run on"):
        export_layout(free, layout, engine)


def test_a_decode_pass_beyond_the_exchange_is_refused_on_both_sides() -> None:
    instance = asked("deepseek-v3", "hgx-h200", "sglang", workload=Workload(input_tokens=8, output_tokens=8))  # fmt: skip
    layout = build_layout(instance, [ranks("decode", 8, batch=8 * 1100)]).layout
    broken = [v.message for v in evaluate(instance, layout).violations if v.rule == "engine_runs"]
    assert any("deepep of SGLang 0.5.23 has room for 1024" in one for one in broken)
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    here = (shapes.role == ROLES.index("decode")) & (shapes.attention_dp == 8)
    bounds = Pricer(instance, classes).bounds(shapes.take(here))
    cut = shapes.slots[here] == 0
    assert bounds.per_rank[~cut].max() == 1024
    assert bounds.per_rank[cut].max() > 1024  # all-gathers have room for any number


def test_versions_are_picked_by_name() -> None:
    new, old = (asked("deepseek-v3", "hgx-h200", f"sglang@{v}") for v in ("0.5.23", "0.5.21"))
    server = ranks("decode", 8)
    (one,), (two,) = (lines_of(instance, server, "sglang") for instance in (new, old))
    assert one.value("--attn-dp-size") == "8"
    assert "--enable-dp-attention" not in one.words
    assert two.value("--dp-size") == "8"
    assert "--enable-dp-attention" in two.words
    assert asked("deepseek-v3", "hgx-h200", "sglang").engine == new.engine
    with pytest.raises(ValueError, match=r"no version '9.9' of vllm; kept: 0.33, 0.32"):
        Scenario.model_validate(
            {"model": "x", "cluster": "y", "workload": "chat", "engine": "vllm@9.9"}
        )


def test_low_latency_deepep_takes_any_width() -> None:
    """Nine hosts of eight decode together; prefill and both in one want a width that is tuned for."""
    instance = asked("deepseek-v3", "hgx-h200@9", "sglang")
    for role, backend in (("decode", "deepep"), ("mixed", "none"), ("prefill", "none")):
        lines = lines_of(instance, replace(ranks(role, 72, batch=144), spare=32), "sglang")
        assert {line.value("--moe-a2a-backend") for line in lines} == {backend}


def test_uneven_experts_are_not_sent_by_deepep() -> None:
    """vLLM spreads 128 experts over 5 ranks; DeepEP wants as many on each."""
    instance = asked("gpt-oss-120b", "hgx-h100", "vllm")
    server = ranks("decode", 5, batch=10)
    layout = build_layout(instance, [server]).layout
    assert {v.rule for v in evaluate(instance, layout).violations} == {"both_pools"}
    (line,) = lines_of(instance, server, "vllm")
    assert line.value("--all2all-backend") == "allgather_reducescatter"
    wide = asked("deepseek-v3.2", "hgx-b200@2", "vllm")
    uneven = lines_of(wide, ranks("decode", 12, batch=24), "vllm")
    assert all("--enable-eplb" not in line.words for line in uneven)
    (even,) = lines_of(instance, ranks("decode", 4, batch=8), "vllm")
    assert even.value("--all2all-backend") == "deepep_low_latency"

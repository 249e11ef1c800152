"""vLLM's rank arithmetic and option types on the commands written for each deployment."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from launch_lines import read_lines, servers, vllm_ranks
from small_layouts import exported, question, server

from costmodel.evaluate import evaluate
from rackfit.documents.result import Result
from rackfit.exporters.export import Exported, export_layout
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.launch.options import option_table
from rackfit.importers.deployment import build_layout
from tests.rackfit.exporters.loaders import check_vllm_ascend
from topology.errors import ExportError

Export = Callable[[str], Exported]


@pytest.mark.parametrize(
    ("target", "visible"),
    [("vllm", "CUDA_VISIBLE_DEVICES"), ("vllm-ascend", "ASCEND_RT_VISIBLE_DEVICES")],
)
def test_every_rank_lands_on_the_chip_of_the_layout(
    result: Result, export: Export, target: str, visible: str
) -> None:
    hosts = Hosts(result.instance.cluster)
    groups = servers(read_lines(export(target).files["commands.sh"]))
    for replica, group in zip(result.layout.replicas, groups.values(), strict=True):
        tp = replica.shape.tp
        for (engine, rank), place in vllm_ranks(group, visible).items():
            stage, shard = divmod(rank, tp)
            chip = hosts.of(replica.stages[stage].chips[engine * tp + shard])
            assert place == (chip.host, chip.gpu)
        assert sum("--headless" not in line.words for line in group) == 1


@pytest.mark.parametrize("target", ["vllm", "vllm-ascend"])
def test_commands_pass_the_option_table(result: Result, export: Export, target: str) -> None:
    table = option_table("vllm")
    fields = table.data["json"]
    for line in read_lines(export(target).files["commands.sh"]):
        assert line.words[:2] == ["vllm", "serve"]
        assert table.problems(line.words[3:], line.environment) == []
        known = (table.canonical(word) for word in line.words)
        assert not any("deprecated" in table.options[name] for name in known if name)
        values, _ = table.read(line.words[3:])
        for name in fields.keys() & values.keys():
            assert set(values[name]) <= set(fields[name])
        if values.get("--enable-eplb"):
            moe = result.instance.operations.moe
            assert moe is not None
            assert values["--enable-expert-parallel"]
            slots = moe.num_experts + values["--eplb-config"]["num_redundant_experts"]
            width = values["--tensor-parallel-size"] * values["--data-parallel-size"]
            assert slots % width == 0
            assert width > 1


def test_ascend_maps_load(result: Result, export: Export) -> None:
    moe = result.instance.operations.moe
    exported = export("vllm-ascend")
    checked = 0
    for line in read_lines(exported.files["commands.sh"]):
        if moe is None or "--additional-config" not in line.words:
            continue
        config = json.loads(line.value("--additional-config"))
        assert (
            check_vllm_ascend(
                exported.files[config["eplb_config"]["expert_map_path"]],
                num_layers=len(result.instance.operations.moe_layers),
                num_experts=moe.num_experts,
                chips=line.number("--tensor-parallel-size") * line.number("--data-parallel-size"),
            )
            == []
        )
        checked += 1
    wide = any(replica.shape.ep > 1 for replica in result.layout.replicas)
    assert (checked > 0) == wide


def test_a_placement_is_refused_and_its_loss_stated(deepseek: Result) -> None:
    with pytest.raises(ExportError, match="loads no expert placement") as stop:
        export_layout(deepseek.instance, deepseek.layout, "vllm")
    assert "--allow-approximate" in str(stop.value)
    exported = export_layout(deepseek.instance, deepseek.layout, "vllm", allow_approximate=True)
    assert exported.limits
    assert exported.loss > 0.01
    assert exported.deployed.usd_per_m_output_tokens == pytest.approx(
        (1 + exported.loss) * deepseek.evaluation.usd_per_m_output_tokens
    )


def test_a_dense_model_is_expressed_without_loss(export: Export, result: Result) -> None:
    if result.instance.operations.moe is None:
        assert export("vllm").limits == ()
    else:
        assert all(limit.approximable for limit in export("vllm").limits)


@pytest.mark.parametrize("batch", [2, 256])
def test_tokens_are_sent_by_processes_enough(batch: int) -> None:
    """One process of the API that sends 5,000 tokens/s makes first tokens late (docs/kernels.md)."""
    instance = question("llama-3.1-8b", "hgx-h200")
    found = replace(server("mixed", 1), batch=batch)
    layout = build_layout(instance, [found]).layout
    (price,) = evaluate(instance, layout).priced.replicas
    sent = float(price.service.requests_per_s) * instance.workload.output_tokens
    (line,) = read_lines(exported(instance, [found], "vllm").files["commands.sh"])
    if batch == 2:
        assert sent < 2500.0
        assert "--api-server-count" not in line.words
    else:
        assert sent > 2500.0
        assert (line.number("--api-server-count") - 1) * 2500.0 < sent
        assert sent <= line.number("--api-server-count") * 2500.0

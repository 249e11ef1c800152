"""TensorRT-LLM's field types and checks on the files written for each deployment."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from launch_lines import Line, mpi_tasks, read_lines

from rackfit.documents.result import Result
from rackfit.exporters.export import Exported
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.launch.options import option_table
from tests.rackfit.exporters.loaders import check_trtllm, trtllm_problems

Export = Callable[[str], Exported]


def _serve(line: Line) -> list[str]:
    """Words of (the first) trtllm-serve."""
    start = line.words.index("trtllm-serve")
    end = line.words.index(":") if ":" in line.words else len(line.words)
    return line.words[start:end]


def test_engine_files_pass_the_field_table(export: Export) -> None:
    table = option_table("trtllm").data
    files = export("trtllm").files
    engines = [yaml.safe_load(text) for name, text in files.items() if name.startswith("engine-")]
    for engine in engines:
        assert trtllm_problems(engine, table["fields"], table["choices"]) == []
    assert engines
    if "disaggregated.yaml" in files:
        front = yaml.safe_load(files["disaggregated.yaml"])
        assert trtllm_problems(front, table["disaggregated"]) == []


def test_ranks_and_sizes(result: Result, export: Export) -> None:
    exported = export("trtllm")
    hosts = Hosts(result.instance.cluster)
    lines = read_lines(exported.files["commands.sh"])
    for replica, line in zip(result.layout.replicas, lines, strict=True):
        serve = _serve(line)
        assert option_table("trtllm").problems(serve[2:], line.environment) == []
        engine = yaml.safe_load(exported.files[serve[serve.index("--config") + 1]])
        world = engine["tensor_parallel_size"] * engine["pipeline_parallel_size"]
        tasks = mpi_tasks(line)
        assert len(tasks) == world == len(replica.chips)
        assert tasks == [(hosts.of(chip).host, hosts.of(chip).gpu) for chip in replica.chips]
        assert world % engine["gpus_per_node"] == 0
        for rank, (_, gpu) in enumerate(tasks):
            node = rank - rank % engine["gpus_per_node"]
            assert gpu == tasks[node][1] + rank % engine["gpus_per_node"]
        if replica.shape.pp > 1:
            assert sum(engine["pp_partition"]) == len(result.instance.model.layers)
            assert len(engine["pp_partition"]) == replica.shape.pp
        if "moe_expert_parallel_size" in engine:
            width = engine["moe_expert_parallel_size"] * engine["moe_tensor_parallel_size"]
            assert width == engine["tensor_parallel_size"]


def test_load_balancers_load(result: Result, export: Export) -> None:
    exported = export("trtllm")
    moe = result.instance.operations.moe
    for name, text in exported.files.items():
        if not name.startswith("engine-"):
            continue
        engine = yaml.safe_load(text)
        config = engine.get("moe_config", {})
        if config.get("backend") == "WIDEEP":
            assert moe is not None
            assert engine["enable_attention_dp"]
            assert engine["moe_expert_parallel_size"] > 1
            problems = check_trtllm(
                exported.files[config["load_balancer"]],
                layer_ids=list(result.instance.operations.moe_layers),
                num_experts=moe.num_experts,
                chips=engine["moe_expert_parallel_size"],
            )
            assert problems == []
        elif config:
            assert moe is not None
            assert moe.num_experts % engine["moe_expert_parallel_size"] == 0
    even = all(
        len(set(stage.slots())) <= 1
        for replica in result.layout.replicas
        for stage in replica.stages
    )
    assert (exported.loss == 0.0) == even


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"max_batch": 8}, "max_batch: no such field"),
        ({"moe_config": {"backends": "AUTO"}}, "moe_config.backends: no such field"),
        ({"max_batch_size": "8"}, "max_batch_size: expected int"),
        ({"max_batch_size": True}, "max_batch_size: expected int"),
        ({"pp_partition": [30, "31"]}, "pp_partition: expected list[int]"),
        ({"moe_config": {"backend": "FAST"}}, "moe_config.backend: 'FAST' is none of AUTO"),
        ({"kv_cache_config": {"dtype": "fp3"}}, "kv_cache_config.dtype: 'fp3' is none of auto"),
    ],
)  # fmt: skip
def test_the_field_table_refuses_what_the_strict_model_does(
    fields: dict[str, object], problem: str
) -> None:
    table = option_table("trtllm").data
    (found,) = trtllm_problems(fields, table["fields"], table["choices"])
    assert found.startswith(problem)

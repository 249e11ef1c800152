"""TensorRT-LLM's exports beside the facts that are kept of its sources: no package of it is installed here.

Its strict classes (``tensorrt_llm/llmapi``) refuse a field that they lack, another type and a value that is none of theirs;
its loaders and ``Mapping`` refuse sizes that do not go together. Both are done again, file by file, on what was exported.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from costmodel.question.instance import Instance
from rackfit.exporters.launch.options import option_table
from tests.rackfit.exporters.loaders import check_trtllm, trtllm_problems


def read_files(instance: Instance, folder: Path) -> dict[str, Any]:
    """A row of ``files.jsonl`` for the export in ``folder`` of an answer to the instance."""
    table = option_table(instance.scenario.engine or "trtllm")
    problems: list[str] = []
    lines = [
        line
        for line in (folder / "commands.sh").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    used: set[str] = set()
    for line in lines:
        name, found = _command(line, folder)
        used.add(name)
        problems += found
    fields, maps = 0, 0
    for name in sorted(used):
        engine = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
        fields += _leaves(engine)
        found = trtllm_problems(engine, table.data["fields"], table.data["choices"])
        balancer = engine.get("moe_config", {}).get("load_balancer")
        maps += balancer is not None
        found += _sizes(engine, instance, folder)
        problems += [f"{name}: {problem}" for problem in found]
    front = folder / "disaggregated.yaml"
    if front.is_file():
        data = yaml.safe_load(front.read_text(encoding="utf-8"))
        fields += _leaves(data)
        problems += trtllm_problems(data, table.data["disaggregated"])
        for side in ("context_servers", "generation_servers"):
            urls = [url.split(":") for url in data[side]["urls"]]
            if len(urls) != data[side]["num_instances"]:
                problems.append(f"{side}: {len(urls)} urls for {data[side]['num_instances']}")
            problems += [
                f"{side}: {url}" for url in urls if len(url) != 2 or not url[1].isdecimal()
            ]
    return {
        "folder": folder.name, "engine": "trtllm", "version": table.version, "processes": len(lines), "files": len(used),
        "fields": fields, "maps": maps, "problems": problems,
    }  # fmt: skip


def _command(line: str, folder: Path) -> tuple[str, list[str]]:
    """The engine file of a command, and what ``trtllm-serve`` or ``mpirun`` would not take."""
    words = shlex.split(line)
    environment: dict[str, str] = {}
    while "=" in words[0] and not words[0].startswith("-"):
        name, environment[name] = words.pop(0).split("=", 1)
    problems: list[str] = []
    configs: set[str] = set()
    ranks = 0
    parts = " ".join(words).split(" : ")
    for part in parts:
        own = part.split()
        serve = own[own.index("trtllm-serve") :]
        table = option_table("trtllm")
        problems += table.problems(serve[2:], environment)
        configs.add(serve[serve.index("--config") + 1])
        if "-n" in own[: own.index("trtllm-serve")]:
            ranks += int(own[own.index("-n") + 1])
    if len(configs) != 1:
        problems.append(f"one server with {len(configs)} engine files")
    config = configs.pop()
    engine = yaml.safe_load((folder / config).read_text(encoding="utf-8"))
    world = engine["tensor_parallel_size"] * engine["pipeline_parallel_size"]
    devices = environment.get("CUDA_VISIBLE_DEVICES", "")
    started = ranks or len(devices.split(","))
    if started != world:
        problems.append(f"{config}: {started} ranks for tensor x pipeline = {world}")
    return config, problems


def _sizes(engine: dict[str, Any], instance: Instance, folder: Path) -> list[str]:
    """Rules of its validators, of ``Mapping`` and of the loader of expert placements."""
    tp, pp = engine["tensor_parallel_size"], engine["pipeline_parallel_size"]
    moe = engine.get("moe_config", {})
    share = engine["kv_cache_config"]["free_gpu_memory_fraction"]
    rules = {
        "free_gpu_memory_fraction outside 0 to 1": 0 <= share <= 1,
        "ranks do not fill nodes": tp * pp % engine.get("gpus_per_node", 1) == 0,
        "max_batch_size above max_num_tokens": engine["max_batch_size"] <= engine["max_num_tokens"],
        "max_draft_len is not above 0": engine.get("speculative_config", {}).get("max_draft_len", 1) > 0,
        "WIDEEP without attention data parallelism": moe.get("backend") != "WIDEEP"
        or engine["enable_attention_dp"],
    }  # fmt: skip
    if pp > 1:
        layers = engine["pp_partition"]
        rules["pp_partition is not of all stages and layers"] = len(layers) == pp and sum(
            layers
        ) == len(instance.model.layers)
    if "moe_expert_parallel_size" in engine:
        width = engine["moe_expert_parallel_size"] * engine["moe_tensor_parallel_size"]
        rules["experts x tensor of experts is not tensor_parallel_size"] = width == tp
    problems = [name for name, holds in rules.items() if not holds]
    routed = instance.operations.moe
    if moe.get("load_balancer") and routed is not None:
        problems += check_trtllm(
            (folder / moe["load_balancer"]).read_text(encoding="utf-8"),
            layer_ids=list(instance.operations.moe_layers),
            num_experts=routed.num_experts,
            chips=engine["moe_expert_parallel_size"],
        )
    return problems


def _leaves(data: Any) -> int:
    """Values in a file."""
    return sum(map(_leaves, data.values())) if isinstance(data, dict) else 1

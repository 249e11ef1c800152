"""``vllm serve`` commands: sizes and batch of each server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackfit.importers.command_lines import Process, read_processes, started
from rackfit.importers.servers import FoundServer, from_remarks, role_of, section, stage_layers
from rackfit.importers.understood import read_options, with_others
from rackfit.importers.unpriced import (
    ADAPTERS,
    CONTEXT,
    GRAPHS,
    KV,
    OFFLOAD,
    TURNS,
    drafts_of,
    options_of,
    weight_format,
)
from topology.errors import InstanceError, Problem

NAME = "vllm"
MODULES = ("vllm.entrypoints.openai.api_server", "dynamo.vllm")
WIDTHS = ("--tensor-parallel-size", "--data-parallel-size", "--pipeline-parallel-size")
SIZES = (
    "--kv-transfer-config", "--max-num-seqs", "--max-num-batched-tokens", "--eplb-config",
)  # fmt: skip

UNPRICED = {
    "--enforce-eager": GRAPHS, "--cpu-offload-gb": OFFLOAD, "--decode-context-parallel-size": CONTEXT,
    "--prefill-context-parallel-size": CONTEXT, "--enable-dbo": TURNS, "--kv-offloading-size": KV,
    "--enable-lora": ADAPTERS,
}  # fmt: skip


def read(path: Path) -> list[FoundServer]:
    """Servers of a command file; headless processes belong to the server before them."""
    found = servers(read_processes(path), path.parent)
    if not found:
        raise InstanceError(Problem(str(path), "holds no vllm serve command"))
    return found


def servers(processes: Sequence[Process], folder: Path) -> list[FoundServer]:
    """Servers among processes; files of ``--config`` lie in ``folder``."""
    found = []
    for process, options in started(processes, "vllm", MODULES):
        values, notes = read_options("vllm", process, options, folder, WIDTHS, SIZES)
        if "--is-prefill-worker" in options:  # of Dynamo's launcher
            values["--kv-transfer-config"] = {"kv_role": "kv_producer"}
        if not values.get("--headless") and values.get("--node-rank", 0) == 0:
            named = options[:1] and not options[0].startswith("-")
            model = options[0] if named else values.get("--model")
            found.append(_server(process, values, model, notes))
    return with_others(found, processes, "vllm", MODULES)


def _server(
    process: Process, values: dict[str, Any], model: str | None, notes: tuple[str, ...]
) -> FoundServer:
    remarked = from_remarks(process.remarks, process.place)
    tp, dp = values.get("--tensor-parallel-size", 1), values.get("--data-parallel-size", 1)
    transfer = section(values.get("--kv-transfer-config"), "--kv-transfer-config", process.place)
    role = process.remarks.get("role") or transfer.get("kv_role")
    sequences = values.get("--max-num-seqs")
    layers = process.environment.get("VLLM_PP_LAYER_PARTITION")
    longest = values.get("--max-model-len")
    drafts = section(values.get("--speculative-config"), "--speculative-config", process.place)
    config = section(values.get("--eplb-config"), "--eplb-config", process.place)
    return FoundServer(
        place=process.place,
        role=role_of(role, process.place),
        tp=tp,
        attention_dp=dp,
        pp=values.get("--pipeline-parallel-size", 1),
        spare=config.get("num_redundant_experts", 0),
        batch=sequences * dp if sequences else None,
        prefill_tokens=values.get("--max-num-batched-tokens"),
        layers=stage_layers(layers, "VLLM_PP_LAYER_PARTITION", process.place),
        split="larger last but one",
        balanced=bool(values.get("--enable-eplb")),
        chips=remarked.chips,
        copies=remarked.copies,
        sequences=remarked.sequences,
        idle=remarked.idle,
        sharded_experts=tp * dp > 1 and not values.get("--enable-expert-parallel"),
        kv_dtype=values.get("--kv-cache-dtype"),
        weights=weight_format(values.get("--quantization"), model),
        memory_fraction=values.get("--gpu-memory-utilization"),
        model=model,
        longest=longest if longest and longest > 0 else None,  # -1: what fits
        unpriced=options_of(UNPRICED, values),
        drafts=drafts_of(drafts.get("method"), drafts.get("num_speculative_tokens"), "draft_model")
        if drafts
        else None,
        notes=notes,
    )

"""TensorRT-LLM: a command file with ``trtllm-serve``, or an engine or disaggregated YAML itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rackfit.importers.command_lines import Process, file_beside, read_processes, started
from rackfit.importers.servers import (
    FoundServer,
    Remarked,
    Rows,
    from_remarks,
    role_of,
    section,
    stage_layers,
    switch,
    whole,
)
from rackfit.importers.understood import read_options
from rackfit.importers.unpriced import ADAPTERS, CONTEXT, drafts_of, options_of, weight_format
from topology.catalogue import is_file, read_data
from topology.errors import InstanceError, Problem
from topology.names import shown

NAME = "trtllm"
WIDTHS = ("--tp_size", "--pp_size", "--ep_size", "--config")
SIZES = ("--max_batch_size", "--max_num_tokens")
#: fields of an engine YAML that options give, too
_FIELDS = {
    "--tp_size": "tensor_parallel_size", "--pp_size": "pipeline_parallel_size",
    "--ep_size": "moe_expert_parallel_size", "--cp_size": "context_parallel_size",
    "--max_batch_size": "max_batch_size", "--max_num_tokens": "max_num_tokens",
    "--max_seq_len": "max_seq_len",
}  # fmt: skip
_MEMORY = "--free_gpu_memory_fraction"
UNPRICED = {"context_parallel_size": CONTEXT, "enable_lora": ADAPTERS}


def read(path: Path) -> list[FoundServer]:
    """Servers of a file. An engine YAML is one server of both roles."""
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(path)
    found = servers(read_processes(path), path.parent)
    if not found:
        raise InstanceError(Problem(str(path), "holds no trtllm-serve command"))
    return found


def servers(processes: Sequence[Process], folder: Path) -> list[FoundServer]:
    """Servers among processes; configurations that they name lie in ``folder``."""
    found = []
    for process, words in started(processes, "trtllm-serve", ()):
        model = words[0] if words and not words[0].startswith("-") else None
        options = words[model is not None :]
        values, notes = read_options("trtllm", process, options, folder, WIDTHS, SIZES)
        fields = {field: values[name] for name, field in _FIELDS.items() if name in values}
        if _MEMORY in values:
            fields["kv_cache_config"] = {"free_gpu_memory_fraction": values[_MEMORY]}
        beside = folder
        if "--config" in values:  # overwrites the options
            told = process.config(values["--config"], folder)
            if not isinstance(told, dict):
                what = "no such file" if told is None else "expected a mapping"
                raise InstanceError(Problem(shown(str(folder / values["--config"]), 300), what))
            cache = {
                **fields.get("kv_cache_config", {}),
                **section(told.get("kv_cache_config"), "kv_cache_config", process.place),
            }
            fields = {**fields, **told, **({"kv_cache_config": cache} if cache else {})}
            path = file_beside(values["--config"], folder)
            beside = folder if path is None else path.parent
        remarked = from_remarks(process.remarks, process.place)
        role = process.remarks.get("role")
        one = _server(fields, role, process.place, beside, remarked)
        found.append(replace(one, weights=weight_format(None, model), model=model, notes=notes))
    return found


def _mapping(path: Path) -> dict[str, Any]:
    if not is_file(path):
        raise InstanceError(Problem(shown(path, 300), "no such file"))
    data = read_data(path)
    if not isinstance(data, dict):
        raise InstanceError(Problem(str(path), "expected a mapping"))
    return data


def _from_yaml(path: Path) -> list[FoundServer]:
    data = _mapping(path)
    pools = [("context_servers", "prefill"), ("generation_servers", "decode")]
    if not any(key in data for key, _ in pools):
        return [_server(data, None, path.name, path.parent, Remarked())]
    found = []
    for key, role in pools:
        pool = data.get(key)
        if not isinstance(pool, dict) or "tensor_parallel_size" not in pool:
            message = "gives no tensor_parallel_size; import the command file of its servers"
            raise InstanceError(Problem(f"{path.name}: {key}", message))
        copies = whole(pool.get("num_instances", 1), "num_instances", f"{path.name}: {key}")
        fields = {**data, **pool}
        found.append(
            _server(fields, role, f"{path.name}: {key}", path.parent, Remarked(copies=copies))
        )
    return found


def _server(
    fields: dict[str, Any],
    role: str | None,
    place: str,
    folder: Path,
    remarked: Remarked,
) -> FoundServer:
    size = _number(fields, "tensor_parallel_size", place)
    pp = _number(fields, "pipeline_parallel_size", place)
    spread = switch(fields.get("enable_attention_dp"), "enable_attention_dp", place)
    ranks = size if spread else 1
    batch = fields.get("max_batch_size")
    experts = section(fields.get("moe_config"), "moe_config", place)
    rows, slots = _balancer(experts, folder, place)
    kv = section(fields.get("kv_cache_config"), "kv_cache_config", place)
    drafts = section(fields.get("speculative_config"), "speculative_config", place)
    tokens = drafts.get("max_draft_len", drafts.get("num_nextn_predict_layers"))
    return FoundServer(
        place=place,
        role=role_of(role, place),
        tp=size // ranks,
        attention_dp=ranks,
        pp=pp,
        slots=slots,
        batch=None if batch is None else whole(batch, "max_batch_size", place) * ranks * pp,
        prefill_tokens=fields.get("max_num_tokens"),
        layers=stage_layers(fields.get("pp_partition"), "pp_partition", place),
        experts=rows,
        chips=remarked.chips,
        copies=remarked.copies,
        sequences=remarked.sequences,
        idle=remarked.idle,
        sharded_experts=_number(fields, "moe_expert_parallel_size", place) != size,
        kv_dtype=kv.get("dtype"),
        memory_fraction=kv.get("free_gpu_memory_fraction"),
        longest=fields.get("max_seq_len"),
        unpriced=options_of(UNPRICED, fields),
        drafts=drafts_of(drafts.get("decoding_type"), tokens) if drafts else None,
    )


def _number(fields: dict[str, Any], key: str, place: str, default: int = 1) -> int:
    return whole(fields.get(key, default), key, place)


def _balancer(config: dict[str, Any], folder: Path, place: str) -> tuple[Rows | None, int | None]:
    """Rows of a load balancer file, and its slots per layer."""
    balancer = config.get("load_balancer")
    if isinstance(balancer, str):
        balancer = _mapping(file_beside(balancer, folder) or folder / Path(balancer).name)
    if not isinstance(balancer, dict):
        return None, None
    rows = balancer.get("initial_global_assignments")
    slots = _number(balancer, "num_slots", place)
    if rows is None:
        return None, slots
    message = "initial_global_assignments: expected a list of experts for each layer"
    if not isinstance(rows, dict):
        raise InstanceError(Problem(place, message))
    for layer, row in rows.items():
        numbers = row if isinstance(row, list) else [None]
        if not all(type(number) is int for number in (layer, *numbers)):
            raise InstanceError(Problem(place, message))
    return {layer: tuple(row) for layer, row in rows.items()}, slots

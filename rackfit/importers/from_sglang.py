"""SGLang launch commands: sizes, expert locations and batch of each server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rackfit.importers.command_lines import Process, file_beside, read_processes, started
from rackfit.importers.servers import FoundServer, Rows, from_remarks, role_of, stage_layers, whole
from rackfit.importers.understood import read_options, with_others
from rackfit.importers.unpriced import (
    ADAPTERS,
    CONTEXT,
    GRAPHS,
    KV,
    OFFLOAD,
    TURNS,
    Drafts,
    drafts_of,
    options_of,
    weight_format,
)
from topology.catalogue import read_data
from topology.errors import InstanceError, Problem
from topology.names import brief, shown
from topology.spec import MAX_CHIPS

NAME = "sglang"
MODULES = ("sglang.launch_server", "dynamo.sglang")
WIDTHS = ("--tp-size", "--dp-size", "--attn-dp-size", "--pp-size", "--ep-size")
SIZES = (
    "--ep-num-redundant-experts", "--max-running-requests", "--chunked-prefill-size", "--disaggregation-mode", "--moe-a2a-backend",
    "--init-expert-location",
)  # fmt: skip

UNPRICED = {
    "--disable-cuda-graph": GRAPHS, "--cpu-offload-gb": OFFLOAD, "--attn-cp-size": CONTEXT,
    "--enable-two-batch-overlap": TURNS, "--enable-hierarchical-cache": KV, "--enable-lora": ADAPTERS,
}  # fmt: skip


def read(path: Path) -> list[FoundServer]:
    """Servers of a command file; processes with ``--node-rank`` above 0 belong to one before."""
    found = servers(read_processes(path), path.parent)
    if not found:
        raise InstanceError(Problem(str(path), "holds no sglang.launch_server command"))
    return found


def servers(processes: Sequence[Process], folder: Path) -> list[FoundServer]:
    """Servers among processes; files that they name lie in ``folder``."""
    found = []
    for process, options in started(processes, "sglang", MODULES):
        values, notes = read_options("sglang", process, options, folder, WIDTHS, SIZES)
        if values.get("--node-rank", 0) == 0:
            found.append(_server(process, values, folder, notes))
    return with_others(found, processes, "sglang", MODULES)


def _server(
    process: Process, values: dict[str, Any], folder: Path, notes: tuple[str, ...]
) -> FoundServer:
    size = whole(values.get("--tp-size", 1), "--tp-size", process.place, most=MAX_CHIPS)
    dp = whole(values.get("--dp-size", 1), "--dp-size", process.place, most=MAX_CHIPS)
    spread = bool(values.get("--enable-dp-attention"))
    if "--attn-dp-size" in values:  # independent copies of the server are still --dp-size
        dp, spread = values["--attn-dp-size"], True
    if spread and size % dp:
        message = f"--tp-size {size} is not a multiple of --dp-size {dp}"
        raise InstanceError(Problem(process.place, message))
    ranks = dp if spread else 1
    remarked = from_remarks(process.remarks, process.place)
    all_to_all = values.get("--moe-a2a-backend", "none") != "none"
    uncut = all_to_all or values.get("--ep-size", 1) == size
    chunk = values.get("--chunked-prefill-size")
    layers = process.environment.get("SGLANG_PP_LAYER_PARTITION")
    experts, counted = _locations(values.get("--init-expert-location"), folder, process.place)
    return FoundServer(
        place=process.place,
        role=role_of(values.get("--disaggregation-mode"), process.place),
        tp=size // ranks,
        attention_dp=ranks,
        pp=values.get("--pp-size", 1),
        spare=values.get("--ep-num-redundant-experts", 0),
        batch=values.get("--max-running-requests"),
        prefill_tokens=chunk // ranks if chunk and chunk > 0 else None,
        layers=stage_layers(layers, "SGLANG_PP_LAYER_PARTITION", process.place),
        experts=experts,
        balanced=counted or bool(values.get("--enable-eplb")),
        chips=remarked.chips,
        copies=remarked.copies if spread else remarked.copies * dp,
        sequences=remarked.sequences,
        idle=remarked.idle,
        sharded_experts=not uncut,
        kv_dtype=values.get("--kv-cache-dtype"),
        drafts=_drafts(values),
        weights=weight_format(values.get("--quantization"), values.get("--model-path")),
        memory_fraction=values.get("--mem-fraction-static"),
        model=values.get("--model-path"),
        longest=values.get("--context-length"),
        unpriced=options_of(UNPRICED, values),
        notes=notes,
    )


def _drafts(values: dict[str, Any]) -> Drafts | None:
    """Speculative decoding; the verified tokens are one more than those of a chain of drafts."""
    if "--speculative-algorithm" not in values:
        return None
    verified = values.get("--speculative-num-draft-tokens")
    chain = None if verified is None else max(1, verified - 1)
    steps = values.get("--speculative-num-steps", chain)
    return drafts_of(values["--speculative-algorithm"], steps)


def _location_data(text: str, folder: Path, place: str) -> tuple[Any, str]:
    """What a file holds, or the option itself, as the engine takes both; and where it stands."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text), place
        except (ValueError, RecursionError):
            raise InstanceError(
                Problem(place, f"--init-expert-location: not JSON: {brief(text)}")
            ) from None
    path = file_beside(text, folder)
    if path is None:
        message = f"--init-expert-location {shown(text, 200)}: no such file beside the command"
        raise InstanceError(Problem(place, message))
    return read_data(path), str(path)


def _locations(text: str | None, folder: Path, place: str) -> tuple[Rows | None, bool]:
    """Rows of an expert location file, and whether it holds counts to be balanced at start."""
    if text is None or text == "trivial":
        return None, False
    data, path = _location_data(text, folder, place)
    if isinstance(data, dict) and "logical_count" in data:
        return None, True
    rows = data.get("physical_to_logical_map") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(type(expert) is int for expert in row) for row in rows
    ):
        raise InstanceError(Problem(path, "expected physical_to_logical_map, rows of numbers"))
    return {layer: tuple(row) for layer, row in enumerate(rows)}, False

"""What a whole engine took on one chip, with random weights, beside what the cost model prices."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.measured import predict, runs
from costmodel.measured.recipes import UNKNOWN
from costmodel.measured.rows import Group, MeasuredRow
from costmodel.question.profile import load_profile
from costmodel.replica import memory
from topology.catalogue import data_dir

Line = dict[str, str]
#: what of a model one of two chips holds that share it, and a quarter of its layers
_HALF = {"num_attention_heads": 32, "num_key_value_heads": 2, "moe_intermediate_size": 768, "num_hidden_layers": 24}  # fmt: skip
#: tokens of a pass and sequences that decode together at most; share of HBM that the servers were given
_CHUNK, _SEQUENCES = 8192.0, 512.0
_SETTINGS = replace(UNKNOWN, memory_fraction=0.92, chunk_tokens=_CHUNK)
GIB = 2.0**30
_RELEASE = "vllm 0.26.0"


@dataclass(frozen=True)
class Beside:
    """A line of the table, and what is predicted for a token and for the first one (seconds)."""

    line: Line
    tpot_s: float
    ttft_s: float


@dataclass(frozen=True)
class Held:
    """What a server is priced to have in HBM: weights and activations of the largest pass in GiB, and bytes of KV a token."""

    line: Line
    weight_gib: float
    activations_gib: float
    kv_token_bytes: float


def lines(name: str) -> list[Line]:
    """The rows of a shipped table."""
    with (data_dir("measured") / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def name(line: Line) -> str:
    """The model of a row, or that it is a part of it."""
    return f"{line['model']}, a part" if line["part"] else line["model"]


@contextmanager
def _models() -> Iterator[dict[str, str]]:
    """What each line's model is read from: the catalogue, or a file with a part of it."""
    with tempfile.TemporaryDirectory() as made:
        found = {}
        for line in lines("engine_h200_servers"):
            found[line["model"]] = line["model"]
            if line["part"]:
                whole = data_dir("models") / f"{line['model']}.json"
                config = json.loads(whole.read_text(encoding="utf-8")) | _HALF
                own = Path(made) / "half.json"
                own.write_text(json.dumps(config), encoding="utf-8")
                found[line["model"]] = str(own)
        yield found


def _row(number: int, line: Line, models: dict[str, str]) -> MeasuredRow:
    quantised = "fp8" if line["model"].startswith("llama") else ""
    settings = replace(_SETTINGS, kv="fp8") if line["model"] == "llama-3.1-70b" else _SETTINGS
    rate = line.get("requests_per_s")
    mean_s = float(line.get("ttft_ms") or 1.0) / 1e3
    each_s = float(line.get("tpot_ms") or 1.0) / 1e3
    users = float(line.get("users") or 1.0)
    if rate:  # Little's law
        users = float(rate) * (mean_s + (float(line["output_tokens"]) - 1.0) * each_s)
    return MeasuredRow(
        id=str(number), engine="vllm", model=models[line["model"]], system="h200_sxm", precision=quantised,
        input_tokens=float(line.get("input_tokens") or 1024), output_tokens=float(line.get("output_tokens") or 256),
        concurrency=users, decode=Group(1, 1, 1, 1, settings=settings), prefill=None, tpot_s=each_s, ttft_s=mean_s,
        fixed_lengths=True, release=_RELEASE,
    )  # fmt: skip


def beside() -> list[Beside]:
    """Every measured run and what the profile ``calibrated`` predicts, which has seen none of them."""
    measured = lines("engine_h200")
    with _models() as models:
        found, _ = runs.runs_of([_row(i, line, models) for i, line in enumerate(measured)])
        said = predict.predict_under(found, load_profile("calibrated"))
    return [
        Beside(line, float(tpot_s), float(ttft_s))
        for line, tpot_s, ttft_s in zip(measured, said.tpot_s, said.ttft_s, strict=True)
    ]


def held() -> list[Held]:
    """What every server is priced to have in HBM."""
    servers = lines("engine_h200_servers")
    with _models() as models:
        found, _ = runs.runs_of([_row(i, line, models) for i, line in enumerate(servers)])
    result = []
    for line, run in zip(servers, found, strict=True):
        operations = run.instance.operations
        layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]
        weights = float(memory.dense_weight_bytes(layers, 1))
        weights += float(memory.edge_weight_bytes(operations, 1, first=True, last=True))
        if operations.moe is not None:
            weights += float(memory.expert_slot_bytes(layers)) * operations.moe.num_experts
        active = float(memory.activation_bytes(operations, 1, _CHUNK, _SEQUENCES))
        kv = float(memory.kv_bytes_per_sequence(operations, layers, 1, _CHUNK)) / _CHUNK
        result.append(Held(line, weights / GIB, active / GIB, kv))
    return result

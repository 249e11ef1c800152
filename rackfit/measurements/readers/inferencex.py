"""Rows of InferenceX (InferenceMAX): ``agg_*.json``, one object or a list, deployment included."""

from __future__ import annotations

from typing import Any

from costmodel.measured.rows import DRAWN, Group
from rackfit.measurements.bench import (
    Bench,
    Deployed,
    left_out,
    no_tpot,
    number,
    optional,
    percentiles,
    text,
)
from topology.errors import InstanceError, Problem
from topology.names import brief

TITLE = "InferenceX rows"

_ENGINES = {
    "trt": "trtllm",
    "trtllm": "trtllm",
    "tensorrt-llm": "trtllm",
    "sglang": "sglang",
    "vllm": "vllm",
}


def recognises(entry: dict[str, Any]) -> bool:
    """Keys that only these rows have together."""
    return {"hw", "conc", "framework", "isl", "osl"} <= entry.keys()


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """The run. ``tp`` counts all GPUs of attention, data parallel ranks included, as the harness sets it.

    ``isl`` and ``osl`` are nominal: the harness draws lengths between 0.8 and 1 of them (``--random-range-ratio 0.8``).
    """
    framework = (text(entry, "framework") or "").removeprefix("dynamo-").split("-disagg")[0].lower()
    ttft = optional(entry, "mean_ttft", place)
    names = {
        f"{p}_{metric}": f"{metric}_{p}_s"
        for p in ("median", "p90", "p95", "p99")
        for metric in ("ttft", "tpot")
    }
    points = {
        name.replace("median", "p50"): value
        for name, value in percentiles(entry, names, 1.0, place).items()
    }
    key = "mean_tpot" if "mean_tpot" in entry else "median_tpot"
    if reason := no_tpot(entry, key, optional(entry, "osl", place)):
        return [left_out(place, TITLE, reason)]
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=text(entry, "model"),
            engine=_ENGINES.get(framework, framework),
            system=_system(text(entry, "hw") or ""),
            precision=text(entry, "precision") or "",
            input_tokens=DRAWN * number(entry, "isl", place),
            output_tokens=DRAWN * number(entry, "osl", place),
            tpot_s=number(entry, key, place),
            ttft_s=ttft if ttft else None,
            requests=0,
            streams=number(entry, "conc", place),
            percentiles=points,
            unusable=_unusable(entry, place),
            deployed=_deployed(entry, _ENGINES.get(framework, framework), place),
        )
    ]


def _unusable(entry: dict[str, Any], place: str) -> str:
    """Why a row cannot be compared: drafts, or context that is divided over GPUs."""
    drafts = text(entry, "spec_decoding")
    if drafts not in (None, "none", "off", "false"):
        return f"ran with drafts ({drafts})"
    for key in entry:
        if key.endswith(("dcp_size", "pcp_size")) and (optional(entry, key, place) or 1) > 1:
            return f"divides contexts over GPUs ({key})"
    return ""


def _system(hardware: str) -> str:
    """The chip of a runner's name: ``h200-nb_0``, ``gb200-nv``, ``b200-trt``."""
    return hardware.lower().split("-")[0].split("_")[0]


def _deployed(entry: dict[str, Any], engine: str, place: str) -> Deployed:
    """Groups: of one pool, or of two where ``disagg`` says so."""
    apart = str(entry.get("disagg", "false")).lower() == "true"
    if not apart and "prefill_tp" in entry and optional(entry, "decode_tp", place) == 0:
        return Deployed(engine, _group(entry, "prefill_", place))  # of several nodes, in one pool
    if not apart and "prefill_tp" not in entry:
        return Deployed(engine, _group(entry, "", place))
    return Deployed(engine, _group(entry, "decode_", place), _group(entry, "prefill_", place))


def _group(entry: dict[str, Any], part: str, place: str) -> Group:
    """A worker's group: with DP attention every GPU of ``tp`` is a rank."""

    def size(key: str) -> int:
        value = optional(entry, f"{part}{key}", place)
        if value is None or value == 0:
            return 1
        if not 0 < value <= 4096 or value != int(value):
            message = f"expected a number of GPUs, got {brief(value)}"
            raise InstanceError(Problem(f"{place}: {part}{key}", message))
        return int(value)

    number(entry, f"{part}tp", place)
    tp = size("tp")
    key = "dp_attention" if part == "" else "dp_attn"
    flag = entry.get(f"{part}{key}", entry.get(f"{part}dp_attention"))
    ranks = tp if str(flag).lower() == "true" else 1
    return Group(tp // ranks, ranks, size("pp"), size("num_workers"), min(size("ep"), tp))

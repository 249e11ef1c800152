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
    shared_prompts,
    text,
)
from topology.errors import InstanceError, Problem
from topology.names import brief

TITLE = "InferenceX rows"

#: what rows of agents say in place of lengths
_SCENARIO = "scenario_type"
_ENGINES = {
    "trt": "trtllm",
    "trtllm": "trtllm",
    "tensorrt-llm": "trtllm",
    "sglang": "sglang",
    "vllm": "vllm",
}


def recognises(entry: dict[str, Any]) -> bool:
    """Keys that only these rows have together, with names where they have some: a vocabulary holds all words."""
    named = isinstance(entry.get("hw"), str) and isinstance(entry.get("framework"), str)
    return named and "conc" in entry and ({"isl", "osl"} <= entry.keys() or _SCENARIO in entry)


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """The run. ``tp`` counts all GPUs of attention, data parallel ranks included, as the harness sets it.

    ``isl`` and ``osl`` are nominal: the harness draws lengths between 0.8 and 1 of them (``--random-range-ratio 0.8``).
    """
    if _SCENARIO in entry and "isl" not in entry:
        return [left_out(place, TITLE, shared_prompts(text(entry, _SCENARIO) or "agents"))]
    framework = (text(entry, "framework") or "").lower().split("-disagg")[0]
    framework = framework.removeprefix("dynamo-").removeprefix("llmd-")
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
    reason = no_tpot(entry, "mean_tpot", optional(entry, "osl", place))
    if "mean_tpot" not in entry and "median_tpot" in entry:
        # a median leaves out how long the slow answers take, which what is predicted is the mean of
        reason = "holds medians only, no mean_tpot"
    if reason:
        return [left_out(place, TITLE, reason)]
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=text(entry, "model"),
            engine=_ENGINES.get(framework, framework),
            system=_pool_system(entry, "decode"),
            precision=text(entry, "precision") or "",
            input_tokens=DRAWN * number(entry, "isl", place),
            output_tokens=DRAWN * number(entry, "osl", place),
            tpot_s=number(entry, "mean_tpot", place),
            ttft_s=ttft if ttft else None,
            requests=0,
            streams=number(entry, "conc", place),
            percentiles=points,
            unusable=_unusable(entry, place),
            deployed=_deployed(entry, _ENGINES.get(framework, framework), place),
        )
    ]


def _unusable(entry: dict[str, Any], place: str) -> str:
    """Why a row cannot be compared: drafts, context that is divided over GPUs, pools on unlike chips."""
    drafts = text(entry, "spec_decoding")
    if drafts not in (None, "none", "off", "false"):
        return f"ran with drafts ({drafts})"
    for key in entry:
        if key.endswith(("dcp_size", "pcp_size")) and (optional(entry, key, place) or 1) > 1:
            return f"divides contexts over GPUs ({key})"
    prefill, decode = (_pool_system(entry, part) for part in ("prefill", "decode"))
    if prefill != decode:
        return (
            f"prefills on {prefill} and decodes on {decode}; a run is compared on chips of one kind"
        )
    return ""


def _pool_system(entry: dict[str, Any], part: str) -> str:
    """The chip of a pool: rows whose pools may differ name it beside the runner."""
    return _system(text(entry, f"{part}_hw") or text(entry, "hw") or "")


def _system(hardware: str) -> str:
    """The chip of a runner's name: ``h200-nb_0``, ``gb200-nv``, ``b200-trt``, ``cluster:gb300-nv``."""
    return hardware.lower().rpartition(":")[2].split("-")[0].split("_")[0]


def _deployed(entry: dict[str, Any], engine: str, place: str) -> Deployed:
    """Groups: of one pool, or of two where ``disagg`` says so."""
    apart = str(entry.get("disagg", "false")).lower() == "true"
    if not apart and "prefill_tp" in entry and optional(entry, "decode_tp", place) == 0:
        parts = ["prefill_"]  # of several nodes, in one pool
    elif not apart and "prefill_tp" not in entry:
        parts = [""]
    else:
        parts = ["decode_", "prefill_"]
    groups = {part: _group(entry, part, place) for part in parts}
    unlike = (_otherwise(entry, part, group, place) for part, group in groups.items())
    why = next(filter(None, unlike), "")
    return Deployed(engine, groups.pop(parts[0]), groups.get("prefill_"), unusable=why)


def _group(entry: dict[str, Any], part: str, place: str) -> Group:
    """A worker's group. With DP attention every GPU of ``tp`` is a rank.

    Rows of vLLM may give the GPUs of one rank instead: a worker then has more of them, as experts or the count of GPUs say.
    """
    number(entry, f"{part}tp", place)
    tp, ep, pp, workers = (
        _size(entry, part + key, place) for key in ("tp", "ep", "pp", "num_workers")
    )
    key = "dp_attention" if part == "" else "dp_attn"
    flag = entry.get(f"{part}{key}", entry.get(f"{part}dp_attention"))
    if str(flag).lower() != "true":
        return Group(tp, 1, pp, workers, min(ep, tp))
    counted = _counted(entry, part, place)
    chips = max(ep, tp) if counted is None and tp == 1 else (counted or 0) // (workers * pp)
    if chips > tp and chips % tp == 0:
        return Group(tp, chips // tp, pp, workers, min(ep, chips))
    return Group(1, tp, pp, workers, min(ep, tp))


def _otherwise(entry: dict[str, Any], part: str, group: Group, place: str) -> str:
    """Why sizes and counts of a pool do not make one deployment; empty: they do."""
    counted, chips = _counted(entry, part, place), group.chips * group.workers
    if counted not in (None, chips):
        return f"{_count_of(part)}: says {counted}, the sizes make {chips} GPUs"
    ep, attention = _size(entry, f"{part}ep", place), group.tp * group.attention_dp
    if ep > attention:
        return f"{part}ep: experts over {ep} GPUs, attention of a worker over {attention}"
    return ""


def _count_of(part: str) -> str:
    return f"num_{part}gpu"


def _counted(entry: dict[str, Any], part: str, place: str) -> int | None:
    """All GPUs of a pool as the row counts them; rows of one node do not."""
    return _size(entry, _count_of(part), place) if part and entry.get(_count_of(part)) else None


def _size(entry: dict[str, Any], key: str, place: str) -> int:
    """A number of GPUs or workers; 1 where it is left out or 0. Raises ``InstanceError``."""
    value = optional(entry, key, place)
    if value is None or value == 0:
        return 1
    if not 0 < value <= 4096 or value != int(value):
        message = f"expected a number of GPUs, got {brief(value)}"
        raise InstanceError(Problem(f"{place}: {key}", message))
    return int(value)

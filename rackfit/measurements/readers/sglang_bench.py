"""``python -m sglang.bench_serving --output-file``: one JSON object per line and run."""

from __future__ import annotations

from typing import Any

from rackfit.measurements.bench import (
    Bench,
    count,
    left_out,
    means,
    no_figures,
    optional,
    percentiles,
    shared_prompts,
    text,
)

TITLE = "sglang.bench_serving"

#: data sets whose prompts begin alike
_SHARED = ("generated-shared-prefix", "mooncake")
_METRICS = ("ttft", "tpot", "itl", "e2e_latency")


def recognises(entry: dict[str, Any]) -> bool:
    """Keys that only this tool has together."""
    return {"sharegpt_output_len", "random_input_len", "completed"} <= entry.keys()


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """The run; ``accept_length`` above 1 means drafts. Raises ``InstanceError``."""
    info = entry.get("server_info")
    info = info if isinstance(info, dict) else {}
    completed = count(entry, "completed", place)
    reason = no_figures(entry, place, completed)
    if (
        not reason
        and "mean_tpot_ms" not in entry
        and "median_itl_ms" in entry
        and "concurrency" not in entry
    ):
        reason = "SGLang up to 0.4.1 wrote medians only, no mean_tpot_ms; run the benchmark of a later one"
    if reason:
        return [left_out(place, TITLE, reason)]
    rate = optional(entry, "request_rate", place)  # Infinity is none
    timed = isinstance(entry.get("request_rate"), str)
    streams = (
        None
        if timed or (rate is not None and rate > 0)
        else optional(entry, "max_concurrency", place)
    )
    names = {
        f"{p}_{metric}_ms": f"{metric.removesuffix('_latency')}_{p}_s"
        for p in ("p90", "p95", "p99")
        for metric in _METRICS
    } | {f"median_{metric}_ms": f"{metric.removesuffix('_latency')}_p50_s" for metric in _METRICS}
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=text(info, "served_model_name") or text(info, "model_path"),
            engine="sglang" if text(entry, "backend") in ("sglang", "sglang-native") else None,
            **means(entry, place, "e2e_latency", completed),
            streams=streams,
            in_flight=optional(entry, "concurrency", place),
            percentiles=percentiles(entry, names, 1e-3, place),
            fixed_lengths=text(entry, "dataset_name") in ("random", "random-ids")
            and entry.get("random_range_ratio") == 1.0,
            unusable=_unusable(entry, info, place),
        )
    ]


def _unusable(entry: dict[str, Any], info: dict[str, Any], place: str) -> str:
    """Why a run cannot be compared: drafts, or prompts that a cache knows in part."""
    accept = optional(entry, "accept_length", place)
    if accept and accept > 1.001:
        return f"ran with drafts, {accept:g} tokens per pass"
    dataset = text(entry, "dataset_name")
    if dataset in _SHARED and info.get("disable_radix_cache") is not True:
        return shared_prompts(dataset)
    return ""

"""``stage_N_lifecycle_metrics.json`` and ``summary_lifecycle_metrics.json`` of inference-perf."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rackfit.measurements.bench import (
    Bench,
    failed,
    left_out,
    no_tpot,
    number,
    optional,
    percentiles,
)
from topology.errors import InstanceError, Problem

TITLE = "inference-perf"

_TIMES = {"time_per_output_token": "tpot", "time_to_first_token": "ttft", "request_latency": "e2e"}

#: by how much time per chunk may differ from time per token before its percentiles are left out
_CHUNKS = 0.1


def is_sum(name: str, beside: Iterable[str]) -> bool:
    """Whether a file repeats the stages that lie beside it."""
    return name == "summary_lifecycle_metrics.json" and any(
        other.startswith("stage_") and other.endswith("_lifecycle_metrics.json") for other in beside
    )


def recognises(entry: dict[str, Any]) -> bool:
    """The three parts of its reports; what it collects from the server has them, too, without latencies of requests."""
    done = entry.get("successes")
    parts = {"load_summary", "successes", "failures"} <= entry.keys()
    return parts and isinstance(done, dict) and "latency" in done


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """One stage, or all of them together. The model's name is not in it."""
    successes, failures = _part(entry, "successes", place), _part(entry, "failures", place)
    done = optional(successes, "count", place) or 0.0
    if reason := failed(optional(failures, "count", place), done):
        return [left_out(place, TITLE, reason)]
    latency = _part(successes, "latency", f"{place}: successes")
    means: dict[str, float | None] = {}
    points: dict[str, float] = {}
    for key, short in _TIMES.items():
        inside = latency.get(key)
        inside = inside if isinstance(inside, dict) else {}
        where = f"{place}: {key}"
        means[short] = optional(inside, "mean", where)
        names = {p: f"{short}_{p}_s" for p in ("p50", "p90", "p95", "p99")} | {
            "median": f"{short}_p50_s"
        }
        points |= percentiles(inside, names, 1.0, where)
    load = _part(entry, "load_summary", place)
    outputs = number(*_lengths(successes, "output", place))
    per_token = latency.get("time_per_output_token")
    reason = no_tpot(per_token if isinstance(per_token, dict) else {}, "mean", outputs)
    if reason or means["tpot"] is None:
        reason = reason or "without time_per_output_token: not streamed"
        return [left_out(place, TITLE, reason)]
    tpot = _per_token(means, outputs)
    if abs(tpot - means["tpot"]) > _CHUNKS * tpot:
        points = {name: value for name, value in points.items() if not name.startswith("tpot")}
    inputs = _lengths(successes, "prompt", place)
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=None,
            input_tokens=number(*inputs),
            output_tokens=outputs,
            tpot_s=tpot,
            ttft_s=means["ttft"],
            requests=int(done),
            requests_per_s=optional(
                _part(successes, "throughput", place), "requests_per_sec", place
            ),
            e2e_s=means["e2e"],
            streams=optional(load, "concurrency", place),
            percentiles=points,
            fixed_lengths=inputs[0].get("min") == inputs[0].get("max"),
        )
    ]


def _lengths(successes: dict[str, Any], side: str, place: str) -> tuple[dict[str, Any], str, str]:
    """Tokens of ``prompt`` or ``output``, the key of their mean, the place.

    Since 0.7 ``*_tokens`` is what the server counted; ``*_len`` is what the tool's own tokenizer makes of the text.
    """
    name = next((n for n in (f"{side}_tokens", f"{side}_len") if n in successes), f"{side}_len")
    return _part(successes, name, f"{place}: successes"), "mean", f"{place}: {name}"


def _per_token(means: dict[str, float | None], outputs: float) -> float:
    """Time per further token from end to end; its own figure is per chunk of the stream, which may be half a token.

    Without an end-to-end time it is taken as it is.
    """
    e2e, ttft, own = means["e2e"], means["ttft"], means["tpot"]
    assert own is not None
    if e2e is None or ttft is None or outputs <= 1 or e2e <= ttft:
        return own
    return (e2e - ttft) / (outputs - 1)


def _part(data: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise InstanceError(Problem(f"{place}: {key}", "is missing; the file seems cut off"))
    return value

"""``benchmarks.json`` of GuideLLM: several benchmarks, one per rate or number of streams."""

from __future__ import annotations

from typing import Any

from rackfit.measurements.bench import (
    Bench,
    failed,
    left_out,
    no_tpot,
    number,
    optional,
    percentiles,
    text,
)
from topology.errors import InstanceError, Problem
from topology.names import brief

TITLE = "GuideLLM"

_TIMES = {"time_to_first_token_ms": "ttft", "inter_token_latency_ms": "tpot"}


def recognises(entry: dict[str, Any]) -> bool:
    """A list of benchmarks with metrics by status."""
    rows = entry.get("benchmarks")
    first = rows[0] if isinstance(rows, list) and rows else None
    metrics = first.get("metrics") if isinstance(first, dict) else None
    return isinstance(metrics, dict) and "inter_token_latency_ms" in metrics


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """Every benchmark; TPOT is the inter-token latency (its own ``time_per_output_token`` counts the first)."""
    model = next(
        (name for name in (_model(entry), *map(_model, entry["benchmarks"])) if name), None
    )
    return [
        _bench(row, f"{place}: benchmarks[{index}]", model)
        for index, row in enumerate(entry["benchmarks"])
    ]


def _bench(row: Any, place: str, model: str | None) -> Bench:
    metrics = row.get("metrics") if isinstance(row, dict) else None
    if not isinstance(metrics, dict):
        raise InstanceError(Problem(f"{place}.metrics", "is missing; the file seems cut off"))
    totals = metrics.get(
        "request_totals", row.get("request_totals")
    )  # beside the metrics until 0.3
    totals = totals if isinstance(totals, dict) else {}
    done = optional(totals, "successful", place)
    if reason := _no_figures(metrics, totals, done, place):
        return left_out(place, TITLE, reason)
    points: dict[str, float] = {}
    means: dict[str, float] = {}
    for key, short in _TIMES.items():
        inside = _successful(metrics, key, place)
        means[short] = number(inside, "mean", f"{place}.{key}") / 1e3
        shares = inside.get("percentiles")
        if "median" in inside:  # 0.2 has no p50
            points |= percentiles(inside, {"median": f"{short}_p50_s"}, 1e-3, f"{place}.{key}")
        names = {point: f"{short}_{point}_s" for point in ("p50", "p90", "p95", "p99")}
        points |= percentiles(
            shares if isinstance(shares, dict) else {}, names, 1e-3, f"{place}.{key}"
        )
    inputs = _successful(metrics, "prompt_token_count", place)
    latency = _successful(metrics, "request_latency", place)
    return Bench(
        place=place,
        tool=TITLE,
        model=model,
        input_tokens=number(inputs, "mean", f"{place}.prompt_token_count"),
        output_tokens=number(
            _successful(metrics, "output_token_count", place), "mean", f"{place}.output_token_count"
        ),
        tpot_s=means["tpot"],
        ttft_s=means["ttft"],
        requests=int(done or 0),
        requests_per_s=optional(_successful(metrics, "requests_per_second", place), "mean", place),
        e2e_s=optional(latency, "mean", place),
        streams=_streams(row, place),
        in_flight=_in_flight(metrics, place),
        percentiles=points,
        fixed_lengths=optional(inputs, "std_dev", place) == 0,
    )


def _no_figures(
    metrics: dict[str, Any], totals: dict[str, Any], done: float | None, place: str
) -> str:
    """Why a benchmark has no figures to compare: requests failed, or were not streamed; empty: it has."""
    if done is not None and (reason := failed(optional(totals, "errored", place), done)):
        return reason
    for key in _TIMES:
        value = metrics.get(key)
        if isinstance(value, dict) and value.get("successful") is None:
            return f"without {key} of successful requests: not streamed"
    outputs = optional(_successful(metrics, "output_token_count", place), "mean", place)
    return no_tpot(_successful(metrics, "inter_token_latency_ms", place), "mean", outputs)


def _in_flight(metrics: dict[str, Any], place: str) -> float | None:
    """Mean requests in flight, those included that had not ended when the benchmark did."""
    value = metrics.get("request_concurrency")
    total = value.get("total") if isinstance(value, dict) else None
    return (
        optional(total, "mean", f"{place}.request_concurrency") if isinstance(total, dict) else None
    )


def _successful(metrics: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    """A metric's distribution over successful requests. Raises ``InstanceError``."""
    value = metrics.get(key)
    inside = value.get("successful") if isinstance(value, dict) else None
    if not isinstance(inside, dict):
        message = f"expected figures of successful requests, got {brief(inside)}"
        raise InstanceError(Problem(f"{place}.{key}", message))
    return inside


def _streams(row: dict[str, Any], place: str) -> float | None:
    """Streams of a closed loop: ``synchronous`` is one; rates and ``throughput`` have none."""
    for holder in ("config", "args"):
        value = row.get(holder)
        strategy = value.get("strategy") if isinstance(value, dict) else None
        if isinstance(strategy, dict):
            if strategy.get("type_") == "synchronous":
                return 1.0
            if strategy.get("type_") == "concurrent":
                return number(strategy, "streams", place)
    return None


def _model(data: Any) -> str | None:
    """The model's name, wherever the version writes it."""
    places: list[Any] = [data]
    for _ in range(4):
        deeper: list[Any] = []
        for here in places:
            if isinstance(here, dict):
                if found := text(here, "model") or text(here, "backend_model"):
                    return found
                deeper += [
                    here[key]
                    for key in ("args", "config", "spec", "backend", "worker", "backend_kwargs")
                    if key in here
                ]
        places = deeper
    return None

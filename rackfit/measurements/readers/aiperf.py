"""``profile_export_aiperf.json`` of AIPerf and ``profile_export_genai_perf.json`` of GenAI-Perf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackfit.measurements.bench import (
    Bench,
    failed,
    left_out,
    no_tpot,
    number,
    optional,
    percentiles,
    shared_prompts,
)
from topology.errors import InstanceError, Problem
from topology.names import brief, shown

TITLE = "AIPerf or GenAI-Perf"

_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_POINTS = ("p50", "p90", "p95", "p99")
_DEPTH = 6
#: metrics that only these tools write so
_OWN = ("inter_token_latency", "request_latency", "request_count", "error_request_count")
#: data sets whose requests repeat the beginning of earlier ones
_CONVERSATIONS = ("multi_turn", "mooncake_trace", "bailian_trace")
#: numbers of a configuration above which prompts begin alike: turns of a conversation, common beginnings
_ALIKE = (("turns", "mean", 1), ("turn", "mean", 1), ("prefix_prompt", "num", 0), ("prefix_prompt", "pool_size", 0),
          ("num_prefix_prompts", "", 0))  # fmt: skip


def recognises(entry: dict[str, Any]) -> bool:
    """Metrics of requests that are objects with a unit; which of them there are depends on the run."""
    metrics = [entry.get(name) for name in _OWN]
    return "input_config" in entry and any(
        isinstance(one, dict) and "unit" in one for one in metrics
    )


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """The run. Its concurrency is that of the configuration, where it had one."""
    found = entry.get("input_config")
    counted = _average(entry, "request_count", place)
    requests = counted if counted is not None else _average(entry, "good_request_count", place)
    errors = _average(entry, "error_request_count", place)
    if reason := _no_figures(entry, requests, errors, place) or _shared(found):
        return [left_out(place, TITLE, reason)]
    tpot, points = _seconds(entry, "inter_token_latency", "tpot", place)
    assert tpot is not None
    ttft, more = _seconds(entry, "time_to_first_token", "ttft", place)
    e2e, most = _seconds(entry, "request_latency", "e2e", place)
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=next(_models(found), None),
            input_tokens=_length(entry, "input_sequence_length", place),
            output_tokens=_length(entry, "output_sequence_length", place),
            tpot_s=tpot,
            ttft_s=ttft,
            requests=int(requests or 0),
            requests_per_s=_average(entry, "request_throughput", place),
            e2e_s=e2e,
            streams=_streams(found, place),
            percentiles=points | more | most,
            fixed_lengths=_spread(entry, "input_sequence_length", place) == 0,
        )
    ]


def _no_figures(
    entry: dict[str, Any], requests: float | None, errors: float | None, place: str
) -> str:
    """Why a run has no figures to compare: requests failed, or were not streamed; empty: it has."""
    counted = requests is not None or errors is not None  # older versions count neither
    if counted and (reason := failed(errors, requests or 0.0)):
        return reason
    if not (metric := _metric(entry, "inter_token_latency")):
        return "without inter_token_latency: not streamed"
    return no_tpot(metric, "avg", _average(entry, "output_sequence_length", place))


def _shared(config: Any) -> str:
    """Why a run is not used whose prompts begin alike: conversations, traces, a common beginning."""
    for key in ("format", "custom_dataset_type"):
        for value in _values(config, key):
            if value in _CONVERSATIONS:
                return shared_prompts(value)
    for key, inside, most in _ALIKE:
        for value in _values(config, key):
            many = value.get(inside) if isinstance(value, dict) else value
            if isinstance(many, int | float) and many > most:
                return shared_prompts(f"{key}: {brief(many)}")
    return ""


def _metric(entry: dict[str, Any], name: str) -> dict[str, Any]:
    value = entry.get(name)
    return value if isinstance(value, dict) else {}


def _average(entry: dict[str, Any], name: str, place: str) -> float | None:
    return optional(_metric(entry, name), "avg", f"{place}: {name}")


def _length(entry: dict[str, Any], name: str, place: str) -> float:
    return number(_metric(entry, name), "avg", f"{place}: {name}")


def _spread(entry: dict[str, Any], name: str, place: str) -> float | None:
    metric = _metric(entry, name)
    ends = [optional(metric, key, f"{place}: {name}") for key in ("min", "max")]
    return None if ends[0] is None or ends[1] is None else ends[1] - ends[0]


def _seconds(
    entry: dict[str, Any], name: str, short: str, place: str
) -> tuple[float | None, dict[str, float]]:
    """Mean and percentiles of a time, in seconds."""
    metric = _metric(entry, name)
    if not metric:
        return None, {}
    factor = _SECONDS.get(str(metric.get("unit")))
    if factor is None:
        message = f"expected a unit of {', '.join(_SECONDS)}, got {brief(metric.get('unit'))}"
        raise InstanceError(Problem(f"{place}: {name}.unit", message))
    names = {point: f"{short}_{point}_s" for point in _POINTS}
    mean = number(metric, "avg", f"{place}: {name}") * factor
    return mean, percentiles(metric, names, factor, f"{place}: {name}")


def _values(data: Any, key: str, depth: int = 0) -> Iterator[Any]:
    """Every value of a key in a configuration; where it lies differs between versions."""
    if depth > _DEPTH:
        return
    if isinstance(data, dict):
        if key in data:
            yield data[key]
        for inner in data.values():
            yield from _values(inner, key, depth + 1)
    elif isinstance(data, list):
        for inner in data[:50]:
            yield from _values(inner, key, depth + 1)


def _models(config: Any) -> Iterator[str]:
    for key in ("model_names", "models", "model", "model_selection"):
        for value in _values(config, key):
            names = value if isinstance(value, list) else [value]
            for name in names:
                if isinstance(name, dict):
                    name = name.get("name")
                if isinstance(name, str) and name:
                    yield shown(name, 300)
            if isinstance(value, dict):
                yield from (
                    shown(name, 300) for name in _values(value, "name") if isinstance(name, str)
                )


def _measured(data: Any, depth: int = 0) -> Any:
    """A configuration without the phases whose requests are not counted."""
    if depth > _DEPTH:
        return None
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if key != "warmup"}
        return {key: _measured(value, depth + 1) for key, value in kept.items()}
    if isinstance(data, list):
        return [_measured(part, depth + 1) for part in data[:50] if not _is_warm_up(part)]
    return data


def _is_warm_up(phase: Any) -> bool:
    return isinstance(phase, dict) and (
        "warmup" in (phase.get("kind"), phase.get("name"))
        or phase.get("exclude_from_results") is True
    )


def _streams(config: Any, place: str) -> float | None:
    """The closed loop's concurrency; none where a rate of requests is set."""
    counted = _measured(config)
    rates = [
        value
        for key in ("request_rate", "rate")
        for value in _values(counted, key)
        if isinstance(value, int | float) and value
    ]
    found = [value for value in _values(counted, "concurrency") if type(value) is int and value > 0]
    if rates:
        return None
    if len(set(found)) > 1:
        message = f"several concurrencies in one run: {brief(sorted(set(found)))}"
        raise InstanceError(Problem(place, message))
    return float(found[0]) if found else None

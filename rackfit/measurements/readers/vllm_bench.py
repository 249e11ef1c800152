"""``vllm bench serve --save-result`` (benchmark_serving.py of older versions), one JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rackfit.measurements.bench import (
    Bench,
    count,
    left_out,
    means,
    no_figures,
    optional,
    percentiles,
    text,
)
from topology.errors import InstanceError, Problem

TITLE = "vllm bench serve"

_POINTS = ("p25", "p50", "p75", "p90", "p95", "p99")
#: mean number of requests in flight after the warm-up; the tool has no such key
_IN_FLIGHT = "requests in flight after the warm-up"
#: keys of files that were made of results and keep no means; InferenceX writes some in seconds
_MEDIANS = frozenset({"median_tpot", "median_tpot_ms"})
_METRICS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}


def recognises(entry: dict[str, Any]) -> bool:
    """Keys that only this tool has together."""
    return {"model_id", "tokenizer_id", "num_prompts", "duration"} <= entry.keys()


def is_sum(name: str, beside: Iterable[str]) -> bool:
    """Whether a file repeats the runs of ``vllm bench sweep`` that lie beside it."""
    return name == "summary.json" and any(re.fullmatch(r"run=\d+\.json", other) for other in beside)


def read(entry: dict[str, Any], place: str) -> list[Bench]:
    """The run; several outputs of one text are no token times, so they are left out. Raises ``InstanceError``."""
    completed = count(entry, "completed", place)
    reason = no_figures(entry, place, completed)
    if not reason and "mean_tpot_ms" not in entry and "mean_e2el_ms" in entry:
        reason = "a run without token times (embeddings or scores)"
    if not reason and _MEDIANS & entry.keys() and not any(key.startswith("mean_") for key in entry):
        reason = "holds medians only, no mean_tpot_ms"
    if reason:
        return [left_out(place, TITLE, reason)]
    drafts = optional(entry, "spec_decode_acceptance_length", place)
    inputs = entry.get("input_lens")
    names = {f"median_{metric}_ms": f"{short}_p50_s" for metric, short in _METRICS.items()} | {
        f"{p}_{metric}_ms": f"{short}_{p}_s" for p in _POINTS for metric, short in _METRICS.items()
    }
    rate = entry.get("request_rate")
    closed = rate in ("inf", None) or rate == float("inf")
    return [
        Bench(
            place=place,
            tool=TITLE,
            model=text(entry, "model_id"),
            **means(entry, place, "e2el", completed),
            streams=optional(entry, "max_concurrency", place) if closed else None,
            percentiles=percentiles(entry, names, 1e-3, place),
            fixed_lengths=isinstance(inputs, list) and len(set(map(str, inputs))) == 1,
            in_flight=optional(entry, _IN_FLIGHT, place),
            unusable=f"ran with drafts, {drafts:g} tokens per pass" if drafts else "",
        )
    ]


def after_warm_up(entry: dict[str, Any], seconds: float, place: str) -> dict[str, Any]:
    """The object as if the requests that started in the first seconds had not been.

    Means are over the requests left, the rate over the time from the first of them to the end of the run.
    Needs ``--save-detailed``. Raises ``InstanceError``.
    """
    lists = {
        key: entry.get(key) for key in ("start_times", "ttfts", "itls", "input_lens", "output_lens")
    }
    if not all(isinstance(value, list) for value in lists.values()):
        message = "holds no times of requests; run vllm bench serve with --save-detailed"
        raise InstanceError(Problem(f"{place}: --warm-up", message))
    rows = list(zip(*(value for value in lists.values() if value is not None), strict=False))
    times = [row for row in rows if _is_request(row)]
    if not times:
        raise InstanceError(Problem(place, "no request of it has times"))
    begin = min(row[0] for row in times) + seconds
    left = [row for row in times if row[0] >= begin]
    if not left:
        message = f"every request started within {seconds:g} s"
        raise InstanceError(Problem(f"{place}: --warm-up", message))
    ends = [row[0] + row[1] + sum(row[2]) for row in left]
    tpots = [sum(row[2]) / (row[4] - 1) for row in left if row[4] > 1]
    if not tpots:
        raise InstanceError(Problem(place, "no request has more than one output token"))
    end = max(ends)
    duration = end - begin
    # those that started earlier are in flight, too
    spans = [(max(row[0], begin), min(row[0] + row[1] + sum(row[2]), end)) for row in times]
    cut = {key: value for key, value in entry.items() if not key.startswith(("p", "median", "std"))}
    found = len(left)
    return cut | {
        _IN_FLIGHT: sum(max(0.0, stop - start) for start, stop in spans) / duration
        if duration > 0
        else None,
        "completed": found,
        "failed": 0,
        "input_lens": [row[3] for row in left],
        "total_input_tokens": sum(row[3] for row in left),
        "total_output_tokens": sum(row[4] for row in left),
        "mean_ttft_ms": sum(row[1] for row in left) / found * 1e3,
        "mean_tpot_ms": sum(tpots) / len(tpots) * 1e3,
        "mean_e2el_ms": sum(row[1] + sum(row[2]) for row in left) / found * 1e3,
        "request_throughput": found / duration if duration > 0 else 0.0,
    }


def _is_request(row: tuple[Any, ...]) -> bool:
    """Whether start, first token, gaps and lengths of a request are numbers as they should be."""
    start, first, gaps, inputs, outputs = row
    return (
        all(isinstance(value, int | float) and value >= 0 for value in (start, first))
        and isinstance(gaps, list)
        and all(isinstance(gap, int | float) and gap >= 0 for gap in gaps)
        and type(inputs) is int
        and type(outputs) is int
        and inputs > 0
        and outputs > 0
    )

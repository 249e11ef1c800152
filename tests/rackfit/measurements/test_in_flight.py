"""How many requests a run had in the system, where the loop was short, overloaded or wrongly written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import results
from results import saved

from rackfit.measurements.rows import Told, read_benches, read_runs


def in_flight(folder: Path, data: dict[str, Any]) -> float:
    (bench,) = read_benches(saved(folder, data))
    return bench.concurrency


@pytest.mark.parametrize(
    ("completed", "streams", "counted", "mean"),
    [
        (200, 200, 61.3, 61.3),  # one wave: what the tool counted
        (100, 32, 28.4, 28.4),  # three waves
        (100, 20, 17.0, 20.0),  # five waves: the streams
        (50, 200, 170.0, 50.0),  # never more than the requests
    ],
)
def test_sglang_says_how_full_a_short_closed_loop_was(
    folder: Path, completed: int, streams: int, counted: float, mean: float
) -> None:
    loop = {"request_rate": float("inf"), "max_concurrency": streams, "concurrency": counted}
    assert in_flight(folder, results.sglang(completed=completed, **loop)) == mean


def test_littles_law_says_it_where_the_time_from_end_to_end_is_known(folder: Path) -> None:
    closed = results.vllm(completed=100, max_concurrency=64, request_throughput=10.0)
    assert in_flight(folder, closed) == 64
    assert in_flight(folder, closed | {"mean_e2el_ms": 4000.0}) == pytest.approx(40.0)
    assert in_flight(folder, closed | {"mean_e2el_ms": 9000.0}) == 64  # never more than the streams
    assert in_flight(folder, closed | {"mean_e2el_ms": 4000.0, "max_concurrency": 20}) == 20


def test_a_cut_warm_up_counts_the_requests_that_began_in_it(folder: Path) -> None:
    """Two requests of 10 s each begin at 0 and at 6 s; from 5 s on there are 15 s of requests in 11 s."""
    times = {"start_times": [0.0, 6.0], "ttfts": [1.0, 1.0], "itls": [[1.0] * 9] * 2,
             "input_lens": [16] * 2, "output_lens": [10] * 2}  # fmt: skip
    path = saved(folder, results.vllm(**times))
    (bench,) = read_benches(path, warm_up_s=5.0)
    assert bench.requests == 1
    assert bench.in_flight == pytest.approx((5.0 + 10.0) / 11.0)


def test_requests_that_guidellm_had_not_ended_were_in_flight(folder: Path) -> None:
    data = results.guidellm()
    one = data["benchmarks"][1]
    one["config"]["strategy"] = {"type_": "throughput", "max_concurrency": 512}
    one["metrics"]["request_concurrency"]["total"] = {"mean": 509.44}
    (_, bench) = read_benches(saved(folder, data))
    assert bench.concurrency == pytest.approx(509.44)
    one["metrics"]["request_concurrency"]["total"] = None  # older versions
    (_, bench) = read_benches(saved(folder, data))
    assert bench.concurrency == pytest.approx(2.0 * 2.0)


@pytest.mark.parametrize("streams", [0, -3])
def test_a_loop_without_requests_is_left_out(folder: Path, streams: int) -> None:
    for data, name in (
        (results.vllm(max_concurrency=streams), "r.json"),
        (results.sglang(request_rate=float("inf"), max_concurrency=streams), "r.jsonl"),
        (results.inference_perf(concurrency=streams), "r.json"),
    ):
        told = Told(chip="h100", model=results.MODEL)
        found, (skipped,) = read_runs([saved(folder, data, name)], told)
        assert not found
        assert skipped.reason == f"concurrency: must be above 0, got {streams}"

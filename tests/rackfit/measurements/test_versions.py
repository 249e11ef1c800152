"""Results of older versions, in the form of each tool's own source; ``results`` names versions and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import results
from results import saved

from costmodel.measured.rows import MeasuredRow
from rackfit.measurements.rows import Told, read_benches, read_runs


def rows(path: Path) -> list[MeasuredRow]:
    found, skipped = read_runs([path], Told(chip="h100", model=results.MODEL))
    assert not skipped
    return found


@pytest.mark.parametrize(
    ("entry", "lengths", "times", "concurrency"),
    [
        (results.vllm_08(), (16, 10), (0.025, 0.1667), 4),
        (results.vllm_05(), (16, 10), (0.025, 0.1667), 0.109 * (0.1667 + 9 * 0.025)),
        (results.sglang_046(), (1000, 200), (0.0095, 0.1), 4.0),
        (results.sglang_053(), (1000, 200), (0.0095, 0.1), 16),
        (results.aiperf_02(), (1000, 200), (0.0095, 0.1), 8),
        (results.genai_perf_008(), (1000, 200), (0.0095, 0.1), 8),
        (results.guidellm_03(), (1000, 200), (0.0095, 0.1), 4),
        (results.inference_perf_01(), (1000, 200), (0.0095, 0.1), 2.0 * 1.9905),
        (results.inference_perf_03(), (1000, 200), (0.0095, 0.1), 12),
        (results.inference_perf_07(), (1000, 200), (0.0095, 0.1), 12),
    ],
)
def test_older_versions_are_read(
    folder: Path,
    entry: dict[str, Any],
    lengths: tuple[int, int],
    times: tuple[float, float],
    concurrency: float,
) -> None:
    row = rows(saved(folder, entry))[0]
    assert (row.input_tokens, row.output_tokens, row.model) == (*lengths, results.MODEL)
    assert (row.tpot_s, row.ttft_s) == pytest.approx(times)
    assert row.concurrency == pytest.approx(concurrency)


def test_requests_that_failed_count_in_older_versions_too(folder: Path) -> None:
    """GuideLLM told them beside the metrics, vLLM as the error of each request."""
    guide = results.guidellm_03()
    guide["benchmarks"][0]["request_totals"]["errored"] = 60
    for data, reason in (
        (guide, "60 of 160 requests failed"),
        (results.vllm_08(errors=["timeout"] * 8 + [""] * 12), "8 of 20 requests failed"),
    ):
        found, skipped = read_runs([saved(folder, data)], Told(chip="h100"))
        assert not found
        assert reason in skipped[0].reason


def test_a_version_without_token_times_is_named(folder: Path) -> None:
    """It is left out; other runs of a folder are read."""
    medians = results.vllm() | {"median_tpot": 0.14, "median_ttft": 3.1}
    kept = {key: value for key, value in medians.items() if not key.startswith("mean_")}
    for data, reason in (
        (results.sglang_036(), "SGLang up to 0.4.1 wrote medians only"),
        (results.sglang_041(), "SGLang up to 0.4.1 wrote medians only"),
        (kept, "holds medians only, no mean_tpot_ms"),
    ):
        found, (skipped,) = read_runs([saved(folder, data, "r.jsonl")], Told(chip="h100"))
        assert not found
        assert skipped.reason.startswith(reason)


def test_the_model_of_guidellm_stands_with_its_worker(folder: Path) -> None:
    (bench,) = read_benches(saved(folder, results.guidellm_03()))
    assert bench.model == results.MODEL

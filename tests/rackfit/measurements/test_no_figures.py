"""Runs without figures that can be compared are left out with the reason; the others of their file are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import results
from results import saved

from rackfit.measurements.rows import Told, read_benches, read_runs
from topology.errors import InstanceError


def left_out(folder: Path, data: Any, name: str = "r.json") -> str:
    """Why the one run of a file is left out."""
    told = Told(chip="h100", model=results.MODEL)
    found, (skipped,) = read_runs([saved(folder, data, name)], told)
    assert not found
    return skipped.reason


def _aiperf(**more: Any) -> dict[str, Any]:
    """A run of AIPerf of which no request succeeded."""
    whole = results.aiperf(**more)
    gone = ("inter_token_latency", "time_to_first_token", "request_latency", "request_count", "request_throughput",
            "output_sequence_length", "input_sequence_length")  # fmt: skip
    return {key: value for key, value in whole.items() if key not in gone}


def _failed_stage() -> dict[str, Any]:
    """A stage of inference-perf of which no request succeeded."""
    stage = results.inference_perf()
    stage["successes"] = {"count": 0, "latency": {"time_per_output_token": None}, "throughput": {},
                          "prompt_len": None, "output_len": None}  # fmt: skip
    stage["failures"]["count"] = 60
    return stage


ZERO = {
    "total_output_tokens": 0,
    "mean_tpot_ms": 0.0,
    "mean_ttft_ms": 0.0,
    "request_throughput": 0.0,
}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (results.vllm(completed=0, failed=8, **ZERO), "8 of 8 requests failed"),
        (results.sglang(completed=0, **ZERO), "no request was completed"),
        (results.sglang(completed=0, errors=["gone"] * 3, **ZERO), "3 of 3 requests failed"),
        (_aiperf(error_request_count={"unit": "requests", "avg": 24.0}), "24 of 24 requests failed"),
        (_failed_stage(), "60 of 60 requests failed"),
    ],
)  # fmt: skip
def test_failed_requests_are_the_reason_where_nothing_else_is_there(
    folder: Path, data: dict[str, Any], reason: str
) -> None:
    assert left_out(folder, data) == reason


def test_the_other_runs_of_a_file_are_read(folder: Path) -> None:
    guide = results.guidellm()
    metrics = guide["benchmarks"][1]["metrics"]
    metrics["request_totals"] = {"successful": 0, "errored": 24, "incomplete": 0, "total": 24}
    metrics["time_to_first_token_ms"]["successful"]["mean"] = 0.0
    lines = [results.sglang(), results.sglang(completed=0, **ZERO)]
    saved(folder, guide)
    (folder / "two.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    for name in ("r.json", "two.jsonl"):
        found, skipped = read_runs([folder / name], Told(chip="h100"))
        assert (len(found), len(skipped)) == (1, 1)


def _no_stream(key: str) -> dict[str, Any]:
    guide = results.guidellm()
    guide["benchmarks"] = guide["benchmarks"][:1]
    guide["benchmarks"][0]["metrics"][key]["successful"] = None
    return guide


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (results.vllm(mean_tpot_ms=0.0, total_output_tokens=12), "(its mean is 0): answers of one token"),
        (results.vllm(mean_tpot_ms=float("nan")), "(its mean is nan): answers of one token, or not streamed"),
        (results.sglang(mean_tpot_ms=0.0), "(its mean is 0): answers of one token, or not streamed"),
        (results.inferencex(mean_tpot=0.0, osl=1), "(its mean is 0): answers of one token"),
        (results.aiperf(inter_token_latency={"unit": "ms", "avg": 0.0}), "(its mean is 0): answers of one token, or not streamed"),
        ({key: value for key, value in results.aiperf().items() if key != "inter_token_latency"},
         "without inter_token_latency: not streamed"),
        (_no_stream("time_to_first_token_ms"), "without time_to_first_token_ms of successful requests: not streamed"),
    ],
)  # fmt: skip
def test_runs_without_times_between_tokens_say_so(
    folder: Path, data: dict[str, Any], reason: str
) -> None:
    assert left_out(folder, data).endswith(reason)


def test_a_number_that_is_none_is_not_called_missing(folder: Path) -> None:
    for data, said in (
        (results.vllm(request_throughput=float("nan")), "request_throughput: must be above 0, got nan"),
        (results.vllm(completed=0.5), "completed: expected a whole number from 0, got 0.5"),
        (results.vllm(completed=-1), "completed: expected a whole number from 0, got -1"),
    ):  # fmt: skip
        with pytest.raises(InstanceError) as refused:
            read_benches(saved(folder, data))
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (results.sglang(dataset_name="generated-shared-prefix"), "generated-shared-prefix"),
        (results.aiperf(input_config={"datasets": [{"type": "file", "format": "multi_turn"}]}), "multi_turn"),
        (results.aiperf(input_config={"input": {"custom_dataset_type": "mooncake_trace"}}), "mooncake_trace"),
        (results.aiperf(input_config={"input": {"conversation": {"turn": {"mean": 3}}}}), "turn: 3"),
        (results.aiperf(input_config={"num_prefix_prompts": 4}), "num_prefix_prompts: 4"),
    ],
)  # fmt: skip
def test_prompts_that_share_prefixes_are_not_counted_as_computed(
    folder: Path, data: dict[str, Any], words: str
) -> None:
    assert left_out(folder, data).startswith(f"its prompts share prefixes ({words})")


def test_prompts_that_share_prefixes_are_computed_where_nothing_is_kept(folder: Path) -> None:
    told = {"model_path": results.MODEL, "disable_radix_cache": True}
    data = results.sglang(dataset_name="generated-shared-prefix", server_info=told)
    (row,), _ = read_runs([saved(folder, data)], Told(chip="h100"))
    assert row.input_tokens == 1000

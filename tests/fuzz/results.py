"""Results in the form that benchmark tools write them, one run each, small enough to be checked by hand.

Keys are those of the tools' own writers: vLLM 0.33 (a run of its own code), SGLang 0.5.23, AIPerf 0.13, GenAI-Perf 0.0.16,
GuideLLM 0.8, inference-perf of August 2026, InferenceX of August 2026, and of the versions in their names; the
figures are made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LAUNCH = (
    f"python -m sglang.launch_server --model-path {MODEL} --tp-size 2 --max-running-requests 64\n"
)


def vllm(**more: Any) -> dict[str, Any]:
    """Twelve requests of 16 and 10 tokens, the first two of which start 100 s before the others."""
    return {
        "date": "20261122-150510", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": MODEL,
        "tokenizer_id": MODEL, "num_prompts": 12, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4,
        "duration": 110.0, "completed": 12, "failed": 0, "total_input_tokens": 192, "total_output_tokens": 120,
        "request_throughput": 0.109, "request_goodput": None, "output_throughput": 1.09, "total_token_throughput": 2.8,
        "input_lens": [16] * 12, "output_lens": [10] * 12, "ttfts": [0.5] * 2 + [0.1] * 10,
        "itls": [[0.05] * 9] * 2 + [[0.02] * 9] * 10, "start_times": [0.0, 0.0] + [100.0 + n for n in range(10)],
        "generated_texts": [""] * 12, "errors": [""] * 12, "max_concurrent_requests": 4, "rtfx": 0.0,
        "mean_ttft_ms": 166.7, "median_ttft_ms": 100.0, "std_ttft_ms": 149.0, "p99_ttft_ms": 500.0,
        "mean_tpot_ms": 25.0, "median_tpot_ms": 20.0, "std_tpot_ms": 11.0, "p99_tpot_ms": 50.0,
        "mean_itl_ms": 25.0, "median_itl_ms": 20.0, "std_itl_ms": 11.0, "p99_itl_ms": 50.0, **more,
    }  # fmt: skip


def sglang(**more: Any) -> dict[str, Any]:
    """An open loop at 2 requests/s."""
    return {
        "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": 2.0, "max_concurrency": None,
        "sharegpt_output_len": None, "random_input_len": 1000, "random_output_len": 200, "random_range_ratio": 1.0,
        "server_info": {"model_path": MODEL, "tp_size": 2}, "duration": 50.0, "completed": 100,
        "total_input_tokens": 100_000, "total_input_text_tokens": 100_000, "total_output_tokens": 20_000,
        "request_throughput": 2.0, "output_throughput": 400.0, "mean_e2e_latency_ms": 2000.0, "median_e2e_latency_ms": 1990.0,
        "p99_e2e_latency_ms": 2500.0, "mean_ttft_ms": 100.0, "median_ttft_ms": 90.0, "p99_ttft_ms": 300.0,
        "mean_tpot_ms": 9.5, "median_tpot_ms": 9.4, "p99_tpot_ms": 12.0, "mean_itl_ms": 9.5, "p99_itl_ms": 20.0,
        "concurrency": 4.0, "accept_length": None, **more,
    }  # fmt: skip


def _metric(unit: str, mean: float, **more: float) -> dict[str, Any]:
    return {"unit": unit, "avg": mean, "p50": mean, "p90": mean, "p95": mean, "p99": 2 * mean, "min": mean, "max": mean,
            "std": 0.0, **more}  # fmt: skip


def aiperf(**more: Any) -> dict[str, Any]:
    """A closed loop of 8."""
    return {
        "schema_version": "1.0", "aiperf_version": "0.13.0", "request_throughput": _metric("requests/sec", 4.0),
        "request_latency": _metric("ms", 2000.0), "request_count": _metric("requests", 64.0),
        "time_to_first_token": _metric("ms", 100.0), "inter_token_latency": _metric("ms", 9.5),
        "output_sequence_length": _metric("tokens", 200.0), "input_sequence_length": _metric("tokens", 1000.0),
        "input_config": {"endpoint": {"model_names": [MODEL], "streaming": True}, "loadgen": {"concurrency": 8}},
        **more,
    }  # fmt: skip


def genai_perf() -> dict[str, Any]:
    """The same of GenAI-Perf, whose configuration lies otherwise."""
    config = {"model_names": [MODEL], "perf_analyzer": {"stimulus": {"concurrency": 8}}}
    return {key: value for key, value in aiperf().items() if "version" not in key} | {
        "input_config": config
    }


def guidellm(holder: str = "config") -> dict[str, Any]:
    """Four streams, and 2 requests/s; ``holder`` of the strategy is ``args`` in older versions."""

    def one(strategy: dict[str, Any]) -> dict[str, Any]:
        def status(mean: float, spread: float = 0.0) -> dict[str, Any]:
            inside = {
                "mean": mean,
                "std_dev": spread,
                "percentiles": {"p50": mean, "p90": mean, "p99": 2 * mean},
            }
            return {"successful": inside, "errored": None, "total": inside}

        metrics = {
            "request_totals": {"successful": 100, "errored": 0, "incomplete": 2, "total": 102},
            "requests_per_second": status(2.0), "request_concurrency": status(4.0), "request_latency": status(2.0),
            "prompt_token_count": status(1000.0), "output_token_count": status(200.0),
            "time_to_first_token_ms": status(100.0), "time_per_output_token_ms": status(10.0),
            "inter_token_latency_ms": status(9.5),
        }  # fmt: skip
        return {"type_": "generative_benchmark", holder: {"strategy": strategy}, "metrics": metrics}

    return {
        "metadata": {"version": 2}, "args": {"backend": {"model": MODEL}},
        "benchmarks": [one({"type_": "concurrent", "streams": 4}), one({"type_": "constant", "rate": 2.0})],
    }  # fmt: skip


def inference_perf(**load: Any) -> dict[str, Any]:
    """A stage at 2 requests/s."""

    def spread(mean: float) -> dict[str, float]:
        return {
            "mean": mean,
            "min": mean,
            "median": mean,
            "p90": mean,
            "p99": 2 * mean,
            "max": mean,
        }

    times = {"request_latency": spread(0.1 + 199 * 0.0095), "normalized_time_per_output_token": spread(0.01),
             "time_per_output_token": spread(0.0095), "time_to_first_token": spread(0.1)}  # fmt: skip
    return {
        "load_summary": {"count": 100, "send_duration": 50.0, "requested_rate": 2.0, "achieved_rate": 2.0, **load},
        "successes": {"count": 100, "latency": times, "throughput": {"requests_per_sec": 2.0},
                      "prompt_len": spread(1000.0), "output_len": spread(200.0)},
        "failures": {"count": 0, "request_latency": None, "prompt_len": None},
    }  # fmt: skip


def inferencex(**more: Any) -> dict[str, Any]:
    """A row of DeepSeek-R1 on eight H200, DP attention."""
    return {
        "hw": "h200-nb_1", "conc": 64, "image": "x", "model": "deepseek-ai/DeepSeek-R1-0528", "framework": "sglang",
        "precision": "fp8", "spec_decoding": "none", "disagg": False, "isl": 1024, "osl": 1024, "is_multinode": False,
        "tp": 8, "pp": 1, "ep": 8, "dp_attention": "true", "tput_per_gpu": 900.0, "mean_ttft": 0.5, "p99_ttft": 1.5,
        "mean_tpot": 0.025, "mean_intvty": 40.0, "p99_tpot": 0.03, **more,
    }  # fmt: skip


def _without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def vllm_08(**more: Any) -> dict[str, Any]:
    """After ``benchmarks/benchmark_serving.py`` of vLLM 0.8: no failures, no starts, a key with a colon too many."""
    gone = (
        "failed",
        "start_times",
        "label",
        "endpoint_type",
        "rtfx",
        "max_concurrent_requests",
        "request_goodput",
    )
    return {**_without(vllm(), *gone), "request_goodput:": None, **more}


def vllm_05() -> dict[str, Any]:
    """The same of vLLM 0.5: no bound on requests in flight."""
    older = _without(
        vllm_08(), "burstiness", "max_concurrency", "request_goodput:", "total_token_throughput"
    )
    return {**older, "best_of": 1, "use_beam_search": False, "input_throughput": 1.7}


def sglang_053() -> dict[str, Any]:
    """After ``sglang/bench_serving.py`` of 0.5.3: no word of the server; the closed loop writes Infinity."""
    closed = sglang(
        max_concurrency=16, request_rate=float("inf"), total_output_tokens_retokenized=19_990
    )
    return _without(closed, "tag", "total_input_text_tokens", "server_info")


def sglang_046() -> dict[str, Any]:
    """The same of 0.4.6, an open loop without the times of 90 and 95 %."""
    figures = sglang_053() | {"request_rate": 2.0, "max_concurrency": None}
    return {key: value for key, value in figures.items() if not key.startswith(("p90", "p95"))}


def sglang_041() -> dict[str, Any]:
    """The same of 0.4.1: medians alone."""
    keys = ("backend", "dataset_name", "request_rate", "max_concurrency", "total_input_tokens", "total_output_tokens",
            "mean_e2e_latency_ms", "median_e2e_latency_ms", "median_ttft_ms", "output_throughput", "sharegpt_output_len",
            "random_input_len", "random_output_len", "random_range_ratio", "duration", "completed")  # fmt: skip
    return {key: sglang()[key] for key in keys} | {"median_itl_ms": 9.4}


def sglang_036() -> dict[str, Any]:
    """The same of 0.3.6."""
    return _without(sglang_041(), "max_concurrency")


def aiperf_02() -> dict[str, Any]:
    """After ``aiperf/common/models/export_models.py`` of AIPerf 0.2: no versions, what is unset is left out."""
    more = {"was_cancelled": False, "error_summary": [], "start_time": "2025-11-02T10:00:00"}
    return _without(aiperf(), "schema_version", "aiperf_version") | more


def genai_perf_008() -> dict[str, Any]:
    """After ``genai_perf/export_data/json_exporter.py`` of GenAI-Perf 0.0.8: the arguments side by side."""
    arguments = {
        "model": [MODEL],
        "formatted_model_name": "m",
        "concurrency": 8,
        "request_rate": None,
        "streaming": True,
    }
    return _without(aiperf_02(), "was_cancelled", "error_summary") | {"input_config": arguments}


def guidellm_03() -> dict[str, Any]:
    """After ``guidellm/benchmark/benchmark.py`` of GuideLLM 0.3 (0.2 is alike): totals beside the metrics, a worker."""
    whole = guidellm("args")
    for row in whole["benchmarks"]:
        row["request_totals"] = row["metrics"].pop("request_totals")
        row["worker"] = {
            "type_": "generative_requests_worker",
            "backend_type": "openai_http",
            "backend_model": MODEL,
        }
    return {"benchmarks": whole["benchmarks"][:1]}


def inference_perf_01() -> dict[str, Any]:
    """After ``inference_perf/reportgen/base.py`` of 0.1.0: a summary that only counts."""
    whole = inference_perf()
    return whole | {"load_summary": {"count": 100}}


def inference_perf_03() -> dict[str, Any]:
    """The same of 0.3.0 to 0.6.1: a closed loop tells its concurrency."""
    return inference_perf(concurrency=12, requested_rate=None)


def inference_perf_07() -> dict[str, Any]:
    """As 0.7.0 wrote it when it was run: lengths as the server counted them beside those of its own tokenizer."""
    whole = inference_perf(concurrency=12, requested_rate=None)
    done = whole["successes"]
    done["prompt_tokens"] = done.pop("prompt_len")
    done["output_tokens"], done["output_len"] = (
        done["output_len"],
        {"mean": 203.0, "min": 190.0, "max": 210.0},
    )
    return whole


TABLE = f"""id,backend,model_path,system,precision,isl,osl,concurrency,launch,gpus,silicon_tpot_ms,silicon_ttft_ms,tpot_p99_ms
example,sglang,{MODEL},h100,bf16,1000,200,32,--tp-size 2,2,9.1,120,11.5
one,sglang,{MODEL},h100,bf16,1000,200,32,--tp-size 2,2,9.1,120,11.5
moe,sglang,deepseek-ai/DeepSeek-R1,h200,fp8,1024,1024,64,--tp-size 16 --dp-size 16 --enable-dp-attention,16,25,500,
wrong,sglang,deepseek-ai/DeepSeek-R1,h200,fp8,1024,1024,64,,16,25,500,
"""


def write(folder: Path) -> None:
    """A result file of every tool, and the launch command beside them."""
    files = {
        "vllm-run.json": vllm(), "sglang-run.jsonl": sglang(), "aiperf-run.json": aiperf(),
        "genai-run.json": genai_perf(), "guidellm-run.json": guidellm(), "stage-run.json": inference_perf(),
        "agg-run.json": [inferencex()],
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data) + "\n")
    (folder / "own-runs.csv").write_text(TABLE)
    (folder / "launch.sh").write_text(LAUNCH)


def saved(folder: Path, data: Any, name: str = "r.json") -> Path:
    """One result in a file of the folder."""
    (folder / name).write_text(json.dumps(data) + "\n")
    return folder / name

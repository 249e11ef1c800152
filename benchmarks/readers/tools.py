"""Tools, versions and their command lines: a closed loop of four, 24 requests of 32 and 16 tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.readers.endpoint import MODEL

#: of a program that GenAI-Perf starts
STAND_IN = Path(__file__).with_name("perf_analyzer.py")
#: requests in flight, requests, tokens in, tokens out
LOOP, REQUESTS, INPUT, OUTPUT = 4, 24, 32, 16


@dataclass(frozen=True)
class Run:
    """What a command line is made of: programs of the tool's environment, the endpoint, its tokenizer, where to write."""

    bin: Path
    url: str
    tokenizer: Path
    out: Path


@dataclass(frozen=True)
class Tool:
    """``requirements`` of pip for a version; ``words`` of the run; ``results``: pattern of the files that are read."""

    name: str
    versions: tuple[str, ...]
    requirements: Callable[[str], list[str]]
    words: Callable[[Run, str], list[str]]
    results: str


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _vllm(run: Run, version: str) -> list[str]:
    return [
        str(run.bin / "vllm"), "bench", "serve", "--backend", "openai", "--base-url", run.url, "--endpoint", "/v1/completions",
        "--model", MODEL, "--tokenizer", str(run.tokenizer), "--dataset-name", "random", "--random-input-len", str(INPUT),
        "--random-output-len", str(OUTPUT), "--ignore-eos", "--max-concurrency", str(LOOP), "--num-prompts",
        str(REQUESTS), "--save-result", "--save-detailed", "--result-dir", str(run.out), "--disable-tqdm",
        "--metric-percentiles", "50,90,99", "--percentile-metrics", "ttft,tpot,itl,e2el",
    ]  # fmt: skip


def _sglang(run: Run, version: str) -> list[str]:
    return [
        str(run.bin / "python"), "-m", "sglang.bench_serving", "--backend", "sglang", "--base-url", run.url, "--model", MODEL,
        "--tokenizer", str(run.tokenizer), "--dataset-name", "random-ids", "--random-input-len", str(INPUT),
        "--random-output-len", str(OUTPUT), "--random-range-ratio", "1.0", "--num-prompts", str(REQUESTS),
        "--max-concurrency", str(LOOP), "--output-file", str(run.out / "run.jsonl"), "--disable-tqdm",
    ]  # fmt: skip


def _aiperf(run: Run, version: str) -> list[str]:
    return [
        str(run.bin / "aiperf"), "profile", "--model", MODEL, "--url", run.url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(run.tokenizer), "--concurrency", str(LOOP), "--request-count", str(REQUESTS),
        "--synthetic-input-tokens-mean", str(INPUT), "--synthetic-input-tokens-stddev", "0",
        "--output-tokens-mean", str(OUTPUT), "--output-tokens-stddev", "0",
        "--artifact-dir", str(run.out), "--random-seed", "1", "--ui", "simple",
    ]  # fmt: skip


def _genai_perf(run: Run, version: str) -> list[str]:
    stand_in = run.bin / "perf_analyzer"
    stand_in.write_text(f"#!{run.bin / 'python'}\n{STAND_IN.read_text(encoding='utf-8')}")
    stand_in.chmod(0o755)
    return [
        str(run.bin / "genai-perf"), "profile", "-m", MODEL, "--endpoint-type", "chat", "--streaming",
        "-u", run.url.removeprefix("http://"), "--tokenizer", str(run.tokenizer), "--concurrency", str(LOOP),
        "--request-count", str(REQUESTS), "--synthetic-input-tokens-mean", str(INPUT),
        "--synthetic-input-tokens-stddev", "0", "--output-tokens-mean", str(OUTPUT), "--output-tokens-stddev", "0",
        "--artifact-dir", str(run.out), "--num-dataset-entries", str(REQUESTS),
        *(["--service-kind", "openai"] if _number(version) < (0, 0, 12) else []),
    ]  # fmt: skip


def _guidellm(run: Run, version: str) -> list[str]:
    program, out = str(run.bin / "guidellm"), run.out / "benchmarks.json"
    if _number(version) >= (0, 6):  # options of kinds since
        return [
            program, "run", "--backend", f"kind=openai_http,target={run.url},model={MODEL}", "--profile",
            f"kind=concurrent,streams={LOOP}", "--constraint", f"kind=max_requests,count={REQUESTS}", "--tokenizer",
            f"kind=huggingface_auto,model={run.tokenizer}", "--data",
            f"kind=synthetic_text,prompt_tokens={INPUT},output_tokens={OUTPUT}", "--output", f"kind=json,path={out}",
            "--disable-console-interactive",
        ]  # fmt: skip
    where = (
        ["--output-path", str(out)]
        if _number(version) < (0, 4)
        else ["--output-dir", str(run.out), "--outputs", "json"]
    )
    return [
        program, "benchmark", *(["run"] if _number(version) >= (0, 3) else []), "--target", run.url, "--model", MODEL,
        "--processor", str(run.tokenizer), "--rate-type", "concurrent", "--rate", f"{LOOP}.0", "--max-requests",
        str(REQUESTS), "--data", f"prompt_tokens={INPUT},output_tokens={OUTPUT}", "--disable-progress", *where,
    ]  # fmt: skip


def _inference_perf(run: Run, version: str) -> list[str]:
    def fixed(tokens: int) -> dict[str, int]:
        return {
            "min": tokens,
            "max": tokens,
            "mean": tokens,
            "std_dev": 0,
            "total_count": 2 * REQUESTS,
        }

    stage: dict[str, object] = {
        "type": "constant",
        "stages": [{"rate": LOOP, "duration": REQUESTS // LOOP}],
    }
    if _number(version) >= (0, 4):  # closed loops since
        stage = {
            "type": "concurrent",
            "stages": [{"num_requests": REQUESTS, "concurrency_level": LOOP}],
        }
    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": fixed(INPUT),
            "output_distribution": fixed(OUTPUT),
        },
        "load": {"num_workers": 1, **stage},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": run.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(run.tokenizer)},
        "storage": {"local_storage": {"path": str(run.out / "reports")}},
    }
    path = run.out / "config.yml"
    path.write_text(json.dumps(config))  # which is YAML too
    return [str(run.bin / "inference-perf"), "--config_file", str(path)]


TOOLS = (
    Tool("vllm", ("0.33.0", "0.32.0"), lambda version: [f"vllm[bench]=={version}"], _vllm, "*.json"),
    Tool("sglang", ("0.5.23", "0.5.21", "0.5.3"), lambda version: [f"sglang=={version}"], _sglang, "*.jsonl"),
    Tool("aiperf", ("0.13.0", "0.7.0", "0.2.0"), lambda version: [f"aiperf=={version}"], _aiperf,
         "**/profile_export_aiperf.json"),
    Tool("genai-perf", ("0.0.16", "0.0.11"), lambda version: [f"genai-perf=={version}"], _genai_perf,
         "**/*genai_perf.json"),
    Tool("guidellm", ("0.8.1", "0.5.4", "0.3.1", "0.2.1"), lambda version: [f"guidellm=={version}"], _guidellm, "*.json"),
    Tool("inference-perf", ("0.7.0", "0.4.0", "0.2.0"), lambda version: [f"inference-perf=={version}"],
         _inference_perf, "**/stage_*_lifecycle_metrics.json"),
)  # fmt: skip

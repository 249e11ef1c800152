"""Files that the tools wrote when they were run (``make readers``), shortened: without texts and times of single requests.

A closed loop of four (inference-perf 0.2: four requests/s), 24 requests of 32 tokens in and 16 out, against an endpoint
that waits 0.4 s before the first token and 0.02 s before each other one. The machine was busy: times are up to half longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rackfit.measurements.rows import Told, read_benches, read_runs

LAUNCH = (
    "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp-size 2\n"
)
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
FILES = sorted(Path(__file__).with_name("produced").iterdir())
#: versions that send a rate, not a closed loop
RATES = ("inference-perf-0.2.0",)
#: mean tokens of prompts, counted by the endpoint too, where a tool made them unlike 32
PROMPTS = {
    "guidellm-0.5.4": 31.96,
    "guidellm-0.3.1": 35.08,
    "guidellm-0.2.1": 34.21,
    "genai-perf-0.0.11": 29.71,
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_tool_wrote_is_read(path: Path, tmp_path: Path) -> None:
    (bench,) = read_benches(path)
    assert bench.model == (None if path.stem.startswith("inference-perf") else MODEL)
    assert bench.input_tokens == pytest.approx(PROMPTS.get(path.stem, 32), abs=0.01)
    assert bench.output_tokens == pytest.approx(16, abs=0.5)
    assert bench.requests == 24
    unequal = path.stem in PROMPTS or path.stem.startswith("vllm")  # whose lists of lengths are cut
    assert bench.fixed_lengths != unequal
    assert bench.streams == (None if path.stem in RATES else 4)
    assert bench.concurrency == pytest.approx(2.8 if path.stem in RATES else 4, abs=0.3)
    assert bench.ttft_s is not None
    assert 0.38 < bench.ttft_s < 0.65
    assert 0.015 < bench.tpot_s < 0.03
    if bench.e2e_s is not None:
        assert bench.e2e_s == pytest.approx(bench.ttft_s + 15 * bench.tpot_s, rel=0.05)
    middle = {
        name: value
        for name, value in bench.percentiles.items()
        if "_p50_" in name and not name.startswith("itl")
    }
    means = {"ttft": bench.ttft_s, "tpot": bench.tpot_s, "e2e": bench.e2e_s}
    assert middle
    for name, value in middle.items():
        assert value == pytest.approx(means[name.partition("_")[0]], rel=0.25), name
    assert not bench.unusable
    launch = tmp_path / "launch.sh"
    engine = path.stem.startswith("sglang")  # whose tool asks its own engine
    launch.write_text(LAUNCH if engine else f"vllm serve {MODEL} --tensor-parallel-size 2\n")
    (row,), skipped = read_runs([path], Told(launch=launch, chip="h100", model=MODEL))
    assert (row.model, row.decode.tp, skipped) == (MODEL, 2, [])

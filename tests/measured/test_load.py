"""Load tests are read, replayed and scored; what cannot be replayed is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.measured.load.runs import read_load_runs
from costmodel.measured.load.scores import validate_load
from topology.errors import InstanceError

OPEN = {
    "id": "open", "exp_id": 1, "hf_model_id": "meta-llama/Llama-3.1-8B-Instruct", "chip": "h100",
    "gpus": 1, "tp": 1, "engine": "vllm", "dtype": "16-bit", "loop": "open",
    "server_args": {"max_num_batched_tokens": 2048},
    "profile": {"system_prompt_tokens": 100, "question_tokens": 447, "output_tokens": 248},
    "stage": 0, "requested_rate": 6.0, "duration_s": 60,
    "ttft_ms": {"mean": 40.0, "p99": 60.0}, "e2e_ms": {"mean": 2000.0, "p99": 2200.0},
}  # fmt: skip
BURST = OPEN | {
    "id": "burst", "exp_id": 2, "chip": "rtx4090", "hf_model_id": "meta-llama/Llama-3.1-8B",
    "profile": None, "overloaded": True,
    "requests": {
        "t_s": [0.1 * i for i in range(200)],
        "input_tokens": [800] * 200, "output_tokens": [600] * 200,
    },
}  # fmt: skip


def _file(folder: Path, *runs: object) -> Path:
    path = folder / "runs.json"
    path.write_text(json.dumps({"runs": runs}))
    return path


def test_open_loops_pools_and_bursts(tmp_path: Path) -> None:
    pool = OPEN | {"id": "pool", "stage": -1, "stage_rates": [4, 8], "requested_rate": None}
    alone = pool | {"id": "alone", "exp_id": 3}
    drafts = OPEN | {"id": "drafts", "speculative": "MTP, acceptance simulated"}
    unknown = OPEN | {"id": "unknown", "hf_model_id": "nobody/nothing-7b"}
    path = _file(tmp_path, OPEN, pool, alone, BURST, drafts, unknown)
    found = validate_load(read_load_runs(path), "calibrated")
    by_id = {one.run.id: one.met for one in found.replayed}
    assert by_id.keys() == {"open", "pool", "alone", "burst"}
    assert by_id["open"].stable
    assert by_id["open"].requests == 360
    # 24 GB hold the weights and few caches: requests wait and are put back
    assert not by_id["burst"].stable
    assert by_id["burst"].put_back > 0
    # a pool counts where its stages have no runs of their own; a burst has no steady state to score
    assert found.scores()["mean TTFT"].n == 2
    reasons = dict(found.unsupported)
    assert "drafts" in reasons["drafts"]
    assert "nothing-7b" in reasons["unknown"]


def test_repeated_prompts_come_from_the_cache(tmp_path: Path) -> None:
    off = OPEN | {"id": "off", "server_args": {"prefix_caching": False}}
    found = validate_load(read_load_runs(_file(tmp_path, OPEN, off)), "calibrated")
    cached, computed = (one.met for one in found.replayed)
    assert cached.prefix_hit_rate > 0.6
    assert computed.prefix_hit_rate == 0.0
    assert cached.ttft_s.mean < computed.ttft_s.mean


def test_the_command_prints_scores(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rackfit", "validate", "--load", str(_file(tmp_path, OPEN))]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "median error" in text
    assert "open" in text
    document = json.loads(
        subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout
    )
    assert document["scores"]["mean E2E"]["n"] == 1
    assert document["rows"][0]["measured"]["ttft_ms"]["mean"] == 40.0


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"gpus": 0}, "runs[0]: gpus"),
        ({"loop": "half"}, "runs[0]: loop"),
        ({"requested_rate": -1}, "runs[0]: requested_rate"),
        ({"ttft_ms": {"mean": "slow"}}, "runs[0]: ttft_ms.mean"),
    ],
)
def test_bad_runs_are_refused_at_their_place(
    change: dict[str, object], place: str, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError) as refused:
        read_load_runs(_file(tmp_path, OPEN | change))
    assert place in str(refused.value)


def test_a_file_without_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    with pytest.raises(InstanceError, match="a list `runs`"):
        read_load_runs(path)

"""Load tests are read, replayed and scored; what cannot be replayed is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.measured.load.predict import drafted, predict_load, requests_of
from costmodel.measured.load.runs import read_load_runs
from costmodel.measured.load.scores import validate_load
from costmodel.question.profile import load_profile
from costmodel.question.traffic.sessions import NEEDED, read_sessions
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
    drafts = OPEN | {"id": "drafts", "speculative": "MTP, acceptance length 1.5"}
    unknown = OPEN | {"id": "unknown", "hf_model_id": "nobody/nothing-7b"}
    path = _file(tmp_path, OPEN, pool, alone, BURST, drafts, unknown)
    found = validate_load(read_load_runs(path), "calibrated")
    by_id = {one.run.id: one.met for one in found.replayed}
    assert by_id.keys() == {"open", "pool", "alone", "burst"}
    assert by_id["open"].stable
    # the server of the engine holds a request before the queue, as other runs say
    host = load_profile("calibrated").host_of("vllm").of(547)
    before = by_id["open"].queue_s.mean
    assert 0.0 < host <= before < by_id["open"].ttft_s.p50
    assert by_id["open"].requests == 360
    # 24 GB hold the weights and few caches: requests wait and are put back
    assert not by_id["burst"].stable
    assert by_id["burst"].put_back > 0
    # a pool counts where its stages have no runs of their own; a burst has no steady state to score
    assert found.scores()["mean TTFT"].n == 2
    reasons = dict(found.unsupported)
    assert "needs draft tokens" in reasons["drafts"]
    assert "nothing-7b" in reasons["unknown"]


def test_repeated_prompts_come_from_the_cache(tmp_path: Path) -> None:
    off = OPEN | {"id": "off", "server_args": {"prefix_caching": False}}
    found = validate_load(read_load_runs(_file(tmp_path, OPEN, off)), "calibrated")
    cached, computed = (one.met for one in found.replayed)
    assert cached.prefix_hit_rate > 0.6
    assert computed.prefix_hit_rate == 0.0
    assert cached.ttft_s.mean < computed.ttft_s.mean


def test_prompts_are_sent_in_turn(tmp_path: Path) -> None:
    """inference-perf shuffles its prompts once and goes round them: each is new once, before any repeats."""
    (run,) = read_load_runs(_file(tmp_path, OPEN))
    sent = [blocks[-1] for blocks in requests_of(run, 0)[0].blocks]
    assert len(set(sent[:100])) == 100
    assert sent[100:] == sent[:-100]
    assert sent[:100] != sorted(sent[:100])


#: an SGLang server of eight B300 in a closed loop, 8,192 tokens in and 1,024 out (ai-dynamo/aisimulate, Apache-2.0:
#: docs/experiments/sglang-fpm-fixed-8k1k/job-4225429-comparison.json at 70dbc5fe7da3)
CLOSED = {
    "id": "closed", "hf_model_id": "deepseek-ai/DeepSeek-V4-Pro", "chip": "b300", "gpus": 8, "tp": 8,
    "parallelism": {"tp": 8, "ep": 8, "attention_dp": 8}, "engine": "sglang", "dtype": "fp4 experts",
    "server_args": {"max_num_batched_tokens": 8192, "max_num_seqs": 256, "prefix_caching": False},
    "loop": "closed", "concurrency": 32, "n_requests": 256, "achieved_rate": 2.6522,
    "prompt_len": {"mean": 8192}, "output_len": {"mean": 1024},
    "speculative": "MTP, 3 draft tokens, acceptance length simulated at 2.49",
    "ttft_ms": {"p50": 1290.6021}, "itl_ms_as_reported": {"mean": 10.25971},
    "throughput": {"output_tokens_per_s": 2715.8614},
}  # fmt: skip


def test_drafts_of_a_closed_loop_are_replayed(tmp_path: Path) -> None:
    alone = CLOSED | {"id": "alone", "speculative": None}
    found = validate_load(read_load_runs(_file(tmp_path, CLOSED, alone)), "calibrated")
    drafted, plain = (one.met for one in found.replayed)
    assert plain.output_tokens_per_s < drafted.output_tokens_per_s
    assert plain.tpot_s.mean > drafted.tpot_s.mean
    assert found.scores()["tokens/s"].n == 2


def test_an_eagle3_head_is_that_of_the_model(tmp_path: Path) -> None:
    words = "EAGLE3 draft, 3 draft tokens, acceptance length simulated at 2.78"
    assert drafted(words, "minimax-m3").draft == "minimax-m3-eagle3"
    run = OPEN | {"id": "m3", "hf_model_id": "nvidia/MiniMax-M3-NVFP4", "chip": "b200", "gpus": 4, "tp": 4,
                  "dtype": "nvfp4", "speculative": words, "duration_s": 5}  # fmt: skip
    none = run | {"id": "none", "hf_model_id": "meta-llama/Llama-3.1-405B"}
    found = validate_load(read_load_runs(_file(tmp_path, run, none)), "calibrated")
    assert [one.run.id for one in found.replayed] == ["m3"]
    assert "unknown draft 'llama-3.1-405b-eagle3'" in dict(found.unsupported)["none"]


def test_tokens_per_second_say_lengths_that_are_not_given(tmp_path: Path) -> None:
    """Tokens/s over requests/s are tokens of a request; what is given counts."""
    rates = {
        "achieved_rate": 2.0,
        "throughput": {"output_tokens_per_s": 200.0, "total_tokens_per_s": 5200.0},
    }
    none = CLOSED | rates | {"prompt_len": {}, "output_len": {}}
    half = CLOSED | rates | {"output_len": {"mean": 7}, "prompt_len": {}}
    unknown = none | {"achieved_rate": None}
    runs = read_load_runs(_file(tmp_path, none, half, unknown))
    assert [run.mean_lengths for run in runs] == [(2500.0, 100.0), (2500.0, 7.0), None]
    with pytest.raises(InstanceError, match="prompt_len: mean lengths are not given"):
        requests_of(runs[2], 0)
    assert requests_of(runs[0], 0)[0].input_tokens.tolist()[:2] == [2500, 2500]
    many = none | {"throughput": {"output_tokens_per_s": 1.0, "total_tokens_per_s": 1e300}}
    (beyond,) = read_load_runs(_file(tmp_path, many))
    with pytest.raises(InstanceError, match="throughput: 5e\\+299 tokens a request"):
        requests_of(beyond, 0)


def test_a_note_says_when_prompts_are_computed(tmp_path: Path) -> None:
    """Prompts that are held back are late, and no pass of those that decode is longer for it."""
    note = "per rank; prefill scheduled every 8 steps, long-prefill threshold 512"
    arguments = {"max_num_batched_tokens": 2048, "max_num_batched_tokens_note": note}
    held = OPEN | {"id": "held", "requested_rate": 20.0, "server_args": arguments}
    free = held | {"id": "free", "server_args": {"max_num_batched_tokens": 2048}}
    slow, quick = (
        one.met
        for one in validate_load(read_load_runs(_file(tmp_path, held, free)), "calibrated").replayed
    )
    assert slow.ttft_s.p50 > 1.5 * quick.ttft_s.p50
    assert slow.itl_s.p99 <= quick.itl_s.p99


@pytest.mark.parametrize(("tokens", "length"), [(1, 1.8), (3, 2.49), (3, 1.0), (3, 4.0), (7, 3.1)])
def test_an_acceptance_length_is_what_passes_emit(tokens: int, length: float) -> None:
    found = drafted(f"MTP, {tokens} draft tokens, acceptance length simulated at {length}")
    assert found.draft_tokens == tokens
    assert found.emitted == pytest.approx(length)


@pytest.mark.parametrize(
    ("words", "message"),
    [("EAGLE3", "needs draft tokens"), ("2 draft tokens, acceptance length 3.5", "1 to 3 tokens")],
)
def test_drafts_that_are_not_said_are_refused(words: str, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        drafted(words)


def test_sessions_stand_for_those_that_are_not_known(tmp_path: Path) -> None:
    talks = tmp_path / "sessions.csv"
    lines = [",".join(NEEDED)]
    for session in range(4):
        lines += [
            f"{session},{turn},{30 * turn},{1000 + 640 * turn},100,{turn - 1},{15 + 10 * (turn - 1)}"
            for turn in range(6)
        ]
    talks.write_text("\n".join(line.replace(",-1,5", ",-1,0") for line in lines))
    caching = {"prefix_caching": True, "max_num_seqs": 64}
    agents = CLOSED | {"server_args": caching, "achieved_rate": 1.0}
    runs = read_load_runs(_file(tmp_path, agents))
    ((_, reason),) = validate_load(runs, "calibrated").unsupported
    assert "--sessions" in reason
    (one,) = validate_load(runs, "calibrated", sessions=read_sessions(talks)).replayed
    assert one.met.prefix_hit_rate > 0.5
    assert one.met.requests == 256
    # pauses are stretched until the server serves at the run's rate
    assert one.met.requests / one.met.arrival_s.max() == pytest.approx(1.0, rel=0.02)
    assert (
        "tokens/s" not in validate_load(runs, "calibrated", sessions=read_sessions(talks)).scores()
    )
    # a rate that the server cannot reach is not made up
    (fast,) = read_load_runs(_file(tmp_path, agents | {"achieved_rate": 500.0}))
    swamped = predict_load(fast, "calibrated", sessions=read_sessions(talks)).met
    assert swamped.rate < 100.0
    assert swamped.stable
    words = [sys.executable, "-m", "rackfit", "validate", "--sessions", str(talks), str(talks)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "give --load" in done.stderr) == (2, True)


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

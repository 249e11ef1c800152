"""What a command does that the question does not price is said; runs that cannot be compared calibrate nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.question.adapters import Adapters
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from rackfit.importers.running import evaluate_running
from rackfit.measurements.deployment import deployed_as, deployed_by
from topology.errors import InstanceError

VLLM = "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8 --enable-expert-parallel --max-num-seqs 64"
SGLANG = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --ep-size 8 --max-running-requests 64"
TRTLLM = """tensor_parallel_size: 8
moe_expert_parallel_size: 8
pipeline_parallel_size: 1
max_batch_size: 64
max_num_tokens: 8192
"""
#: name of a file, its text, method and tokens in words
COMMANDS = [
    (
        "vllm",
        "run.sh",
        f"""{VLLM} --speculative-config '{{"method": "mtp", "num_speculative_tokens": 2}}'""",
        "mtp, 2 tokens per pass",
    ),
    (
        "vllm",
        "run.sh",
        f"""{VLLM} --speculative-config '{{"model": "some/draft", "num_speculative_tokens": 1}}'""",
        "draft_model, 1 token per pass",
    ),
    (
        "sglang",
        "run.sh",
        f"{SGLANG} --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4",
        "eagle, 3 tokens per pass",
    ),
    ("sglang", "run.sh", f"{SGLANG} --speculative-algorithm NEXTN", "nextn"),
    (
        "trtllm",
        "engine.yaml",
        f"{TRTLLM}speculative_config: {{decoding_type: MTP, num_nextn_predict_layers: 3}}\n",
        "mtp, 3 tokens per pass",
    ),
]
PLAIN = [("vllm", "run.sh", VLLM), ("sglang", "run.sh", SGLANG), ("trtllm", "engine.yaml", TRTLLM)]


def notes(folder: Path, engine: str, name: str, text: str, drafts: int = 0) -> list[str]:
    """What is said of drafts where the question has so many."""
    (folder / name).write_text(text)
    asked = Speculative(draft_tokens=drafts, acceptance=0.8) if drafts else None
    scenario = Scenario(model="deepseek-v3", cluster="hgx-h200", workload="chat", speculative=asked)
    running = evaluate_running(scenario, engine, folder / name)
    return [
        note for note in running.notes if "priced with" in note and "expert parallel" not in note
    ]


@pytest.mark.parametrize(("engine", "name", "text", "words"), COMMANDS)
def test_drafts_that_are_not_priced_are_said(
    engine: str, name: str, text: str, words: str, tmp_path: Path
) -> None:
    (note,) = notes(tmp_path, engine, name, text)
    assert f"decodes with drafts there ({words}); priced without" in note


@pytest.mark.parametrize(("engine", "name", "text"), PLAIN)
def test_a_command_without_drafts_is_priced_without(
    engine: str, name: str, text: str, tmp_path: Path
) -> None:
    assert notes(tmp_path, engine, name, text) == []
    (note,) = notes(tmp_path, engine, name, text, drafts=2)
    assert "drafts nothing there; priced with 2 drafts a pass" in note


def test_as_many_drafts_as_asked_are_no_difference(tmp_path: Path) -> None:
    engine, name, text, words = COMMANDS[0]
    assert notes(tmp_path, engine, name, text, drafts=2) == []
    (note,) = notes(tmp_path, engine, name, text, drafts=1)
    assert f"{words} there; priced with 1, as the question says" in note


@pytest.mark.parametrize(
    ("engine", "name", "text", "words"), [one for one in COMMANDS if one[1] == "run.sh"]
)
def test_a_launch_command_says_that_its_runs_drafted(
    engine: str, name: str, text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert deployed_by(tmp_path / name).unusable == f"ran with drafts ({words})"
    assert deployed_as(text, engine, "here").unusable == f"ran with drafts ({words})"


@pytest.mark.parametrize(("engine", "name", "text"), PLAIN[:2])
def test_others_did_not(engine: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert deployed_by(tmp_path / name).unusable == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{VLLM} --enforce-eager", "--enforce-eager (no CUDA graphs)"),
        (f"{VLLM} -dcp 2", "--decode-context-parallel-size (contexts are divided over chips)"),
        (f"{VLLM} --cpu-offload-gb 20", "--cpu-offload-gb (weights lie in host memory)"),
        (f"{SGLANG} --disable-cuda-graph", "--disable-cuda-graph (no CUDA graphs)"),
        (
            f"{SGLANG} --enable-two-batch-overlap",
            "--enable-two-batch-overlap (two halves of a batch",
        ),
    ],
)
def test_options_that_change_times_and_are_not_priced_are_named(
    text: str, said: str, tmp_path: Path
) -> None:
    engine = "vllm" if text.startswith("vllm") else "sglang"
    (tmp_path / "run.sh").write_text(text)
    scenario = Scenario(model="deepseek-v3", cluster="hgx-h200", workload="chat")
    (note,) = evaluate_running(scenario, engine, tmp_path / "run.sh").notes
    assert f"run.sh:1: not priced: {said}" in note
    both = scenario.model_copy(update={"two_batch_overlap": True})
    left = evaluate_running(both, engine, tmp_path / "run.sh").notes
    assert len(left) == (0 if "two halves" in said else 1)


def test_sizes_of_one_and_nothing_to_offload_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{VLLM} -dcp 1 --cpu-offload-gb 0 --no-enforce-eager")
    scenario = Scenario(model="deepseek-v3", cluster="hgx-h200", workload="chat")
    assert evaluate_running(scenario, "vllm", tmp_path / "run.sh").notes == ()


def test_weights_that_the_engine_turns_into_another_format_are_said(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8 --quantization fp8"
    )
    scenario = Scenario(model="llama-3.1-70b", cluster="hgx-h200", workload="chat")
    said = " ".join(evaluate_running(scenario, "vllm", tmp_path / "run.sh").notes)
    assert "weights are fp8 there and bf16 here; --weight-dtype fp8 prices what runs" in said
    same = scenario.model_copy(update={"weight_dtype": "fp8"})
    assert "weights are" not in " ".join(evaluate_running(same, "vllm", tmp_path / "run.sh").notes)


def test_a_run_takes_precision_and_memory_of_its_launch_command() -> None:
    found = deployed_as(
        "vllm serve m --tensor-parallel-size 2 --quantization fp8 --gpu-memory-utilization 0.7",
        "vllm", "here",
    )  # fmt: skip
    assert (found.precision, found.unusable) == ("fp8", "")
    assert found.decode.settings.memory_fraction == 0.7
    divided = deployed_as("vllm serve m --tensor-parallel-size 2 -dcp 2", "vllm", "here")
    assert divided.unusable.startswith("ran with --decode-context-parallel-size")


@pytest.mark.parametrize("share", ["1.5", "0", "-0.5", "nan"])
def test_a_share_of_memory_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(
        InstanceError, match=r"share of memory above 0 and up to 1|at least 0 and at most 1"
    ):
        deployed_as(f"vllm serve m --gpu-memory-utilization={share}", "vllm", "here")


def test_a_share_that_an_engine_takes_is_taken() -> None:
    """vLLM and SGLang take up to all of the memory, more than an export ever asks for."""
    for command in (
        "vllm serve m --gpu-memory-utilization 0.97",
        f"{SGLANG} --mem-fraction-static 0.97",
    ):
        engine = "vllm" if command.startswith("vllm") else "sglang"
        assert deployed_as(command, engine, "here").decode.settings.memory_fraction == 0.97


def test_requests_that_a_server_refuses_are_said(tmp_path: Path) -> None:
    scenario = Scenario(model="deepseek-v3", cluster="hgx-h200", workload="chat")
    for most, notes in (("4096", 1), ("4.9k", 1), ("5k", 0), ("5K", 0), ("auto", 0), ("-1", 0)):
        (tmp_path / "run.sh").write_text(f"{VLLM} --max-model-len {most}")
        said = evaluate_running(scenario, "vllm", tmp_path / "run.sh").notes
        assert len(said) == notes
    (tmp_path / "run.sh").write_text(f"{SGLANG} --context-length 4096")
    (note,) = evaluate_running(scenario, "sglang", tmp_path / "run.sh").notes
    assert "refuses requests of more than 4,096 tokens; the longest here has 5,000" in note


@pytest.mark.parametrize("text", ["5x", "1.5K", "k", "1e3", "٣k"])
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InstanceError, match="expected a whole number such as 32000"):
        deployed_as(f"vllm serve m --max-model-len={text}", "vllm", "here")


def test_what_the_question_prices_is_not_named(tmp_path: Path) -> None:
    """Adapters and KV in host memory are priced where the question has them; prefill drafts nothing."""
    (tmp_path / "run.sh").write_text(f"{VLLM} --enable-lora --kv-offloading-size 100")
    plain = Scenario(model="deepseek-v3", cluster="hgx-h200", workload="chat")
    (note,) = evaluate_running(plain, "vllm", tmp_path / "run.sh").notes
    assert "--kv-offloading-size (KV in host memory), --enable-lora (adapters)" in note
    asked = plain.model_copy(
        update={"adapters": Adapters(count=2, bytes=1e8), "kv_tiers": ("host",)}
    )
    assert evaluate_running(asked, "vllm", tmp_path / "run.sh").notes == ()
    (tmp_path / "two.sh").write_text(
        f"{SGLANG} --disaggregation-mode prefill\n{SGLANG} --disaggregation-mode decode "
        "--speculative-algorithm EAGLE --speculative-num-steps 2\n"
    )
    drafting = plain.model_copy(
        update={"cluster": "hgx-h200@2", "speculative": Speculative(draft_tokens=2, acceptance=0.8)}
    )
    said = evaluate_running(drafting, "sglang", tmp_path / "two.sh").notes
    assert not any("drafts" in note for note in said)


def test_drafts_by_another_are_said(tmp_path: Path) -> None:
    """A head there and the model's own module in the question, and the other way round."""
    name, mtp, head = COMMANDS[0][1], COMMANDS[0][2], COMMANDS[1][2]
    (note,) = _of(tmp_path, name, head.replace('{"model"', '{"method": "eagle3", "model"'), None)
    own = "the model's own MTP module drafts, priced with 2, as the question says"
    assert f"eagle3, 1 token per pass there; {own}" in note
    (note,) = _of(tmp_path, name, mtp, "deepseek-v3-eagle3")
    assert "mtp, 2 tokens per pass there; deepseek-v3-eagle3 drafts, as the question says" in note


def _of(folder: Path, name: str, text: str, draft: str | None) -> list[str]:
    (folder / name).write_text(text)
    drafts = Speculative(draft_tokens=2, acceptance=0.8, draft=draft)
    scenario = Scenario(
        model="deepseek-v3", cluster="hgx-h200", workload="chat", speculative=drafts
    )
    notes = evaluate_running(scenario, "vllm", folder / name).notes
    return [note for note in notes if "as the question says" in note]

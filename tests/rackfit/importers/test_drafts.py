"""Commands that decode with drafts: what is priced otherwise than it runs is said, and their runs calibrate nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from rackfit.importers.running import evaluate_running
from rackfit.measurements.deployment import deployed_as, deployed_by

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
        "draft model, 1 token per pass",
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
    assert deployed_by(tmp_path / name).drafts == words
    assert deployed_as(text, engine, "here").drafts == words


@pytest.mark.parametrize(("engine", "name", "text"), PLAIN[:2])
def test_others_did_not(engine: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert deployed_by(tmp_path / name).drafts == ""

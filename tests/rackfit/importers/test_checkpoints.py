"""The model that a command serves: read by its name where none is asked about, and compared where one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.importers.checkpoints import model_of
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError

SGLANG = "python3 -m sglang.launch_server --tp 8 --max-running-requests 64 --model-path "


def serving(engine: str, command: str, folder: Path) -> list[FoundServer]:
    return found(engine, "run.sh", command + "\n", folder)


@pytest.mark.parametrize(
    ("engine", "command", "model", "weights"),
    [
        ("sglang", SGLANG + "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b", "fp8"),
        ("sglang", SGLANG + "Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8", None),
        ("sglang", SGLANG + "/models/qwen3-32b --quantization fp8", "qwen3-32b", "fp8"),
        ("vllm", "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 8", "llama-3.1-70b", None),
        ("vllm", "vllm serve --model deepseek-ai/DeepSeek-V3.1 -tp 8", "deepseek-v3", None),
        ("trtllm", "trtllm-serve nvidia/DeepSeek-R1-0528-FP4-v2 --tp_size 8", "deepseek-r1-0528-nvfp4-v2", None),
    ],
)  # fmt: skip
def test_names_of_checkpoints_mean_shipped_models(
    engine: str, command: str, model: str, weights: str | None, tmp_path: Path
) -> None:
    assert model_of(serving(engine, command, tmp_path)) == (model, weights)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (SGLANG + "a/b", "serve a/b, no shipped model"),
        (SGLANG.replace("--model-path ", ""), "serve nothing by name"),
        (
            f"{SGLANG}Qwen/Qwen3-32B\n{SGLANG}Qwen/Qwen3-8B",
            "serve Qwen/Qwen3-32B, Qwen/Qwen3-8B, more than one model",
        ),
    ],
)
def test_what_is_not_shipped_is_asked_for(command: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=said) as error:
        model_of(serving("sglang", command, tmp_path))
    assert error.value.problems[0].place == "--model"


def test_another_model_than_the_one_asked_about_is_named(tmp_path: Path) -> None:
    asked = {"model": "qwen3-32b", "cluster": "hgx-h200", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    line = "run.sh:1: serves llama-3.1-70b, not qwen3-32b: --model llama-3.1-70b prices what runs"
    for served, said in (
        ("meta-llama/Llama-3.1-70B-Instruct", True),
        ("Qwen/Qwen3-32B-FP8", False),
        ("my/own", False),
    ):
        notes = build_layout(instance, serving("sglang", SGLANG + served, tmp_path)).notes
        assert (line in notes) is said

"""Shell scripts as operators write them: variables, arrays, conditions; what is not understood is named, not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from tests.rackfit.importers.samples import (
    DYNAMO_VLLM,
    SHELL_CHOSEN,
    SHELL_PASSED,
    SHELL_SGLANG,
    SHELL_VLLM,
)
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError

WORKLOAD = {"input_tokens": 100, "output_tokens": 20}


def test_what_is_not_understood_is_named(tmp_path: Path) -> None:
    """Options that the engine lacks, values and words that only the shell knows, files of options."""
    (one,) = found("vllm", "run.sh", SHELL_VLLM, tmp_path)
    assert one.batch == 512
    assert one.notes == (
        "run.sh:16: left out, as only the shell knows their values: --max-model-len, --port",
    )
    (one,) = found("sglang", "run.sh", SHELL_SGLANG, tmp_path)
    assert not one.sharded_experts
    assert one.kv_dtype == "fp8_e4m3"
    assert one.notes == (
        "run.sh:35: not understood: --an-option-of-tomorrow",
        "run.sh:35: left out, as only the shell knows their values: --model-path, --port",
        "run.sh:35: left out, as only the shell knows what they stand for: $CACHE_ARGS",
    )
    asked = {"model": "llama-3.1-8b", "cluster": "hgx-h200", "workload": WORKLOAD}
    instance = resolve_instance(Scenario.model_validate(asked))
    assert set(one.notes) <= set(build_layout(instance, [one]).notes)


def test_containers_that_start_no_server_are_named(tmp_path: Path) -> None:
    (one, _) = found("vllm", "d.yaml", DYNAMO_VLLM, tmp_path)
    assert one.notes == (
        "d.yaml: DynamoGraphDeployment vllm-disagg, Frontend: starts no server of vllm",
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (SHELL_VLLM.replace("TP=${TP:-8}\n", ""), r"run.sh:15: --tensor-parallel-size: is \$TP, which the file"),
        (SHELL_CHOSEN, r"run.sh:6: --max-num-batched-tokens: is \$\(\(ISL \* 2 \)\)"),
        (SHELL_CHOSEN.replace('--max-num-batched-tokens "$((ISL * 2 ))"', ""), r"gives no size .*, and .* \$PARALLEL_ARGS"),
        (SHELL_PASSED, r"run.sh:2: gives no size \(--tensor-parallel-size, .*\), and the file does not say what \$@ stands for"),
    ],
)  # fmt: skip
def test_sizes_that_only_the_shell_knows_are_refused(
    script: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError, match=words):
        found("vllm", "run.sh", script, tmp_path)


def test_what_a_condition_sets_is_said_and_what_two_set_is_refused(tmp_path: Path) -> None:
    one = "if [ -d x ]; then\n  TP=4\nfi\nvllm serve m -tp $TP\n"
    (server,) = found("vllm", "run.sh", one, tmp_path)
    assert server.tp == 4
    assert server.notes == ("run.sh:4: set under a condition and taken as set: TP",)
    with pytest.raises(InstanceError, match=r"\$TP, which the file does not say"):
        found("vllm", "run.sh", one.replace("fi\n", "else\n  TP=8\nfi\n"), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "srun -N 1 bash -c 'TP=2\nvllm serve m --tensor-parallel-size $TP | tee log'\n",
        'docker run --gpus all vllm/vllm-openai:v0.11.0 bash -lc "vllm serve m -tp 2 && echo -tp 9"\n',
        "cat > start.sh <<'EOF'\nvllm serve m -tp 2\nEOF\nbash start.sh\n",
        "podman run -d --device nvidia.com/gpu=all docker.io/vllm/vllm-openai:v0.18.0 m -tp 2\n",
        "ARGS='-tp 2 --enable-eplb'\nvllm serve m $ARGS\n",
        "vllm serve m -tp ${TP:-2}; echo -tp 9\n",
        "echo 'it''s a line\nthat ends late'\nvllm serve m -tp 2\n",
    ],
)
def test_commands_inside_commands_are_read(text: str, tmp_path: Path) -> None:
    servers = found("vllm", "run.sh", text, tmp_path)
    assert [one.tp for one in servers] == [2]


def test_a_template_of_helm_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="a template of Helm, to be rendered first"):
        found("vllm", "k.yaml", "kind: Deployment\nspec: {{ .Values.x | }}\n", tmp_path)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_of_an_own_export_everything_is_understood(engine: str, tmp_path: Path) -> None:
    asked = {"model": "deepseek-v3", "cluster": "hgx-h200@3", "workload": WORKLOAD}
    instance = resolve_instance(Scenario.model_validate(asked))
    sizes = {("prefill", 8, 8), ("decode", 16, 64)}
    servers = [
        FoundServer("x", role, tp=1, attention_dp=width, pp=1, batch=batch)
        for role, width, batch in sorted(sizes)
    ]  # fmt: skip
    for name, text in export_layout(
        instance, build_layout(instance, servers).layout, engine
    ).files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    again = read_servers(engine, tmp_path)
    assert {(one.role, one.attention_dp, one.batch) for one in again} == sizes
    assert not any(one.notes for one in again)

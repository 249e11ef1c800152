"""Services of KServe that take parts of configs: joined in a file or a folder, refused where a config is not given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError

#: after docs/samples/llmisvc/e2e-gpt-oss of kserve/kserve (Apache-2.0): two pools, and a command with templates
SERVICE: dict[str, Any] = {
    "kind": "LLMInferenceService",
    "metadata": {"name": "gpt-oss"},
    "spec": {
        "model": {"uri": "pvc://gpt-oss", "name": "openai/gpt-oss-120b"},
        "replicas": 3,
        "baseRefs": [{"name": "sizes"}, {"name": "kserve-config-llm-template"}],
        "template": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
    },
}  # fmt: skip
SIZES: dict[str, Any] = {
    "kind": "LLMInferenceServiceConfig",
    "metadata": {"name": "sizes"},
    "spec": {
        "replicas": 1,
        "parallelism": {"tensor": 4},
        "template": {"containers": [{"name": "main", "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--max-num-seqs 64"}]}]},
        "prefill": {"replicas": 2, "parallelism": {"tensor": 2}, "template": {"containers": [{"name": "main"}]}},
    },
}  # fmt: skip
COMMAND: dict[str, Any] = {
    "kind": "LLMInferenceServiceConfig",
    "metadata": {"name": "sizes"},
    "spec": {
        "parallelism": {"tensor": 4},
        "template": {
            "containers": [
                {
                    "name": "main",
                    "command": ["/bin/sh", "-c"],
                    "args": [
                        'vllm serve "{{ .Spec.Model.Name }}" -tp {{ .Spec.Parallelism.Tensor }} --port 8000 '
                        "--served-model-name {{ ChildName .ObjectMeta.Name `x` }} $VLLM_ADDITIONAL_ARGS"
                    ],
                }
            ]
        },
    },
}


def written(folder: Path, **files: list[Any]) -> Path:
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def sizes(servers: list[FoundServer]) -> list[tuple[str, int, int, int | None]]:
    return [(one.role, one.tp, one.copies, one.batch) for one in servers]


def test_a_config_in_the_same_file_or_folder_counts(tmp_path: Path) -> None:
    pools = [("prefill", 2, 2, None), ("decode", 4, 3, 64)]
    (one := tmp_path / "one").mkdir()
    found = read_servers("vllm", written(one, all=[SIZES, SERVICE]) / "all.yaml")
    assert sizes(found) == pools
    assert {server.model for server in found} == {"openai/gpt-oss-120b"}
    (two := tmp_path / "two").mkdir()
    assert sizes(read_servers("vllm", written(two, a=[SERVICE], z=[SIZES]))) == pools


def test_commands_of_a_config_have_the_values_of_the_service(tmp_path: Path) -> None:
    (one,) = read_servers("vllm", written(tmp_path, a=[SERVICE, COMMAND]))
    assert (one.tp, one.copies, one.model) == (4, 3, "openai/gpt-oss-120b")
    assert one.notes == (
        "a.yaml: LLMInferenceService gpt-oss, main:1: left out, as only the shell knows their values: --served-model-name",
    )
    more = {
        "containers": [
            {"name": "main", "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--max-num-seqs 8"}]}
        ]
    }
    own = {**SERVICE, "spec": {**SERVICE["spec"], "template": more}}
    (one,) = read_servers("vllm", written(tmp_path, a=[own, COMMAND]))
    assert one.batch == 8


def test_a_config_that_is_not_given_is_asked_for(tmp_path: Path) -> None:
    """Its sizes are not known; alone it starts nothing."""
    written(tmp_path, a=[SERVICE], z=[SIZES])
    with pytest.raises(
        InstanceError, match=r"gpt-oss: baseRefs: names sizes, which no file that is given holds"
    ):
        read_servers("vllm", tmp_path / "a.yaml")
    with pytest.raises(InstanceError, match=r"holds no vllm serve command"):
        read_servers("vllm", tmp_path / "z.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment\nspec:\n  replicas: 1\n  replicas: 3\n", r"k.yaml:4:3: the key replicas is given twice"),
        ("a: &a [x, x]\n" + "".join(f"k{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)), "its aliases stand for"),
        ("kind: &a [*a]\n", "holds itself"),
        ("[" * 500, "nested deeper than 64 levels"),
        ("kind: X\n---\nkind: {{ .Values.x | }}\n", "a template of Helm, to be rendered first"),
    ],
)  # fmt: skip
def test_manifests_that_no_reader_should_build_are_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    """Aliases in aliases were followed one by one, which took hours."""
    (tmp_path / "k.yaml").write_text(text)
    with pytest.raises(InstanceError, match=said):
        read_servers("vllm", tmp_path / "k.yaml")

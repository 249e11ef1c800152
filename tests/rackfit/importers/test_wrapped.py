"""Commands inside docker run, Kubernetes manifests, Dynamo resources and systemd units."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from tests.rackfit.importers.samples import (
    DOCKER_NAMED,
    DOCKER_SGLANG,
    DOCKER_VLLM,
    DYNAMO_SGLANG,
    DYNAMO_VLLM,
    KUBERNETES_MODULE,
    KUBERNETES_SHELL,
    LLMD_POOLS,
    LLMD_SGLANG,
    LLMD_WIDE,
    SHELL_SGLANG,
    SHELL_VLLM,
    UNIT_SERVE,
    UNIT_VLLM,
)
from topology.errors import InstanceError


def found(engine: str, name: str, content: object, folder: Path) -> list[FoundServer]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return read_servers(engine, path)


@pytest.mark.parametrize(
    ("engine", "name", "content", "sizes"),
    [
        ("vllm", "run.sh", DOCKER_VLLM, [("mixed", 2, 1, 1)]),
        ("vllm", "run.sh", DOCKER_NAMED, [("mixed", 2, 1, 1)]),
        ("sglang", "run.sh", DOCKER_SGLANG, [("mixed", 4, 1, 1)]),
        ("vllm", "k.yaml", KUBERNETES_SHELL, [("mixed", 1, 1, 3)]),
        ("vllm", "k.yaml", KUBERNETES_MODULE, [("mixed", 2, 1, 1)]),
        ("vllm", "d.yaml", DYNAMO_VLLM, [("decode", 2, 1, 2), ("prefill", 1, 1, 1)]),
        ("sglang", "d.yaml", DYNAMO_SGLANG, [("mixed", 2, 1, 1)]),
        ("vllm", "values.yaml", LLMD_POOLS, [("prefill", 1, 1, 2), ("decode", 4, 1, 1)]),
        ("vllm", "values.yaml", LLMD_WIDE, [("mixed", 1, 16, 1)]),
        ("sglang", "k.yaml", LLMD_SGLANG, [("mixed", 16, 1, 1)]),
        ("vllm", "vllm.service", UNIT_VLLM, [("mixed", 4, 1, 1)]),
        ("vllm", "vllm.service", UNIT_SERVE, [("mixed", 2, 2, 1)]),
        ("vllm", "run.sh", SHELL_VLLM, [("mixed", 8, 1, 1)]),
        ("sglang", "run.sh", SHELL_SGLANG, [("mixed", 8, 1, 1)]),
    ],
)
def test_a_server_is_found_in_its_file(
    engine: str, name: str, content: object, sizes: list[tuple[str, int, int, int]], tmp_path: Path
) -> None:
    servers = found(engine, name, content, tmp_path)
    assert [(one.role, one.tp, one.attention_dp, one.copies) for one in servers] == sizes


def test_options_inside_a_container_count(tmp_path: Path) -> None:
    (one,) = found("vllm", "run.sh", DOCKER_VLLM, tmp_path)
    assert one.batch == 64
    (one,) = found("vllm", "k.yaml", KUBERNETES_SHELL, tmp_path)
    assert one.prefill_tokens == 1024


def test_what_a_variable_hides_is_named(tmp_path: Path) -> None:
    """llm-d's manifests compute sizes in the shell; those are named, not guessed."""
    script = "vllm serve m --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL))"
    hidden = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "wide-ep"},
        "spec": {"containers": [{"name": "vllm", "command": ["/bin/bash", "-c"], "args": [script]}]},
    }  # fmt: skip
    with pytest.raises(InstanceError, match=r"LeaderWorkerSet wide-ep, vllm.*--data-parallel-size"):
        found("vllm", "lws.yaml", hidden, tmp_path)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"replicas": -1}, r"decode\.replicas: expected a whole number"),
        ({"parallelism": {"tensor": "four"}}, r"decode\.parallelism\.tensor: expected a whole number"),
        ({"parallelism": [4]}, r"decode\.parallelism: expected settings by name"),
        ({"replicas": 0}, "holds no vllm serve command"),
    ],
)  # fmt: skip
def test_values_of_llmd_with_odd_sizes_are_refused(
    part: dict[str, object], words: str, tmp_path: Path
) -> None:
    values = {**LLMD_WIDE, "decode": {**LLMD_WIDE["decode"], **part}}
    with pytest.raises(InstanceError, match=words):
        found("vllm", "values.yaml", values, tmp_path)


def test_pods_that_make_no_whole_server_are_refused(tmp_path: Path) -> None:
    odd = {**LLMD_SGLANG, "spec": {**LLMD_SGLANG["spec"], "replicas": 3}}
    with pytest.raises(InstanceError, match="3 pods do not make servers of --nnodes 2"):
        found("sglang", "k.yaml", odd, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.service", "[Service]\nExecStart=vllm serve 'm -tp 2\n", "a.service:2"),
        ("a.service", '[Service]\nEnvironment="A=b\nExecStart=vllm serve m\n', "a.service:2"),
        ("run.sh", 'docker run --entrypoint "it\'s" vllm/vllm-openai m -tp 2\n', "docker: --entrypoint"),
    ],
)  # fmt: skip
def test_quotes_that_are_left_open_are_refused(
    name: str, text: str, place: str, tmp_path: Path
) -> None:
    """They were internal errors."""
    with pytest.raises(InstanceError, match=f"{place}: not words of a shell: No closing quotation"):
        found("vllm", name, text, tmp_path)


def test_a_manifest_without_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="holds no vllm serve command"):
        found("vllm", "k.yaml", {"kind": "Service", "metadata": {"name": "x"}}, tmp_path)
    with pytest.raises(InstanceError, match="not YAML"):
        found("vllm", "k.yaml", "a: [", tmp_path)


def test_the_exported_dynamo_resource_is_read_back(tmp_path: Path) -> None:
    workload = {"input_tokens": 100, "output_tokens": 20}
    instance = resolve_instance(
        Scenario.model_validate(
            {"model": "deepseek-v3", "cluster": "hgx-h200@3", "workload": workload}
        )
    )
    servers = [
        FoundServer("x", "prefill", tp=1, attention_dp=8, pp=1, batch=8),
        FoundServer("x", "decode", tp=1, attention_dp=16, pp=1, batch=64),
    ]
    layout = build_layout(instance, servers).layout
    text = export_layout(instance, layout, "dynamo").files["deployment.yaml"]
    again = found("sglang", "deployment.yaml", text, tmp_path)
    assert {(one.role, one.tp, one.attention_dp, one.batch) for one in again} == {
        ("prefill", 1, 8, 8),
        ("decode", 1, 16, 64),
    }
    assert all(one.experts is not None and len(one.experts) == 61 for one in again)


def test_a_folder_is_all_its_scripts_and_manifests(tmp_path: Path) -> None:
    """As repositories keep them: one script for prefill, a manifest for decode, a router that starts no server."""
    (tmp_path / "start_prefill.sh").write_text(
        """vllm serve m -tp 4 --kv-transfer-config '{"kv_role": "kv_producer"}'\n"""
    )
    decode = """vllm serve m -tp 2 --config more.yaml --kv-transfer-config '{"kv_role": "kv_consumer"}'"""
    manifest = {
        "kind": "Deployment",
        "metadata": {"name": "decode"},
        "spec": {"replicas": 3, "containers": [{"name": "d", "command": ["sh", "-c"], "args": [decode]}]},
    }  # fmt: skip
    (tmp_path / "decode.yaml").write_text(yaml.safe_dump(manifest))
    (tmp_path / "more.yaml").write_text("max-num-seqs: 32\n")
    (tmp_path / "router.sh").write_text("python -m vllm_router.app --port 8000\n")
    (tmp_path / "notes.txt").write_text("vllm serve m -tp 8\n")
    servers = read_servers("vllm", tmp_path)
    assert [(one.role, one.tp, one.copies, one.batch) for one in servers] == [
        ("decode", 2, 3, 32),
        ("prefill", 4, 1, None),
    ]
    with pytest.raises(InstanceError, match=r"holds no sglang command in \.sh, \.service, "):
        read_servers("sglang", tmp_path)
    (tmp_path / "commands.sh").write_text(
        "vllm serve m -tp 8\n"
    )  # an export's own file stands alone
    assert [one.tp for one in read_servers("vllm", tmp_path)] == [8]

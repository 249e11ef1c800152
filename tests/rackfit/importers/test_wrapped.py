"""Commands inside docker run, Kubernetes manifests, Dynamo resources and systemd units.

Each case is written anew after a public example, named beside it: its programs, options and fields are those found
there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout, read_servers
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError

# after the documentation of vLLM, deployment with docker
DOCKER_VLLM = """docker run --runtime nvidia --gpus all \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HF_TOKEN=secret" -p 8000:8000 --ipc=host \\
    vllm/vllm-openai:latest --model Qwen/Qwen3-0.6B --tensor-parallel-size 2 --max-num-seqs 64
"""
# after a note on Qwen2.5-VL-7B on two cards (mynw.cn, news 425280)
DOCKER_NAMED = """docker run --gpus all -d -p 8000:8000 --name qwen --ipc=host --pids-limit -1 \\
    --security-opt seccomp=unconfined -v /models:/model -e OMP_NUM_THREADS=16 vllm/vllm-openai:latest \\
    --model /model --tensor-parallel-size 2 --max-model-len 16384 --gpu-memory-utilization 0.9 --trust-remote-code
"""
# after the documentation of SGLang, installation with docker
DOCKER_SGLANG = """sudo docker run --gpus all --shm-size 32g -p 30000:30000 --ipc=host lmsysorg/sglang:latest \\
    python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 4 --host 0.0.0.0 --port 30000
"""
# after the documentation of vLLM, deployment on Kubernetes: a shell with one argument
KUBERNETES_SHELL = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "mistral-7b"},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "mistral-7b",
                        "image": "vllm/vllm-openai:latest",
                        "command": ["/bin/sh", "-c"],
                        "args": [
                            "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --trust-remote-code "
                            "--enable-chunked-prefill --max-num-batched-tokens 1024"
                        ],
                        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {}}}],
                    }
                ]
            }
        },
    },
}
# after lahlfors/cybernetic-governance-engine, deployment/k8s/vllm-reasoning.yaml.tpl: the server's module, variables
KUBERNETES_MODULE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm-reasoning"},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:latest",
                        "env": [{"name": "TP_SIZE", "value": "2"}],
                        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                        "args": ["--model", "m", "--tensor-parallel-size", "$(TP_SIZE)"],
                    }
                ]
            }
        },
    },
}
# after ai-dynamo/dynamo, vLLM backend: prefill and decode workers (v1alpha1)
DYNAMO_VLLM = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "DynamoGraphDeployment",
    "metadata": {"name": "vllm-disagg"},
    "spec": {
        "services": {
            "Frontend": {
                "replicas": 1,
                "extraPodSpec": {"mainContainer": {"args": ["python3 -m dynamo.frontend"]}},
            },
            "VllmDecodeWorker": {
                "replicas": 2,
                "subComponentType": "decode",
                "extraPodSpec": {
                    "mainContainer": {
                        "command": ["python3", "-m", "dynamo.vllm"],
                        "args": ["--model", "Qwen/Qwen3-0.6B", "--tensor-parallel-size", "2"],
                    }
                },
            },
            "VllmPrefillWorker": {
                "replicas": 1,
                "extraPodSpec": {
                    "mainContainer": {
                        "command": ["python3", "-m", "dynamo.vllm"],
                        "args": ["--model", "Qwen/Qwen3-0.6B", "--is-prefill-worker"],
                    }
                },
            },
        }
    },
}
# after ai-dynamo/dynamo, tool calling (v1beta1): a pod template's container
DYNAMO_SGLANG = {
    "apiVersion": "nvidia.com/v1beta1",
    "kind": "DynamoGraphDeployment",
    "metadata": {"name": "qwen"},
    "spec": {
        "components": [
            {
                "name": "SGLangWorker",
                "type": "worker",
                "replicas": 1,
                "podTemplate": {
                    "spec": {
                        "containers": [
                            {
                                "name": "main",
                                "command": ["python3", "-m", "dynamo.sglang"],
                                "args": ["--model-path", "Qwen/Qwen3.5-4B", "--tp", "2"],
                            }
                        ]
                    }
                },
            }
        ]
    },
}
# after llm-d/llm-d, guides/pd-disaggregation/ms-pd/values.yaml: values of the model service's chart
LLMD_POOLS = {
    "modelArtifacts": {"uri": "hf://openai/gpt-oss-120b", "name": "openai/gpt-oss-120b"},
    "decode": {
        "create": True,
        "replicas": 1,
        "parallelism": {"tensor": 4},
        "containers": [
            {
                "name": "vllm",
                "image": "ghcr.io/llm-d/llm-d-cuda-dev:latest",
                "modelCommand": "vllmServe",
                "args": ["--block-size", "128", "--max-num-seqs", "32", "--kv-transfer-config",
                         '{"kv_connector":"NixlConnector", "kv_role":"kv_both"}'],
            }
        ],
    },
    "prefill": {
        "create": True,
        "replicas": 2,
        "parallelism": {"tensor": 1},
        "containers": [{"modelCommand": "vllmServe", "args": ["--max-model-len", "4096"]}],
    },
}  # fmt: skip
# after Gregory-Pereira/llm-d, guides/wide-ep-lws/ms-wide-ep/values.yaml: a script over pods of a group
_WIDE = """START_RANK=$(( ${LWS_WORKER_INDEX:-0} * DP_SIZE_LOCAL ))
source /opt/vllm/bin/activate
exec vllm serve deepseek-ai/DeepSeek-R1-0528 --enable-expert-parallel --tensor-parallel-size $TP_SIZE \\
  --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) --data-parallel-size-local $DP_SIZE_LOCAL \\
  --data-parallel-address ${LWS_LEADER_ADDRESS} --data-parallel-start-rank $START_RANK
"""
LLMD_WIDE: dict[str, Any] = {
    "multinode": True,
    "modelArtifacts": {"uri": "hf://deepseek-ai/DeepSeek-R1-0528"},
    "decode": {
        "replicas": 1,
        "parallelism": {"data": 16, "dataLocal": 8, "tensor": 1},
        "containers": [
            {"modelCommand": "custom", "command": ["/bin/bash", "-c"], "args": [_WIDE]},
        ],
    },
    "prefill": {"create": False, "containers": [{"modelCommand": "vllmServe"}]},
}
# after llm-d/llm-d, guides/agentic-serving/modelserver/gpu/sglang/kimi-k3/base/statefulset.yaml: two pods, one server
LLMD_SGLANG: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "distributed-sglang"},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "sglang",
                        "command": ["/bin/bash", "-c"],
                        "args": [
                            "sglang serve --model-path moonshotai/Kimi-K3 --tp-size 16 --nnodes 2 "
                            "--node-rank $POD_INDEX --dist-init-addr master:20000 --max-running-requests 512"
                        ],
                    }
                ]
            }
        },
    },
}
# after Austontatious/lex, lexi-vllm-README.md: a server of four devices as a service
UNIT_VLLM = """[Unit]
Description=vLLM
[Service]
Environment="CUDA_VISIBLE_DEVICES=1,2,3,4" MODEL=/mnt/data/models/lexi
ExecStart=/mnt/data/venv/bin/python -m vllm.entrypoints.openai.api_server \\
    --model ${MODEL} --tensor-parallel-size 4 --max-num-seqs 64
Restart=always
"""
# after the usual unit of vllm serve (vllm.service.example of several repositories)
UNIT_SERVE = """[Service]
ExecStart=-/opt/vllm/bin/vllm serve Qwen/Qwen3-14B --tensor-parallel-size 2 --data-parallel-size 2
"""


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
        ({"parallelism": [4]}, r"decode\.parallelism: expected sizes by name"),
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

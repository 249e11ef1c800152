"""What charts and operators read: vLLM's production stack and KServe; and manifests with anything anywhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackfit.importers.unpriced import Drafts
from tests.rackfit.importers.samples import (
    DYNAMO_SGLANG,
    DYNAMO_VLLM,
    KUBERNETES_MODULE,
    LLMD_POOLS,
    LLMD_SGLANG,
    LLMD_WIDE,
)
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError

#: after tutorials/assets/values-16-disagg-prefill.yaml and values-25-v100-multi-gpu-tp4.yaml of vllm-project/production-stack (Apache-2.0)
STACK: dict[str, Any] = {
    "servingEngineSpec": {
        "modelSpec": [
            {
                "name": "llama-prefill",
                "repository": "lmcache/vllm-openai",
                "modelURL": "org/Llama-FP8",
                "replicaCount": 2,
                "vllmConfig": {
                    "tensorParallelSize": 4,
                    "maxModelLen": 8192,
                    "maxNumSeqs": 8,
                    "gpuMemoryUtilization": 0.9,
                    "extraArgs": ["--enforce-eager"],
                },
                "lmcacheConfig": {"enabled": True, "kvRole": "kv_producer", "enablePD": True},
            },
            {
                "name": "llama-decode",
                "modelURL": "org/Llama-FP8",
                "vllmConfig": {"tensorParallelSize": 2, "pipelineParallelSize": 2},
                "lmcacheConfig": {"enabled": True, "kvRole": "kv_consumer", "enablePD": True},
            },
            {"name": "off", "modelURL": "org/other", "replicaCount": 0},
        ]
    },
    "routerSpec": {"replicaCount": 1},
}
#: after operator/config/samples/production-stack_v1alpha1_vllmruntime.yaml of the same
RUNTIME: dict[str, Any] = {
    "apiVersion": "production-stack.vllm.ai/v1alpha1",
    "kind": "VLLMRuntime",
    "metadata": {"name": "sample"},
    "spec": {
        "model": {"modelURL": "org/Llama", "maxNumSeqs": 32, "enableLoRA": True},
        "vllmConfig": {"tensorParallelSize": 2, "gpuMemoryUtilization": "0.8"},
        "deploymentConfig": {"replicas": 3},
    },
}
#: after docs/samples/llmisvc/dp-ep/deepseek-r1-gpu-rdma-roce of kserve/kserve (Apache-2.0)
SERVICE: dict[str, Any] = {
    "apiVersion": "serving.kserve.io/v1alpha2",
    "kind": "LLMInferenceService",
    "metadata": {"name": "deepseek-r1"},
    "spec": {
        "model": {"uri": "hf://deepseek-ai/DeepSeek-R1-0528", "name": "deepseek-ai/DeepSeek-R1-0528"},
        "replicas": 1,
        "parallelism": {"data": 16, "dataLocal": 8, "expert": True, "tensor": 1},
        "template": {
            "containers": [
                {
                    "name": "main",
                    "env": [
                        {
                            "name": "VLLM_ADDITIONAL_ARGS",
                            "value": "--max-num-seqs 64 --speculative_config.method mtp --kv_transfer_config "
                            """'{"kv_connector":"NixlConnector","kv_role":"kv_both"}'""",
                        },
                        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                }
            ]
        },
        "worker": {"containers": [{"name": "main"}]},
        "prefill": {"replicas": 2, "parallelism": {"tensor": 8}, "template": {"containers": [{"name": "main"}]}},
    },
}  # fmt: skip

#: after files that repositories keep for vllm/vllm-openai and lmsysorg/sglang: one text with defaults, a list, a shell
COMPOSE: dict[str, Any] = {
    "version": "3.8",
    "services": {
        "vllm": {
            "image": "vllm/vllm-openai:latest",
            "environment": ["CUDA_VISIBLE_DEVICES=0,1,2,3", "HF_TOKEN"],
            "command": "--model ${MODEL:-org/Llama-3.3-70B-Instruct-FP8-Dynamic} --tensor-parallel-size ${TP:-4}\n"
            "--max-num-seqs ${SEQS:-128} --port 8000\n",
            "deploy": {"replicas": 2, "resources": {"reservations": {"devices": [{"count": "all"}]}}},
        },
        "second": {
            "image": "vllm/vllm-openai:v0.6.3.post1",
            "command": ["--model", "/app/model/m", "--tensor-parallel-size", "2", "--quantization", "fp8"],
        },
        "shell": {
            "image": "nvcr.io/nvidia/vllm",
            "entrypoint": ["bash", "-c"],
            "command": ["vllm serve m -tp $TP_SIZE"],
            "environment": {"TP_SIZE": 8},
        },
        "off": {"image": "vllm/vllm-openai", "command": "--model m", "scale": 0},
        "web": {"image": "nginx"},
    },
}  # fmt: skip


def test_services_of_docker_compose(tmp_path: Path) -> None:
    servers = found("vllm", "docker-compose.yml", COMPOSE, tmp_path)
    servers.sort(key=lambda one: one.place, reverse=True)
    assert [(one.tp, one.copies, one.batch, one.weights) for one in servers] == [
        (4, 2, 128, "fp8"),
        (8, 1, None, None),
        (2, 1, None, "fp8"),
    ]
    assert servers[0].place == "docker-compose.yml: service vllm"
    assert not any(one.notes for one in servers)
    open_ended = copy.deepcopy(COMPOSE)
    open_ended["services"]["vllm"]["command"] = "--model m --tensor-parallel-size ${TP}"
    with pytest.raises(
        InstanceError, match=r"service vllm: --tensor-parallel-size: is \$\{TP\}, which"
    ):
        found("vllm", "docker-compose.yml", open_ended, tmp_path)
    sglang = {
        "services": {
            "s": {"image": "lmsysorg/sglang", "command": "python3 -m sglang.launch_server --tp 4"}
        }
    }
    assert [one.tp for one in found("sglang", "compose.yaml", sglang, tmp_path)] == [4]


def test_values_of_the_production_stack(tmp_path: Path) -> None:
    prefill, decode = found("vllm", "values.yaml", STACK, tmp_path)
    assert (prefill.role, prefill.tp, prefill.copies, prefill.batch) == ("prefill", 4, 2, 8)
    assert (prefill.longest, prefill.memory_fraction, prefill.weights) == (8192, 0.9, "fp8")
    assert prefill.unpriced == (("--enforce-eager", "no CUDA graphs"),)
    assert (decode.role, decode.tp, decode.pp, decode.copies) == ("decode", 2, 2, 1)
    assert prefill.place == "values.yaml: modelSpec llama-prefill"
    (one,) = found("vllm", "runtime.yaml", RUNTIME, tmp_path)
    assert (one.role, one.tp, one.copies, one.batch) == ("mixed", 2, 3, 32)
    assert one.unpriced == (("--enable-lora", "adapters"),)


def test_values_that_serve_several_models_are_refused(tmp_path: Path) -> None:
    values = copy.deepcopy(STACK)
    values["servingEngineSpec"]["modelSpec"][1]["modelURL"] = "org/other"
    with pytest.raises(InstanceError, match=r"serves org/Llama-FP8, org/other; expected one model"):
        found("vllm", "values.yaml", values, tmp_path)


def test_a_service_of_kserve_has_pools_by_their_parallelism(tmp_path: Path) -> None:
    prefill, decode = found("vllm", "service.yaml", SERVICE, tmp_path)
    assert (prefill.role, prefill.tp, prefill.attention_dp, prefill.copies) == ("prefill", 8, 1, 2)
    assert prefill.sharded_experts
    assert (decode.role, decode.tp, decode.attention_dp, decode.copies) == ("decode", 1, 16, 1)
    assert (decode.batch, decode.sharded_experts, decode.drafts) == (
        64 * 16,
        False,
        Drafts("mtp", None),
    )
    alone = copy.deepcopy(SERVICE)
    del alone["spec"]["prefill"]
    assert [one.role for one in found("vllm", "service.yaml", alone, tmp_path)] == ["mixed"]
    own = copy.deepcopy(alone)  # a command of its own counts as it stands
    own["spec"]["template"]["containers"][0] |= {"command": ["vllm", "serve", "m", "-tp", "4"]}
    assert [one.tp for one in found("vllm", "service.yaml", own, tmp_path)] == [4]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a document, as what holds it and its key."""
    keys = (
        list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    )
    for key in keys:
        yield data, key
        yield from places(data[key])


ODD: tuple[Any, ...] = (None, -1, 1e9, "'", [], {}, [1], {"a": {}})


@pytest.mark.parametrize(
    ("engine", "document"),
    [
        *(("vllm", one) for one in (STACK, RUNTIME, SERVICE, COMPOSE, LLMD_POOLS, LLMD_WIDE, DYNAMO_VLLM, KUBERNETES_MODULE)),
        ("sglang", LLMD_SGLANG),
        ("sglang", DYNAMO_SGLANG),
    ],
)  # fmt: skip
def test_anything_anywhere_is_refused_or_read(engine: str, document: Any, tmp_path: Path) -> None:
    """A list where a mapping should be, text where a number should be: no other error than the clear one."""
    read = refused = 0
    for number in range(len(list(places(document)))):
        for odd in ODD:
            changed = copy.deepcopy(document)
            holder, key = list(places(changed))[number]
            holder[key] = odd
            try:
                read += len(found(engine, "odd.yaml", yaml.safe_dump(changed), tmp_path))
            except InstanceError:
                refused += 1
    assert read
    assert refused

"""Files that start servers: each is written anew after a public example, named beside it.

Its programs, options and fields are those found there.
"""

from __future__ import annotations

from typing import Any

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
# after SemiAnalysisAI/InferenceX (Apache-2.0), benchmarks/single_node/fixed_seq_len/deprecated/gptoss_fp4_b200.sh; there
# the caller sets TP
SHELL_VLLM = """#!/usr/bin/env bash
source "$(dirname "$0")/lib.sh"
TP=${TP:-8}
if [ "$ISL" = "1024" ]; then
    MAX_LEN=$((ISL + OSL + 20))
else
    MAX_LEN=${MAX_MODEL_LEN:-10240}
fi
cat > config.yaml << EOF
compilation-config: '{"pass_config":{"eliminate_noops":true}}'
max-model-len: $MAX_LEN
EOF
export TORCH_CUDA_ARCH_LIST="10.0"
SERVER_LOG=/workspace/server.log
set -x
vllm serve $MODEL --host 0.0.0.0 --port $PORT \\
--config config.yaml \\
--gpu-memory-utilization 0.9 \\
--tensor-parallel-size $TP \\
--max-num-seqs 512 > $SERVER_LOG 2>&1 &
SERVER_PID=$!
wait_for_server_ready --port "$PORT" --server-pid "$SERVER_PID"
"""
# after the same, benchmarks/single_node/agentic/qwen3.5_fp8_h100_mtp.sh: words in arrays, a program over several lines
SHELL_SGLANG = """#!/usr/bin/env bash
TP=8
EP_SIZE=8
CACHE_ARGS=()
if require_backend hicache; then
    CACHE_ARGS=(
        --page-size 64
        --enable-hierarchical-cache
    )
fi
SPEC_ARGS=(
    --speculative-algorithm EAGLE
    --speculative-num-steps 3
)
if ! sed -n '/elif isinstance(output, Batch):/,/by_index/p' "$FILE" | grep -q 'details'; then
    sed -i '/elif isinstance(output, Batch):/,/by_index/ {
        /cached_tokens=/a\\
            details=by_index(output, "details", i),
    }' "$FILE"
fi
SGLANG_CMD=(
    python3 -m sglang.launch_server
    --model-path="$MODEL_PATH"
    --port="$PORT"
    --tensor-parallel-size="$TP"
    --data-parallel-size=1
    --expert-parallel-size="$EP_SIZE"
    # --max-running-requests "$CONC"
    --kv-cache-dtype fp8_e4m3
    --an-option-of-tomorrow 7
    "${SPEC_ARGS[@]}"
    "${CACHE_ARGS[@]}"
)
printf '%q ' "${SGLANG_CMD[@]}" | tee "$RESULT_DIR/command.txt"
"${SGLANG_CMD[@]}" > "$SERVER_LOG" 2>&1 &
"""
# after the same, benchmarks/single_node/fixed_seq_len/deprecated/minimaxm2.5_fp4_b200.sh: sizes that a condition chooses
SHELL_CHOSEN = """if [ "${DP_ATTENTION}" = "true" ]; then
  PARALLEL_ARGS="--tensor-parallel-size=1 --data-parallel-size=$TP --enable-expert-parallel"
else
  PARALLEL_ARGS="--tensor-parallel-size=$TP"
fi
vllm serve $MODEL --port $PORT \\
$PARALLEL_ARGS \\
--max-num-batched-tokens "$((ISL * 2 ))" > $SERVER_LOG 2>&1 &
"""
# after AI-Hypercomputer/gpu-recipes (Apache-2.0), src/launchers/vllm-launcher.sh: the caller's options
SHELL_PASSED = """set -eux
vllm serve "$MODEL_NAME" \\
  "$@"
"""

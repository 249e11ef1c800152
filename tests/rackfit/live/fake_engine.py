"""Small servers that answer as vLLM 0.33 and SGLang 0.5.23 do, from the options that they were started with.

Knows nothing of Rackfit. Answers follow vllm/entrypoints/serve and sglang/srt/entrypoints/http_server.py.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str, str]
_CONFIGS = {
    "tensor-parallel-size": "parallel_config", "pipeline-parallel-size": "parallel_config",
    "data-parallel-size": "parallel_config", "all2all-backend": "parallel_config",
    "enable-expert-parallel": "parallel_config", "enable-eplb": "parallel_config",
    "eplb-config": "parallel_config", "max-num-seqs": "scheduler_config",
    "max-num-batched-tokens": "scheduler_config", "gpu-memory-utilization": "cache_config",
    "dtype": "model_config", "max-model-len": "model_config", "trust-remote-code": "model_config",
    "max-cudagraph-capture-size": "compilation_config",
}  # fmt: skip


def options(line: str) -> dict[str, Any]:
    """Options of a command by name without dashes; a flag is true, numbers and JSON are read."""
    words = [word for word in shlex.split(line) if word != "-m"]
    found: dict[str, Any] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            value: Any = words[place + 1] if place + 1 < len(words) else "--"
            found[word[2:]] = True if value.startswith("--") else value
    for name, value in found.items():
        try:
            found[name] = json.loads(value)
        except (TypeError, ValueError):
            continue
    return found


class Engine:
    """What every fake server does: count paths, stream tokens. ``kv_tokens``: room of one rank's cache."""

    kv_tokens = 0

    def __init__(self, line: str) -> None:
        self.given = options(line)
        self.asked: list[str] = []
        self.prompts: list[dict[str, Any]] = []

    def get(self, path: str) -> Answer:
        """Status, content type and body of ``GET path``."""
        raise NotImplementedError

    def tokens(self, body: dict[str, Any]) -> Iterator[str]:
        """Server-sent events of a completion."""
        self.prompts.append(body)
        count = body["max_tokens"]
        for _ in range(count):
            yield json.dumps({"choices": [{"index": 0, "text": " a"}]})
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
        yield json.dumps({"choices": [], "usage": usage})
        yield "[DONE]"


class Vllm(Engine):
    """``vllm serve``; ``dev``: with VLLM_SERVER_DEV_MODE=1. ``mean_s``: TPOT of 1,000 requests before."""

    version = "0.33.0"
    kv_tokens = 10**9

    def __init__(self, line: str, *, dev: bool = True, mean_s: float = 0.0) -> None:
        super().__init__(line)
        self.dev, self.mean_s = dev, mean_s

    def get(self, path: str) -> Answer:
        given = self.given
        if path == "/version":
            return _json({"version": self.version})
        if path == "/v1/models":
            model = {"id": given["served-model-name"], "object": "model", "max_model_len": given["max-model-len"]}  # fmt: skip
            return _json({"object": "list", "data": [model]})
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4", "\n".join(self._metrics()) + "\n"
        if path == "/server_info?config_format=json" and self.dev:
            return _json({"vllm_config": self._config(), "vllm_env": {}, "system_env": {}})
        return _json({"detail": "Not Found"}, 404)

    def _metrics(self) -> Iterator[str]:
        name = self.given["served-model-name"]
        for rank in range(self.given["data-parallel-size"]):
            cache = f'cache_dtype="{self.given["kv-cache-dtype"]}",engine="{rank}"'
            cache += f',gpu_memory_utilization="{self.given["gpu-memory-utilization"]}"'
            cache += f',kv_cache_size_tokens="{self.kv_tokens}"'
            yield f"vllm:cache_config_info{{{cache}}} 1.0"
            labels = f'{{engine="{rank}",model_name="{name}"}}'
            yield "# TYPE vllm:num_requests_running gauge"
            yield f"vllm:num_requests_running{labels} 0.0"
            if self.mean_s:
                yield f"vllm:request_time_per_output_token_seconds_sum{labels} {1000 * self.mean_s}"
                yield f"vllm:request_time_per_output_token_seconds_count{labels} 1000.0"

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "cache_config": {"cache_dtype": self.given["kv-cache-dtype"]},
            "kv_transfer_config": self.given.get("kv-transfer-config"),
        }
        for name, value in self.given.items():
            if name in _CONFIGS:
                said = f"torch.{value}" if name == "dtype" else value
                config.setdefault(_CONFIGS[name], {})[name.replace("-", "_")] = said
        return config


class Sglang(Engine):
    """``sglang.launch_server``."""

    kv_tokens = 10**9

    def get(self, path: str) -> Answer:
        if path == "/server_info":
            info = {name.replace("-", "_"): value for name, value in self.given.items()}
            if "chunked_prefill_size" in info:  # as sglang/srt/arg_groups/parallel_hook.py does
                ranks = info.get("attn_dp_size") or info.get("dp_size", 1)
                info["chunked_prefill_size"] //= ranks
            return _json(
                info | {"version": "0.5.23", "internal_states": [{}], "launch_command": ""}
            )
        return _json({"detail": "Not Found"}, 404)


def _json(data: dict[str, Any], status: int = 200) -> Answer:
    return status, "application/json", json.dumps(data)


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """The URL at which an engine answers until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            engine.asked.append(self.path)
            status, kind, body = engine.get(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if 300 <= status < 400:
                self.send_header("Location", body)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            engine.asked.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in engine.tokens(body):
                self.wfile.write(f"data: {event}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""An endpoint without a model: streams letters at a set pace, and remembers when it sent them.

    python -m benchmarks.readers.endpoint PORT [FAIL_EVERY]

Answers ``/v1/completions``, ``/v1/chat/completions`` (streamed or not, with usage), SGLang's ``/generate``, and the
questions that benchmark tools ask before and after a run. Of every FAIL_EVERY requests one gets status 500.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.readers.tokenizer import letter

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
#: seconds to the first token and between tokens: far apart, so that no mean of one passes for the other
TTFT_S, TPOT_S = 0.4, 0.02


@dataclass(frozen=True)
class Sent:
    """One answer: tokens in and out, seconds to the first and from it to the last."""

    inputs: int
    outputs: int
    first_s: float
    rest_s: float


@dataclass
class Log:
    """What was sent so far. ``fail_every``: of so many requests one fails, 0 for none."""

    fail_every: int = 0
    sent: list[Sent] = field(default_factory=list)
    asked: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails(self) -> bool:
        """Whether the request that comes now is one that fails."""
        with self.lock:
            self.asked += 1
            lost = bool(self.fail_every) and self.asked % self.fail_every == 0
            self.failed += lost
            return lost


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log: Log

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/v1/models":
            one = {
                "id": MODEL,
                "object": "model",
                "created": 0,
                "owned_by": "none",
                "max_model_len": 8192,
            }
            self._json({"object": "list", "data": [one]})  # fmt: skip
        elif path in ("/get_server_info", "/server_info"):
            self._json({"model_path": MODEL, "served_model_name": MODEL, "internal_states": [{}]})
        elif path in ("/get_model_info", "/model_info"):
            self._json({"model_path": MODEL, "is_generation": True})
        elif path in ("/", "/health", "/ping", "/health_generate", "/version"):
            self._json({"version": "0"})
        else:
            self._json({"error": {"message": f"no {path}", "code": 404}}, 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path not in ("/v1/completions", "/v1/chat/completions", "/generate"):
            self._json({})
            return
        body = json.loads(raw)
        if self.log.fails():
            self._json({"error": {"message": "planned", "type": "server_error", "code": 500}}, 500)
            return
        inputs, outputs = _tokens_in(body), _tokens_out(body)
        begun = time.monotonic()
        time.sleep(TTFT_S)
        if body.get("stream"):
            first = self._stream(path, body, inputs, outputs)
        else:
            time.sleep(TPOT_S * (outputs - 1))
            first = time.monotonic()
            self._json(_whole(path, inputs, outputs))
        with self.log.lock:
            self.log.sent.append(Sent(inputs, outputs, first - begun, time.monotonic() - first))

    def _stream(self, path: str, body: dict[str, Any], inputs: int, outputs: int) -> float:
        """Send the tokens one by one; when the first went."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        first = time.monotonic()
        for number, event in enumerate(_events(path, body, inputs, outputs)):
            if 0 < number < outputs:
                time.sleep(max(0.0, first + number * TPOT_S - time.monotonic()))
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        return first

    def _json(self, data: dict[str, Any], status: int = 200) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _tokens_in(body: dict[str, Any]) -> int:
    prompt = body.get("prompt", body.get("text", body.get("input_ids", "")))
    if "messages" in body:
        parts = [message.get("content") or "" for message in body["messages"]]
        prompt = "".join(part if isinstance(part, str) else _texts(part) for part in parts)
    if isinstance(prompt, list):
        prompt = prompt[0] if len(prompt) == 1 and not isinstance(prompt[0], int) else prompt
    return len(prompt)


def _texts(parts: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for part in parts)


def _tokens_out(body: dict[str, Any]) -> int:
    asked = body.get("sampling_params", body)
    for key in ("max_completion_tokens", "max_tokens", "max_new_tokens"):
        if asked.get(key):
            return int(asked[key])
    return 16


def _usage(inputs: int, outputs: int) -> dict[str, int]:
    total = inputs + outputs
    return {"prompt_tokens": inputs, "completion_tokens": outputs, "total_tokens": total}


def _events(path: str, body: dict[str, Any], inputs: int, outputs: int) -> Iterator[str]:
    """Server-sent events: one for each token, usage where it is asked for, the end."""
    if path == "/generate":
        text = ""
        for number in range(outputs):
            text += letter(number)
            end = None if number + 1 < outputs else {"type": "length", "length": outputs}
            told = {"id": "0", "prompt_tokens": inputs, "completion_tokens": number + 1, "cached_tokens": 0,
                    "finish_reason": end, "e2e_latency": 0.0}  # fmt: skip
            yield json.dumps({"text": text, "meta_info": told})
        yield "[DONE]"
        return
    chat = path.endswith("chat/completions")
    options = body.get("stream_options") or {}
    head = {"id": "0", "created": 0, "model": MODEL}
    head["object"] = "chat.completion.chunk" if chat else "text_completion"
    for number in range(outputs):
        said = letter(number)
        inside = {"delta": {"role": "assistant", "content": said}} if chat else {"text": said}
        end = "length" if number + 1 == outputs else None
        event: dict[str, Any] = {
            **head,
            "choices": [{"index": 0, "logprobs": None, "finish_reason": end, **inside}],
        }
        if options.get("continuous_usage_stats"):
            event["usage"] = _usage(inputs, number + 1)
        yield json.dumps(event)
    if options.get("include_usage"):
        yield json.dumps({**head, "choices": [], "usage": _usage(inputs, outputs)})
    yield "[DONE]"


def _whole(path: str, inputs: int, outputs: int) -> dict[str, Any]:
    text = "".join(map(letter, range(outputs)))
    if path == "/generate":
        told = {"prompt_tokens": inputs, "completion_tokens": outputs}
        return {"text": text, "meta_info": told}
    chat = path.endswith("chat/completions")
    inside = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice = {"index": 0, "finish_reason": "length", **inside}
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "0", "object": kind, "created": 0, "model": MODEL, "choices": [choice],
            "usage": _usage(inputs, outputs)}  # fmt: skip


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(port: int = 0, fail_every: int = 0) -> tuple[ThreadingHTTPServer, Log]:
    """Start on a port of this machine (0: a free one), in threads. ``shutdown()`` stops it."""
    log = Log(fail_every)
    server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"log": log}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, log


if __name__ == "__main__":
    running, _ = serve(*map(int, sys.argv[1:3]))
    print(f"http://127.0.0.1:{running.server_address[1]}", flush=True)
    threading.Event().wait()

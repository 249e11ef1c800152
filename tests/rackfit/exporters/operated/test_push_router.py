"""The router that is exported for vLLM servers joined by NixlPushConnector, between small stand-ins for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rackfit.exporters.launch.push_router import Pool, Router

#: what vLLM's prefill server answers, as its push connector writes it
PARAMS = {
    "do_remote_prefill": True, "remote_engine_id": "p", "remote_host": "node0", "remote_port": 20660,
    "tp_size": 1, "pp_size": 5, "remote_request_id": "cmpl-1",
}  # fmt: skip
EVENTS = [b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"]


class Engine(ThreadingHTTPServer):
    """Keeps what it was asked; a prefill server answers with :data:`PARAMS`, a decode server in pieces."""

    daemon_threads = True

    def __init__(self, status: int = 200, *, prefill: bool) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.prefill, self.status = prefill, status
        self.asked: list[tuple[dict[str, Any], dict[str, str]]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    """One request of the router."""

    server: Engine

    def do_GET(self) -> None:
        """Health."""
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def do_POST(self) -> None:
        """A completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((body, dict(self.headers)))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if self.server.prefill:
            self.wfile.write(json.dumps({"kv_transfer_params": PARAMS}).encode())
        else:
            for event in EVENTS:
                self.wfile.write(event)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def running(*servers: ThreadingHTTPServer) -> Iterator[None]:
    for one in servers:
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield
    finally:
        for one in servers:
            one.shutdown()
            one.server_close()


def ask(router: Router, body: object, path: str = "/v1/completions") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", router.server_port, timeout=30)
    try:
        connection.request(
            "POST" if body is not None else "GET", path, None if body is None else json.dumps(body),
            {"Authorization": "Bearer key", "X-Request-Id": "mine"},
        )  # fmt: skip
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_decode_server_gets_all_that_the_prefill_server_says() -> None:
    prefill, decode = Engine(prefill=True), Engine(prefill=False)
    router = Router(("127.0.0.1", 0), [prefill.url], [decode.url])
    body = {
        "model": "m", "prompt": [1, 2, 3], "max_tokens": 9, "min_tokens": 9, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    with running(prefill, decode, router):
        assert ask(router, body) == (200, b"".join(EVENTS))
    ((first, names),) = prefill.asked
    assert (first["max_tokens"], first["min_tokens"], first["stream"]) == (1, 1, False)
    assert "stream_options" not in first
    assert first["kv_transfer_params"]["do_remote_decode"] is True
    ((second, others),) = decode.asked
    assert second == body | {"kv_transfer_params": PARAMS}
    # servers find each other's requests by this name
    assert names["X-Request-Id"] == others["X-Request-Id"] == "mine"
    assert names["Authorization"] == others["Authorization"] == "Bearer key"


@pytest.mark.parametrize(
    ("body", "path", "status", "said"),
    [
        ({"prompt": ["a", "b"]}, "/v1/completions", 400, b"send one each"),
        ({"prompt": "a", "n": 2}, "/v1/completions", 400, b"only 1 is served"),
        ([1], "/v1/completions", 400, b"error"),
        ({"prompt": "a"}, "/v1/embeddings", 404, b"/v1/completions"),
    ],
)
def test_what_it_does_not_serve_is_refused(
    body: object, path: str, status: int, said: bytes
) -> None:
    prefill, decode = Engine(prefill=True), Engine(prefill=False)
    router = Router(("127.0.0.1", 0), [prefill.url], [decode.url])
    with running(prefill, decode, router):
        found, text = ask(router, body, path)
    assert found == status
    assert said in text
    assert not prefill.asked + decode.asked


def test_servers_that_refuse_or_are_gone_are_named() -> None:
    refusing, decode = Engine(422, prefill=True), Engine(prefill=False)
    gone = "http://127.0.0.1:9"
    first = Router(("127.0.0.1", 0), [refusing.url], [decode.url])
    second = Router(("127.0.0.1", 0), [gone], [decode.url])
    with running(refusing, decode, first, second):
        assert ask(first, {"prompt": "a"})[0] == 422
        status, text = ask(second, {"prompt": "a"})
        assert status == 502
        assert gone.encode() in text
        assert ask(second, None, "/health") == (503, json.dumps({"ill": [gone]}).encode())
    assert not decode.asked


def test_health_and_models_are_those_of_the_servers() -> None:
    prefill, decode = Engine(prefill=True), Engine(prefill=False)
    router = Router(("127.0.0.1", 0), [prefill.url], [decode.url])
    with running(prefill, decode, router):
        assert ask(router, None, "/health") == (200, b'{"ill": []}')
        assert ask(router, None, "/v1/models") == (200, b"/v1/models")


def test_a_request_goes_where_fewest_are() -> None:
    pool = Pool(["a", "b"])
    with pool.least() as first, pool.least() as second:
        assert {first, second} == {"a", "b"}
    assert pool.busy == {"a": 0, "b": 0}
    with pool.least() as one, pool.least(), pool.least() as third:
        assert one == third

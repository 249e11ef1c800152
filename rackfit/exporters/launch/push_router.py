"""Shares requests between vLLM prefill and decode servers that hand KV over by NixlPushConnector.

    python3 router.py --prefill http://node0:20000 --decode http://node1:20400 [--host 0.0.0.0] [--port 8000]

A request goes to the prefill server with the fewest requests, which answers where its KV is; with that answer, whole
(vllm-router leaves out the number of stages), it goes to the decode server with the fewest, whose answer is handed on
as it comes. Python's own library alone: the file is exported as it is.
"""

from __future__ import annotations

import argparse
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

PATHS = ("/v1/completions", "/v1/chat/completions")
#: seconds until a silent server is given up; a health question is given up sooner
ANSWER_S, HEALTH_S = 1800.0, 5.0
#: what a prefill server is asked for: one token, and KV that another server will fetch
ASKED = {"do_remote_decode": True, "do_remote_prefill": False}


class Pool:
    """Servers of one role, and how many requests each has."""

    def __init__(self, urls: list[str]):
        self.busy = dict.fromkeys(urls, 0)
        self._lock = threading.Lock()

    @contextmanager
    def least(self) -> Iterator[str]:
        """The server with the fewest requests, which has one more inside."""
        with self._lock:
            url = min(self.busy, key=lambda one: self.busy[one])
            self.busy[url] += 1
        try:
            yield url
        finally:
            with self._lock:
                self.busy[url] -= 1


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """The request as a prefill server gets it. Raises ``ValueError`` where one answer cannot name all KV."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int):
        raise ValueError("several prompts in one request: send one each")
    if body.get("n", 1) != 1:
        raise ValueError("n: only 1 is served, several answers of one prompt are not")
    found = {name: value for name, value in body.items() if name != "stream_options"}
    limits = {"max_tokens": 1} | {
        name: 1 for name in ("max_completion_tokens", "min_tokens") if name in body
    }
    return found | limits | {"stream": False, "kv_transfer_params": ASKED}


@contextmanager
def asked(
    url: str, method: str, path: str, body: bytes | None, headers: dict[str, str], patience_s: float
) -> Iterator[HTTPResponse]:
    """A server's answer, while it comes."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=patience_s)
    try:
        connection.request(method, path, body, headers)
        yield connection.getresponse()
    finally:
        connection.close()


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # tokens are small, and each is sent when it comes
    server: Router

    def do_GET(self) -> None:
        """``/health``: whether every server is well; anything else is asked of a decode server."""
        if self.path != "/health":
            with self.server.decode.least() as url:
                self._hand_on(url, "GET", None, {})
            return
        ill = [url for pool in self.server.pools for url in pool.busy if not _well(url)]
        self._answer(503 if ill else 200, {"ill": ill})

    def do_POST(self) -> None:
        """A completion."""
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in PATHS:
            self._answer(404, {"error": f"expected one of {', '.join(PATHS)}"})
            return
        try:
            body = json.loads(text)
            first = prefill_body(body)
        except (ValueError, AttributeError) as error:
            self._answer(400, {"error": str(error)})
            return
        headers = {"Content-Type": "application/json"}
        # both servers find a request by this name
        headers["X-Request-Id"] = self.headers.get("X-Request-Id") or str(uuid.uuid4())
        if "Authorization" in self.headers:
            headers["Authorization"] = self.headers["Authorization"]
        try:
            with (
                self.server.prefill.least() as url,
                asked(
                    url, "POST", self.path, json.dumps(first).encode(), headers, ANSWER_S
                ) as answer,
            ):
                said, status = answer.read(), answer.status
            if status != 200:
                self._send(status, said)
                return
            body["kv_transfer_params"] = json.loads(said)["kv_transfer_params"]
        except (OSError, HTTPException, ValueError, KeyError) as error:
            self._answer(502, {"error": f"prefill server {url}: {error!r}"})
            return
        with self.server.decode.least() as url:
            self._hand_on(url, "POST", json.dumps(body).encode(), headers)

    def _hand_on(self, url: str, method: str, body: bytes | None, headers: dict[str, str]) -> None:
        """A server's answer, piece by piece."""
        begun = False
        try:
            with asked(url, method, self.path, body, headers, ANSWER_S) as answer:
                self.send_response(answer.status)
                self.send_header(
                    "Content-Type", answer.headers.get("Content-Type", "application/json")
                )
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                begun = True
                while piece := answer.read1(65536):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
        except (OSError, HTTPException) as error:
            self.close_connection = True  # an answer that was begun is cut, as the client sees
            if not begun:
                self._answer(502, {"error": f"decode server {url}: {error!r}"})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        self._send(status, json.dumps(content).encode())

    def _send(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


class Router(ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], prefill: list[str], decode: list[str]):
        super().__init__(address, Handler)
        self.prefill, self.decode = self.pools = Pool(prefill), Pool(decode)


def _well(url: str) -> bool:
    try:
        with asked(url, "GET", "/health", None, {}, HEALTH_S) as answer:
            return answer.status == 200
    except (OSError, HTTPException):
        return False


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="router of vLLM servers joined by NixlPushConnector"
    )
    parser.add_argument("--prefill", action="append", required=True, metavar="URL")
    parser.add_argument("--decode", action="append", required=True, metavar="URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    found = parser.parse_args()
    Router((found.host, found.port), found.prefill, found.decode).serve_forever()


if __name__ == "__main__":
    main()

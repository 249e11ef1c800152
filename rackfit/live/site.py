"""One URL that a person gave, asked over HTTP: its own paths, no redirect, no proxy, bounded in time and size."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from topology.errors import InstanceError, Problem
from topology.names import MOST_LINE, check_name, shown

#: bytes of an answer that are read; more is an error
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Site:
    """A server's address. ``timeout_s``: seconds for a whole answer; ``key``: sent as a bearer token."""

    url: str
    timeout_s: float = 10.0
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ``InstanceError`` for what is no plain http or https address."""
        check_name(self.url, "URL", MOST_LINE)
        try:
            parts = urlsplit(self.url)
            wrong = parts.scheme not in ("http", "https") or not parts.hostname
            wrong = wrong or bool(parts.username or parts.password or parts.query or parts.fragment)
            wrong = wrong or parts.port == 0 or not self.url.isascii() or " " in self.url
        except ValueError:
            wrong = True
        if wrong:
            raise InstanceError(
                Problem(shown(self.url, 200), "expected a URL such as http://node0:20000")
            )

    @property
    def host(self) -> str:
        """Host name, in lower case."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port, the scheme's own where none is written."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def problem(self, message: str) -> InstanceError:
        """An error at this URL."""
        return InstanceError(Problem(self.url, message))

    def text(self, path: str) -> str | None:
        """What ``GET path`` answers; ``None`` where the server has no such path. Raises ``InstanceError``."""
        with self._answer("GET", path) as (response, _):
            if response.status in (404, 405):
                return None
            self._check(response, path)
            return self._read(response, path).decode("utf-8", "replace")

    def data(self, path: str) -> dict[str, Any] | None:
        """What ``GET path`` answers as JSON; ``None`` where it is no JSON object or there is no such path."""
        text = self.text(path)
        try:
            found = json.loads(text) if text is not None else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def events(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """Server-sent events that ``POST path`` answers, each with the seconds since the request."""
        with self._answer("POST", path, body) as (response, started):
            self._check(response, path)
            size = 0
            while line := response.readline(_MOST_BYTES):
                now, size = time.perf_counter() - started, size + len(line)
                if size > _MOST_BYTES:
                    raise self.problem(f"{path} answers more than {_MOST_BYTES // 2**20} MiB")
                word = line.strip()
                if not word.startswith(b"data:") or word == b"data: [DONE]":
                    continue
                try:
                    event = json.loads(word.removeprefix(b"data:"))
                except (ValueError, RecursionError):
                    raise self.problem(f"{path} sends an event that is no JSON") from None
                if isinstance(event, dict):
                    yield now, event

    def _check(self, response: http.client.HTTPResponse, path: str) -> None:
        status = response.status
        if 300 <= status < 400:
            raise self.problem(
                f"{path} redirects, which is not followed; give the server's own URL"
            )
        if status in (401, 403):
            raise self.problem(
                f"{path} answers {status}: --key-variable NAME says where the key is"
            )
        if status != 200:
            said = " ".join(response.read(300).decode("utf-8", "replace").split())
            raise self.problem(f"{path} answers {status}: {shown(said, 200)}")

    def _read(self, response: http.client.HTTPResponse, path: str) -> bytes:
        found = response.read(_MOST_BYTES + 1)
        if len(found) > _MOST_BYTES:
            raise self.problem(f"{path} answers more than {_MOST_BYTES // 2**20} MiB")
        return found

    @contextmanager
    def _answer(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Iterator[tuple[http.client.HTTPResponse, float]]:
        """The response and the moment of the request. All failures of the network are one ``InstanceError``."""
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(self.host, self.port, timeout=self.timeout_s)
        headers = {"Accept": "*/*", "Connection": "close"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        late = threading.Event()

        def stop() -> None:  # a server that sends a byte now and then would else be read for ever
            late.set()
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

        watch = threading.Timer(self.timeout_s, stop)
        watch.daemon = True
        watch.start()
        try:
            started = time.perf_counter()
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, parts.path.rstrip("/") + path, sent, headers)
            if late.is_set():  # before there was a connection to stop
                raise TimeoutError
            yield connection.getresponse(), started
            if late.is_set():
                raise TimeoutError
        except InstanceError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise self.problem(f"no whole answer to {path} in {self.timeout_s:g} s") from None
            raise self.problem(f"cannot be asked for {path}: {_words(error)}") from None
        finally:
            watch.cancel()
            connection.close()


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return shown(f"no HTTP answer ({type(error).__name__})", 200)

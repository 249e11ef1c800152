"""A server of its own for a test, and a client that knows nothing but its OpenAPI document."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import jsonschema


class Client:
    """Operations of an OpenAPI document, by ``operationId``; requests and answers are checked against it."""

    def __init__(self, address: str, token: str = ""):
        self.address, self.token = address, token
        _, self.api = self.send("GET", "/api/openapi.json")
        self.paths = {
            told["post"]["operationId"]: (path, told["post"])
            for path, told in self.api["paths"].items()
        }

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """Status and document."""
        headers = {"Content-Type": "application/json", **headers}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        asked = urllib.request.Request(self.address + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def ask(self, name: str, valid: bool = True, **body: Any) -> Any:
        """Status and document of an operation, both as the schema has them."""
        path, told = self.paths[name]
        if valid:
            self.check(body, told["requestBody"]["content"])
        status, document = self.send("POST", path, json.dumps(body).encode())
        self.check(document, told["responses"][str(status)]["content"])
        return status, document

    def check(self, data: Any, content: Any) -> None:
        """Raise where data is not what the document says."""
        schema = {**content["application/json"]["schema"], "components": self.api["components"]}
        jsonschema.Draft202012Validator(schema).validate(data)


def started(*words: str) -> Iterator[Client]:
    """A server of its own on a free port, told of on stderr."""
    token = words[words.index("--token") + 1] if "--token" in words else ""
    command = [sys.executable, "-m", "rackfit", "serve", "--port", "0", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield Client(_told(server.stderr), token)
        finally:
            server.terminate()
        said = server.stderr.read()
        assert "Traceback" not in said, said
        assert server.wait() == 0


def _told(stderr: IO[str]) -> str:
    """The address that a server says it has."""
    for line in stderr:
        if line.startswith("serving "):
            return line.split()[1].removesuffix("/")
    raise AssertionError("the server ended")

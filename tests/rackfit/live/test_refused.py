"""``rackfit check`` and servers, words and keys that cannot be asked: each is one clear error."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.rackfit.live.fake_engine import Engine, serving
from tests.rackfit.live.layouts import Run, document, sglang, vllm


class Odd(Engine):
    """Answers everything with one status and body."""

    def __init__(self, answer: tuple[int, str, str]) -> None:
        super().__init__("")
        self.answer = answer

    def get(self, path: str) -> tuple[int, str, str]:
        return self.answer

    def tokens(self, body: dict[str, object]):  # type: ignore[no-untyped-def]
        yield "no JSON"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, "text/html", "<html>hello</html>"), "is no vLLM or SGLang server"),
        ((404, "text/plain", "no"), "is no vLLM or SGLang server"),
        ((200, "application/json", "[" * 100_000), "is no vLLM or SGLang server"),
        ((200, "application/json", '{"version": "1"}'), "is no vLLM or SGLang server"),
        ((307, "text/plain", "http://127.0.0.1:1/x"), "redirects, which is not followed"),
        ((401, "text/plain", "who?"), "--key-variable"),
        ((500, "text/plain", "broken\x1b[31m"), "/version answers 500: broken"),
        ((200, "text/plain", "x" * (16 * 2**20 + 1)), "answers more than 16 MiB"),
    ],
    ids=["page", "nothing", "deep", "other", "redirect", "key", "error", "large"],
)
def test_a_foreign_server_is_one_clear_error(
    answer: tuple[int, str, str], words: str, run: Run, tmp_path: Path
) -> None:
    result, name, _ = vllm()
    fake = Odd(answer)
    with serving(fake) as url:
        code, out, err = run(document(result, tmp_path), f"{name}={url}")
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert url in err
    assert words in err
    assert "\x1b" not in err


def test_a_router_that_streams_no_json_is_one_clear_error(run: Run, tmp_path: Path) -> None:
    result, _, _ = vllm()
    with serving(Odd((200, "text/plain", ""))) as url:
        code, _, err = run(document(result, tmp_path), f"router={url}")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "sends an event that is no JSON" in err


def test_a_silent_and_a_closed_port_are_clear_errors(run: Run, tmp_path: Path) -> None:
    result, name, _ = vllm()
    path = document(result, tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = run(path, f"{name}={url}", "--timeout", 0.2)
    assert code == 2
    assert err == f"rackfit: {url}: no whole answer to /version in 0.2 s\n"
    code, _, err = run(path, f"{name}={url}")
    assert code == 2
    assert err == f"rackfit: {url}: cannot be asked for /version: connection refused\n"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("ftp://a", "expected a URL"),
        ("http://", "expected a URL"),
        ("http://a:b", "expected a URL"),
        ("http://a:99999", "expected a URL"),
        ("http://user:secret@a", "expected a URL"),
        ("http://a/?q=1", "expected a URL"),
        ("http://ä", "expected a URL"),
        ("http://[::1", "expected a URL"),
        ("http://a\n", "URL"),
        ("none-7=http://a", "names no server of the layout"),
        ("http://a:7", "which server is this?"),
    ],
)
def test_words_that_are_no_server_are_refused(word: str, words: str, run: Run, tmp_path: Path) -> None:  # fmt: skip
    result = sglang()[0]
    code, out, err = run(document(result, tmp_path), word)
    assert (code, out) == (2, "")
    assert words in err


def test_a_url_is_known_by_its_port_and_named_once(run: Run, tmp_path: Path) -> None:
    result, name, line = sglang()
    port = re.search(r"--port (\d+)", line)
    assert port is not None
    words = (f"http://127.0.0.1:{port[1]}", f"{name}=http://127.0.0.1:{port[1]}")
    code, _, err = run(document(result, tmp_path), *words)
    assert code == 2
    assert f"{name} is named twice" in err


def test_the_key_is_sent_and_never_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, name, _ = vllm()
    path = document(result, tmp_path)
    monkeypatch.setenv("SERVERS_KEY", "opensesame")
    heads = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        _, _, err = run(path, f"{name}={url}", "--key-variable", "SERVERS_KEY", "--timeout", 0.2)
        connection, _ = server.accept()
        with connection:
            heads.append(connection.recv(4096).decode())
    assert "Authorization: Bearer opensesame\r\n" in heads[0]
    assert "opensesame" not in err
    code, _, err = run(path, f"{name}={url}", "--key-variable", "NO_SUCH_KEY")
    assert code == 2
    assert "NO_SUCH_KEY" in err


def test_an_engine_that_cannot_be_asked_is_refused(run: Run, tmp_path: Path) -> None:
    result, name, _ = vllm()
    code, _, err = run(document(result, tmp_path), f"{name}=http://a", "--engine", "trtllm")
    assert code == 2
    assert "expected one of vllm, sglang" in err

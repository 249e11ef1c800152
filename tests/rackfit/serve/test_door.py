"""Who may ask, at which addresses, by which methods."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from serving import Client, started


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started()


def test_only_this_machines_own_pages_may_ask(client: Client) -> None:
    assert client.send("GET", "/api/openapi.json", Host="evil.example")[0] == 403
    plain = {"Content-Type": "text/plain"}
    status, told = client.send("POST", "/api/solve", b"{}", **plain)
    assert status == 400
    assert told["error"]["problems"][0]["place"] == "Content-Type"
    assert client.send("POST", "/api/other", b"{}")[0] == 404


def test_a_wrong_method_is_told_the_right_one(client: Client) -> None:
    for method, path, takes in (("GET", "/api/solve", "POST"), ("POST", "/", "GET, HEAD")):
        asked = urllib.request.Request(client.address + path, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        assert (refused.value.code, refused.value.headers["Allow"]) == (405, takes)
        error = json.load(refused.value)["error"]
        assert error["kind"] == "wrong_method"
        assert error["problems"][0]["message"] == f"expected {takes}, got {method}"


def test_what_can_be_read_answers_head(client: Client) -> None:
    for path in ("/", "/api/openapi.json"):
        asked = urllib.request.Request(client.address + path, method="HEAD")
        with urllib.request.urlopen(asked) as answer:
            assert int(answer.headers["Content-Length"]) > 1000
            assert answer.read() == b""


def test_an_address_of_ipv6_is_served() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no IPv6 here")
    for client in started("--address", "::1"):
        assert client.address.startswith("http://[::1]:")
        assert client.send("GET", "/api/openapi.json", Host="evil.example")[0] == 403


def test_a_token_is_asked_for_where_one_is_set() -> None:
    for client in started("--token", "a-token-of-24-characters"):
        assert client.send("GET", "/api/openapi.json")[0] == 200
        client.token = "another-token-of-24-chars"
        status, told = client.send("GET", "/api/openapi.json")
        assert (status, told["error"]["kind"]) == (401, "no_token")

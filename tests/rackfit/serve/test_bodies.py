"""Bodies of requests: values have the kinds that the published schema names, and packed ones are read within the limit."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from serving import Client, started

import rackfit
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.serve.handlers import MOST_BYTES, read_question
from rackfit.serve.openapi import openapi
from topology.errors import InstanceError

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": {"input_tokens": 2000, "output_tokens": 500},
    "slo": {"tpot": "30 ms"},
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started()


#: where a value stands, the value, and what is said of it; nothing of what the schema takes
VALUES: list[tuple[str, Any, str]] = [
    ("within_measured", 1, "expected true or false, got 1"),
    ("within_measured", 0, "expected true or false, got 0"),
    ("within_measured", "yes", "expected true or false, got 'yes'"),
    ("within_measured", True, ""),
    ("two_batch_overlap", 0, "expected true or false, got 0"),
    ("apart", 1, "expected true or false or text, got 1"),
    ("apart", False, ""),
    ("rate", "20", "expected a number, got '20'"),
    ("rate", True, "expected a number, got True"),
    ("rate", 20, ""),
    ("domain_size", "8", "expected a number, got '8'"),
    ("workload.input_tokens", "2000", "expected a number, got '2000'"),
    ("workload.input_tokens", 2000.0, ""),
    ("slo.tpot", "0.03", ""),
    ("slo.tpot", 0.03, ""),
    ("limits", {"max_pipeline_stages": "2"}, "expected a number, got '2'"),
    ("prices", {"chip_price_factor": "1"}, "expected a number, got '1'"),
    ("speculative", {"draft_tokens": 2, "acceptance": ["0.9", 0.8]}, "expected a number, got '0.9'"),
    ("speculative", {"draft_tokens": 2, "acceptance": [0.9, 0.8]}, ""),
    ("choices", {"drafts": ["0", 1]}, "expected a number, got '0'"),
    ("choices", {"overlap": [0, 1]}, "expected true or false, got 0"),
    ("chip", {"hbm_bytes_per_s": "+20%"}, ""),
    ("failed", ["r0g0"], ""),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "said"), VALUES)
def test_values_have_the_kinds_of_the_published_schema(place: str, value: Any, said: str) -> None:
    scenario = copy.deepcopy(SCENARIO)
    *above, last = place.split(".")
    inside = scenario[above[0]] if above else scenario
    inside[last] = value
    schema = {"$ref": "#/components/schemas/Solve", "components": openapi()["components"]}
    valid = jsonschema.Draft202012Validator(schema).is_valid({"scenario": scenario})
    assert valid == (not said)
    if valid:
        read_question("solve", {"scenario": scenario})
        return
    with pytest.raises(InstanceError) as refused:
        read_question("solve", {"scenario": scenario})
    assert said in [
        one.message
        for one in refused.value.problems
        if one.place.startswith(f"request: scenario.{place}")
    ]


def test_every_problem_is_told_at_once_and_each_place_once() -> None:
    wrong = {**SCENARIO, "rate": "20", "slo": {"tpot": -1, "ttft": True}}
    with pytest.raises(InstanceError) as refused:
        read_question("solve", {"scenario": wrong, "gap": 2})
    places = [one.place for one in refused.value.problems]
    assert len(set(places)) == len(places)
    assert {"request: scenario.slo.tpot", "request: scenario.rate", "request: gap"} <= set(places)


def test_scenarios_inside_documents_are_read_alike() -> None:
    instance = resolve_instance(Scenario.model_validate(SCENARIO))
    document = json.loads(rackfit.solve(instance, time_limit_s=20).text())
    read_question("compare", {"document": document, "second": document})
    other = copy.deepcopy(document)
    other["instance"]["scenario"]["within_measured"] = 0
    with pytest.raises(InstanceError) as refused:
        read_question("compare", {"document": document, "second": other})
    (problem,) = refused.value.problems
    assert problem.place == "second: instance.scenario.within_measured"


def _post(client: Client, body: bytes, coding: str) -> tuple[int, dict[str, Any]]:
    return client.send("POST", "/api/evaluate", body, **{"Content-Encoding": coding})


def test_a_packed_request_is_read(client: Client) -> None:
    body = json.dumps({"document": {}}).encode()
    plain = client.send("POST", "/api/evaluate", body)
    for coding in ("gzip", "GZIP"):
        assert _post(client, gzip.compress(body), coding) == plain
    assert _post(client, body, "identity") == plain
    assert "is no JSON" not in plain[1]["error"]["problems"][0]["message"]


def test_a_small_packet_does_not_unpack_without_end(client: Client) -> None:
    packed = gzip.compress(b" " * (2 * MOST_BYTES))
    assert len(packed) < 100_000
    status, told = _post(client, packed, "gzip")
    assert (status, told["error"]["kind"]) == (413, "too_large")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", gzip.compress(b"{}", mtime=0)[:-4], zlib.compress(b"{}")],
    ids=["nothing", "plain", "cut off", "zlib"],
)
def test_what_is_not_packed_as_it_says_is_told(client: Client, body: bytes) -> None:
    status, told = _post(client, body, "gzip")
    assert (status, told["error"]["kind"]) == (400, "bad_input")
    assert "gzip stream" in told["error"]["problems"][0]["message"]


def test_another_coding_is_refused_with_what_is_read(client: Client) -> None:
    for coding in ("deflate", "br", "gzip, gzip"):
        status, told = _post(client, b"{}", coding)
        assert (status, told["error"]["kind"]) == (415, "wrong_coding")
        (problem,) = told["error"]["problems"]
        assert problem["place"] == "Content-Encoding"
        assert problem["message"].startswith("expected gzip or identity (no header), got ")

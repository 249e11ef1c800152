"""An error says which field of the request is wrong, not which option or file the request became."""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Client, started

from rackfit.cli.interrupts import Stop
from rackfit.serve.asked import QUESTIONS, Replay, Size, Solve
from rackfit.serve.offered import Question
from rackfit.serve.places import as_asked
from solver.threads import side_by_side
from topology.catalogue import catalogue_names, checked, resolve
from topology.errors import (
    InstanceError,
    asked_with,
    either,
    kind_of_data,
    on_command_line,
    option,
)

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
HASHES = "t_s,input_tokens,output_tokens,hash_ids\n1,2000,3,1 2 3 4 5 6 7 8 9\n2,3,4,1\n"
#: a word of the command line: an option, or a command with its program
COMMAND_LINE = re.compile(r"--[a-z]|rackfit [a-z]|solve_together|asked-|a path\b")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started("--time-limit", "120")


def _solve(**more: Any) -> dict[str, Any]:
    return {"scenario": SCENARIO, **more}


@pytest.mark.parametrize(
    ("name", "body", "place", "words"),
    [
        ("solve", {"scenario": {**SCENARIO, "rate": 1e6}}, "", "no fleet on these chips serves more"),
        ("solve", _solve(goodput=0.9), "goodput", "needs traffic, or scenario.rate for"),
        ("solve", {"scenario": {**SCENARIO, "rate": 3}, "goodput": 0.9}, "goodput", "give ttft_p99_s or tpot_p99_s"),
        ("solve", {"scenario": {**SCENARIO, "model": "qwen33"}}, "scenario.model", "known: "),
        ("solve", {"scenario": {**SCENARIO, "cluster": "x"}}, "scenario.cluster", "or give a file's name"),
        ("solve", {"scenario": {**SCENARIO, "cluster": "c.json"}, "files": {"c.json": "{}"}}, "scenario.cluster", "whose name ends in .yaml"),
        ("solve", {"scenario": {**SCENARIO, "speculative": {"acceptance": 0.5, "draft": "x"}}}, "scenario.speculative.draft", "known: "),
        ("solve", {"scenario": "x"}, "scenario", "known: "),
        ("solve", _solve(traffic="x", tpot_p99_s=1), "traffic", "known: "),
        ("solve", _solve(traffic="t.csv", tpot_p99_s=1, files={"t.csv": HASHES}), "t.csv:2", "give block_tokens of a YAML file"),
        ("solve", {"scenario": {**SCENARIO, "domain_size": 7}}, "scenario.domain_size", "7 does not divide 8 chips"),
        ("solve", {"scenario": {**SCENARIO, "chip": {"a": 1}}}, "scenario.chip.a", "is no figure of a chip"),
        ("solve", {"scenario": {**SCENARIO, "apart": True}}, "scenario.model", "has no routed experts"),
        ("size", _solve(buy=["hgx-h100"], rate=5, replay=True), "replay", "give scenario.slo.ttft or scenario.slo.tpot"),
        ("size", _solve(buy=["x"], rate=5), "buy", "known: "),
        ("size", _solve(buy=["hgx-h100@2"], rate=5), "buy", "name one unit"),
        ("size", {"scenario": "llama-8b-and-70b-h200", "buy": ["hgx-h100"], "rate": 5}, "llama-8b-and-70b-h200.yaml: models", "only solve takes it"),
        ("evaluate", {"document": {}}, "document", "the whole document that solve answers"),
        ("replay", {"document": {}}, "replay", "give traffic, rate or concurrency"),
        ("replay", {"document": {}, "concurrency": 3, "rate": 3}, "concurrency", "leave out rate"),
        ("running", _solve(engine="vllm", launch="x"), "launch", "holds no vllm serve command"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_the_words_of_the_request(
    client: Client, name: str, body: dict[str, Any], place: str, words: str
) -> None:
    status, document = client.ask(name, **body)
    assert status in (400, 422), document
    (problem,) = document["error"]["problems"]
    assert problem["place"] == place
    assert words in problem["message"]
    assert not COMMAND_LINE.search(problem["message"])


def test_notes_of_an_answer_are_in_the_words_of_the_request(client: Client) -> None:
    scenario = {**SCENARIO, "slo": {"tpot": 0.03}}
    status, ran = client.ask(
        "running", scenario=scenario, engine="vllm", launch="vllm serve x --tensor-parallel-size 2"
    )
    assert status == 200, ran
    assert any(note.startswith("launch:1: ") for note in ran["notes"])
    status, solved = client.ask("solve", scenario=scenario, gap=0.1)
    assert status == 200, solved
    status, files = client.ask("export", document=solved, to="sglang", allow_approximate=True)
    assert status == 200, files
    told = "\n".join([*ran["notes"], *ran["words"], *files["notes"]])
    assert "hosts are called" in told
    # options of the engines stay: --context-length is what a server is started with
    assert not re.search(r"--(into|hosts|engine|model)\b|rackfit [a-z]|asked-", told)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_field_that_an_option_is_called_is_one_of_the_request(name: str) -> None:
    kind = QUESTIONS[name]
    body: dict[str, Any] = {}
    for field, value in {
        "scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 1, "document": {}, "second": {},
        "engine": "vllm", "launch": "x", "to": "vllm",
    }.items():  # fmt: skip
        if field in kind.model_fields:
            body[field] = value
    schema = json.loads(json.dumps(kind.model_json_schema()))
    fields = kind.model_validate(body).fields()
    assert fields
    for field in set(fields.values()):
        if field.startswith("document: "):
            continue  # its schema is that of an answer
        _find(schema, schema, field.split("."))


def _find(schema: dict[str, Any], part: dict[str, Any], path: list[str]) -> None:
    """Fail where a JSON Schema has no such field."""
    if not path:
        return
    kinds = [part, *part.get("anyOf", ()), *part.get("oneOf", ())]
    kinds = [
        schema["$defs"][one["$ref"].rsplit("/", 1)[1]] if "$ref" in one else one for one in kinds
    ]
    inside = [one["properties"][path[0]] for one in kinds if path[0] in one.get("properties", {})]
    assert inside, (path, [one.get("title") for one in kinds])
    _find(schema, inside[0], path[1:])


def test_who_asks_is_asked_in_own_words_and_no_longer() -> None:
    assert (option("rate"), option("hosts", "FILE")) == ("--rate", "--hosts FILE")
    with asked_with({"rate": "scenario.rate"}):
        assert option("rate", "R") == "scenario.rate"
        assert option("traffic") == ""
        assert either(option("traffic"), option("rate")) == "scenario.rate"
        assert on_command_line("rackfit explain says more") == ""
    assert either(option("traffic"), option("rate"), "a file") == "--traffic, --rate or a file"
    assert on_command_line("rackfit explain says more") == "rackfit explain says more"


def test_two_requests_at_once_are_each_asked_in_own_words() -> None:
    """Also by the threads that work for them: of a search, and of what a time limit may end."""
    both, said = threading.Barrier(2, timeout=60), dict[str, list[str]]()

    def ask(own: str) -> None:
        def works(number: int) -> str:
            return f"{option('rate')} {kind_of_data('models')} {on_command_line('a shell')}"

        stop: Stop[list[str]] = Stop("an answer")
        with asked_with({"rate": own, "models": f"{own} model"}):
            both.wait()  # each is inside before the other asks
            told = [works(0)]
            with side_by_side(3, 4) as each:
                told += each(works, range(4))
            stop.run(lambda: [works(0)], told.extend)
            both.wait()
        said[own] = [*told, works(0)]

    threads = [threading.Thread(target=ask, args=(own,)) for own in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {
        own: [f"{own} {own} model "] * 6 + ["--rate models a shell"] for own in ("first", "second")
    }


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Constants in code that are no docstring and not said on a command line alone."""
    left_out = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "on_command_line")
        for part in ([node.value] if isinstance(node, ast.Expr) else ast.walk(node))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in left_out:
            yield node


def test_packages_without_a_command_line_write_none_of_its_options() -> None:
    """What they raise is told over HTTP and in Python, too: ``option`` knows what whoever asks calls one."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for package in ("topology", "costmodel", "solver")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__main__.py"
        for node in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"(^|[\s(])--(?!spine)[a-z]{3}", str(node.value))  # links are called a--spine
    ]
    assert found == []


@pytest.mark.parametrize(
    ("place", "found"),
    [("asked-layout.json: layout", "document: layout"), ("asked-second.json", "second"), ("asked-scenario.json: slo", "scenario: slo")],
)  # fmt: skip
def test_files_that_a_request_became_are_told_as_fields(place: str, found: str) -> None:
    problem = {"place": place, "message": "is missing"}
    line = json.dumps({"error": {"kind": "bad_input", "problems": [problem]}}).encode() + b"\n"
    told = as_asked(line, Solve.model_validate(_solve()))
    assert told.endswith(b"\n")
    (said,) = json.loads(told)["error"]["problems"]
    assert said == {"place": found, "message": "is missing"}


def test_a_document_is_left_alone() -> None:
    """Words of an answer may hold options: commands that start servers do."""
    line = b'{"document": {"words": ["--rate"]}}\n'
    assert as_asked(line, Solve.model_validate(_solve())) == line


def test_names_are_listed_where_the_command_would_list_them() -> None:
    """A request reads no path, and who sends it may have no command line."""
    with pytest.raises(InstanceError, match=r"`rackfit catalogue models` .*; or give a path"):
        resolve("gwen3", "models")
    fields = Solve.model_validate({"scenario": SCENARIO}).fields()
    with pytest.raises(InstanceError) as told, asked_with(fields):
        resolve("gwen3", "models")
    (problem,) = told.value.problems
    assert problem.place == "scenario.model"
    assert "did you mean qwen3" in problem.message
    assert (
        f"known: {', '.join(catalogue_names('models'))}; or give a file's name" in problem.message
    )


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Solve, {"scenario": SCENARIO, "seed": True}),
        (Solve, {"scenario": SCENARIO, "gap": False}),
        (Solve, {"scenario": SCENARIO, "seed": "3"}),
        (Solve, {"scenario": {**SCENARIO, "rate": True}}),
        (Solve, {"scenario": {**SCENARIO, "limits": {"max_pipeline_stages": True}}}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": True}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 1, "spare": True}),
        (Size, {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 1, "replay": 1}),
        (Replay, {"document": {}, "concurrency": True}),
    ],
)  # fmt: skip
def test_a_number_is_a_number_and_a_switch_a_switch(
    kind: type[Question], given: dict[str, Any]
) -> None:
    with pytest.raises(InstanceError) as told, checked("request"):
        kind.model_validate(given)
    (problem,) = told.value.problems
    assert re.search("expected (a number|true or false), got ", problem.message)


def test_numbers_of_all_kinds_pass() -> None:
    asked = Size.model_validate(
        {"scenario": SCENARIO, "buy": ["hgx-h100"], "rate": 2, "spare": "node", "seed": 3.0}
    )
    assert (asked.rate, asked.spare, asked.seed) == (2.0, "node", 3)

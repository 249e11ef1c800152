"""The JSON API as a client sees it that knows nothing but the OpenAPI document."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import Client, started
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.serve.asked import Solve
from rackfit.serve.handlers import MOST_BYTES
from rackfit.serve.worker import answer
from topology.catalogue import data_dir

SCENARIO = {
    "model": "llama-3.1-8b",
    "cluster": "hgx-h100",
    "workload": "chat",
    "slo": {"tpot": 0.03},
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started("--time-limit", "300")


@pytest.fixture(scope="module")
def solved(client: Client) -> dict[str, Any]:
    status, document = client.ask("solve", scenario=SCENARIO, gap=0.05)
    assert status == 200, document
    found: dict[str, Any] = document
    return found


def test_a_layout_found_over_http_is_priced_alike(client: Client, solved: dict[str, Any]) -> None:
    assert solved["certificate"]["gap"] <= 0.05
    status, priced = client.ask("evaluate", document=solved)
    assert status == 200
    assert priced["evaluation"] == solved["evaluation"]
    solved["layout"]["replicas"][0]["stages"][0]["layers"][1] -= 1
    status, broken = client.ask("evaluate", document=solved)
    solved["layout"]["replicas"][0]["stages"][0]["layers"][1] += 1
    assert status == 200
    assert broken["evaluation"]["violations"]


def test_requests_are_replayed(client: Client, solved: dict[str, Any]) -> None:
    status, met = client.ask("replay", document=solved, rate=1.0, duration_s=50.0)
    assert status == 200
    assert met["replay"]["requests"] > 10
    assert 0 < met["ttft_s"]["p50"] <= met["ttft_s"]["p99"]
    asked = {"document": solved, "rate": 1.0, "duration_s": 50.0, "prompt_order": "shortest"}
    assert client.ask("replay", **asked)[0] == 200


def test_an_error_names_a_field_of_the_request(client: Client, solved: dict[str, Any]) -> None:
    status, told = client.ask("replay", document=solved, concurrency=4, duration_s=3.0)
    assert status == 400
    assert told["error"]["problems"][0]["place"] == "duration_s"


def test_whole_units_are_counted(client: Client) -> None:
    status, sized = client.ask("size", scenario=SCENARIO, buy=["hgx-h100"], rate=30.0, gap=0.05)
    assert status == 200
    (kind,) = sized["kinds"]
    assert kind["count"] >= kind["least"] >= 1


def test_what_runs_today_is_priced_with_the_change_in_words(client: Client) -> None:
    launch = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 4 --max-num-seqs 64\n"
    )
    status, told = client.ask("running", scenario=SCENARIO, engine="vllm", launch=launch)
    assert status == 200, told
    cost = told["evaluation"]["usd_per_m_output_tokens"]
    best = told["instead"]["evaluation"]["usd_per_m_output_tokens"]
    assert told["instead"]["excess"] == pytest.approx(cost / best - 1)
    assert told["words"][0].startswith(f"you pay {cost / best - 1:.1%} more than needed")
    assert told["words"][-1].startswith("the best layout altogether (")


def test_two_answers_are_compared_in_words(client: Client, solved: dict[str, Any]) -> None:
    fewer = json.loads(json.dumps(solved))
    fewer["layout"]["replicas"].pop()
    status, told = client.ask("compare", document=solved, second=fewer)
    assert status == 200
    assert sum(told["replicas"].values()) == -1
    assert any(line.startswith("-1 x ") for line in told["words"])


def test_a_second_layout_that_cannot_be_priced_is_bad_input(
    client: Client, solved: dict[str, Any]
) -> None:
    dead = json.loads(json.dumps(solved))
    dead["instance"]["scenario"]["failed"] = ["r0g0"]
    status, told = client.ask("compare", document=solved, second=dead)
    assert (status, told["error"]["kind"]) == (400, "bad_input")
    assert told["error"]["problems"][0]["message"] == "chips_usable: chip r0g0 is failed or taken"


def test_why_a_target_has_no_files(client: Client, solved: dict[str, Any]) -> None:
    two = json.loads(json.dumps(solved))
    replica = next(one for one in two["layout"]["replicas"] if one["shape"]["tp"] == 2)
    (stage,) = replica["stages"]
    replica["shape"].update(tp=1, pp=2)
    replica["stages"] = [
        {**stage, "chips": [chip], "layers": layers}
        for chip, layers in zip(stage["chips"], ([0, 15], [16, 31]), strict=True)
    ]
    status, told = client.ask("export", document=two, to="vllm")
    assert (status, told["error"]["kind"]) == (422, "cannot_export")
    assert "2 stages in a" in json.dumps(told)


def test_who_leaves_leaves_no_trace(client: Client) -> None:
    """As a slider that moves on does; that the server says nothing of it is seen when it ends."""
    body = json.dumps({"scenario": SCENARIO | {"cluster": "gb200-nvl72"}, "gap": 0.0}).encode()
    asked = urllib.request.Request(
        client.address + "/api/solve", body,
        {"Content-Type": "application/json", "Accept": "application/x-ndjson"},
    )  # fmt: skip
    with urllib.request.urlopen(asked) as answer:
        assert "progress" in json.loads(answer.readline())
    status, _ = client.ask("solve", scenario=SCENARIO, gap=0.05)
    assert status == 200


def test_a_search_tells_how_it_goes(client: Client, solved: dict[str, Any]) -> None:
    body = json.dumps({"scenario": SCENARIO, "gap": 0.05}).encode()
    asked = urllib.request.Request(
        client.address + "/api/solve", body,
        {"Content-Type": "application/json", "Accept": "application/x-ndjson"},
    )  # fmt: skip
    with urllib.request.urlopen(asked) as answer:
        *said, last = [json.loads(line) for line in answer]
    assert last["document"]["evaluation"] == solved["evaluation"]
    # the answer and its proof come before what stands beside it
    (proven,) = [one["answer"] for one in said if "answer" in one]
    assert proven["certificate"] == last["document"]["certificate"]
    assert proven["layout"] == last["document"]["layout"]
    assert proven["runner_up"] is None
    assert last["document"]["runner_up"] is not None
    # the same process has answered the question before
    assert said[0]["sight"]["layout"] == solved["layout"]
    states = [one for one in said if "progress" in one]
    bounds = [one["progress"]["bound"] for one in states]
    assert None in bounds[:1]
    assert bounds[1] > 0
    assert states[-1]["progress"]["gap"] <= 0.05
    assert states[-1]["progress"]["bound"] <= states[-1]["progress"]["incumbent"]


def test_nothing_fits_is_a_document(client: Client) -> None:
    status, told = client.ask("solve", scenario={**SCENARIO, "slo": {"tpot": 1e-5}})
    assert (status, told["error"]["kind"]) == (422, "infeasible")
    assert "the least reachable" in told["error"]["problems"][0]["message"]


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        ({"scenario": {**SCENARIO, "slo": {"tpot": -1}}}, "request: scenario.slo.tpot", "must be positive, got -1"),
        ({"scenario": {**SCENARIO, "rate": 0}}, "request: scenario.rate", "must be above 0, got 0"),
        ({"scenario": SCENARIO, "gap": 2}, "request: gap", "must be below 1, got 2"),
        ({"scenario": SCENARIO, "gpa": 0.1}, "request: gpa", "unknown key"),
        ({}, "request: scenario", "is missing"),
        ({"scenario": {**SCENARIO, "model": "/etc/passwd"}}, "request", "scenario.model: '/etc/passwd' is not offered"),
        ({"scenario": {**SCENARIO, "cluster": "../a.yaml"}}, "request", "scenario.cluster: '../a.yaml' is not offered"),
        ({"scenario": {**SCENARIO, "cluster": "mine.yaml@2"}}, "request", "is not offered"),
        ({"scenario": "../../x"}, "request: scenario", "must be a name of letters"),
        ({"scenario": SCENARIO, "traffic": "/etc/passwd"}, "request: traffic", "must be a name of letters"),
        ({"scenario": SCENARIO, "files": {"../a.yaml": "x"}}, "request: files", "must be called NAME.json"),
    ],
)  # fmt: skip
def test_bad_input_names_place_value_and_what_is_accepted(
    client: Client, body: dict[str, Any], place: str, words: str
) -> None:
    status, told = client.ask("solve", valid=False, **body)
    assert (status, told["error"]["kind"]) == (400, "bad_input")
    (problem, *_) = told["error"]["problems"]
    assert problem["place"].startswith(place)
    assert words in problem["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"gap": NaN}', "is not a number of JSON"),
        (b'{"gap": 1, "gap": 2}', "is given twice"),
        (b"\xff", "not UTF-8"),
        (b"", "not JSON"),
        (b"[]", "expected keys with values"),
    ],
)
def test_bodies_are_read_as_files_are(client: Client, body: bytes, words: str) -> None:
    status, told = client.send("POST", "/api/solve", body)
    assert (status, told["error"]["kind"]) == (400, "bad_input")
    assert words in told["error"]["problems"][0]["message"]


def test_too_long_a_request_is_told_so(client: Client) -> None:
    for size in (MOST_BYTES + 1, 5 * MOST_BYTES):
        status, told = client.send("POST", "/api/solve", b" " * size)
        assert (status, told["error"]["kind"]) == (413, "too_large")
        (problem,) = told["error"]["problems"]
        assert f"has {size:,} bytes; at most {MOST_BYTES:,} are read" in problem["message"]


def test_hostile_files_are_refused_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested too deeply, growing by aliases, not what they should be, with a script in a name, with code to run."""
    monkeypatch.chdir(tmp_path)
    aliases = "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(9 * ['*' + chr(97 + n)])}]" for n in range(9)
    )
    files = {
        "rack.yaml": "[" * 5000, "alias.yaml": "a: &a [x, x]\n" + aliases, "binary.yaml": "\x00\x01",
        "script.yaml": yaml.safe_dump({"name": "<script>alert(1)</script>", "domains": []}),
        "code.yaml": "domains: !!python/object/apply:os.system ['touch ran']",
    }  # fmt: skip
    for name, content in files.items():
        scenario = {**SCENARIO, "cluster": name}
        asked = Solve.model_validate({"scenario": scenario, "files": {name: content}})
        for file, text in asked.written().items():
            Path(file).write_text(text)
        error = json.loads(answer([asked.command, *asked.words(60.0)]))["error"]
        assert error["kind"] == "bad_input", name
        assert all(one["place"].startswith(name) for one in error["problems"]), error
    assert not Path("ran").exists()


def test_hostile_names_of_files_are_refused_with_one_message(client: Client) -> None:
    names = [
        "<script>.yaml", "a/../b.yaml", "..yaml", "a\x00.yaml", "a" * 200 + ".yaml", ".hidden.yaml", "a.py",
    ]  # fmt: skip
    for files in ({name: "x"} for name in names):
        status, told = client.ask("solve", valid=False, scenario=SCENARIO, files=files)
        assert (status, told["error"]["kind"]) == (400, "bad_input"), files
        assert len(told["error"]["problems"]) == 1
    many = {f"f{n}.yaml": "x" for n in range(21)}
    status, told = client.ask("solve", valid=False, scenario=SCENARIO, files=many)
    assert (status, len(told["error"]["problems"])) == (400, 1)


def test_a_file_counts_by_its_content(client: Client) -> None:
    spec = yaml.safe_load((data_dir("clusters") / "hgx-h100.yaml").read_text())
    spec["failed"] = ["r0g7"]
    asked = {**SCENARIO, "cluster": "mine.yaml"}
    status, told = client.ask(
        "solve", scenario=asked, files={"mine.yaml": yaml.safe_dump(spec)}, gap=0.5
    )
    assert status == 200, told
    assert told["evaluation"]["chips_used"] == 7


def test_the_document_is_that_of_the_command_line(solved: dict[str, Any], tmp_path: Path) -> None:
    """But for the machine and the clock."""
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SCENARIO))
    done = CliRunner().invoke(
        build_app(), ["solve", str(tmp_path / "s.yaml"), "--gap", "0.05", "--json"]
    )
    told = json.loads(done.stdout)
    assert {key: told[key] for key in told if key != "solve"} == {
        key: solved[key] for key in solved if key != "solve"
    }  # fmt: skip


@pytest.mark.slow
def test_ten_users_at_once_are_all_answered(client: Client) -> None:
    good = {"scenario": SCENARIO, "gap": 0.05}
    bad = {"scenario": {**SCENARIO, "model": "no-such-model"}}
    with ThreadPoolExecutor(10) as pool:
        asked = [
            pool.submit(client.ask, "solve", **(bad if n % 5 == 4 else good)) for n in range(10)
        ]
    codes = [one.result()[0] for one in asked]
    assert codes == [200, 200, 200, 200, 400] * 2

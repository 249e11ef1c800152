"""Traces, descriptions of traffic and load tests that are hostile, huge or odd are one message; nothing is drawn first."""

from __future__ import annotations

import gzip
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_cli import asked

from costmodel.measured.load.runs import read_load_runs
from costmodel.measured.load.scores import validate_load
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic import table, trace
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.requests import MOST_DRAWN, drawn_count
from costmodel.question.traffic.trace import read_trace
from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError

HEAD = "t_s,input_tokens,output_tokens\n"
RUN: dict[str, Any] = {
    "id": "a", "hf_model_id": "Qwen/Qwen3-30B-A3B", "chip": "h100", "gpus": 8, "tp": 8, "engine": "vllm", "loop": "open",
    "profile": {"question_tokens": 200, "output_tokens": 20}, "requested_rate": 2.0, "duration_s": 3.0,
}  # fmt: skip
CLOSED = {"loop": "closed", "concurrency": 2, "server_args": {"prefix_caching": False}}
LENGTHS = {"input": {"fixed": 9}, "output": {"fixed": 9}}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout of one server."""
    scenario = Scenario(model="qwen3-30b-a3b", cluster="hgx-h100", workload="chat")
    instance = resolve_instance(scenario)
    built = build_layout(instance, [FoundServer("x", "mixed", 1, 8, 1, batch=64)]).layout
    path = tmp_path_factory.mktemp("layout") / "layout.json"
    document = {
        "schema_version": SCHEMA_VERSION, "instance": instance.describe(), "layout": layout_dict(built),
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rate 1e8 --duration 1e8", "--duration: 10,000,000,000,000,000 requests; at most 1,000,000"),
        ("--concurrency 10000000", "--concurrency: 10,000,000 in flight need 100,000,000 requests; at most 100,000"),
        ("--rate 1e-300", "--rate: expected 0.000001 to below 1,000,000,000 requests per second, got 1e-300"),
        ("--rate 9 --cv 1e-300", "--cv: expected a number from 0.01 to 100, got 1e-300"),
        ("--traffic t.csv --block-tokens 0", "--block-tokens: expected 1 to "),
        ("--traffic t.csv --block-tokens -1", "--block-tokens: expected 1 to "),
        ("--rate 1 --block-tokens 16", "--block-tokens: is for --traffic"),
    ],
)  # fmt: skip
def test_options_that_shape_work_are_checked_before_it(
    words: str, message: str, layout: Path
) -> None:
    code, said = asked("replay", layout, *words.split())
    assert code == 2
    assert message in said


def test_no_more_is_drawn_than_percentiles_need() -> None:
    assert drawn_count(0.2, "x") == 1
    assert drawn_count(MOST_DRAWN, "x") == MOST_DRAWN
    for count in (MOST_DRAWN + 1, 1e300, float("inf"), float("nan")):
        with pytest.raises(InstanceError, match="at most 1,000,000 are drawn"):
            drawn_count(count, "x")


@pytest.mark.parametrize(
    "name", ["pipe.csv", "zero.csv", "folder.csv", "no.csv", "x" * 300 + ".csv", "a\0.csv"]
)
def test_a_trace_is_an_ordinary_file(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "folder.csv").mkdir()
    for read in (
        lambda: read_trace(tmp_path / name),
        lambda: load_traffic(str(tmp_path / name)),
        lambda: load_traffic(f"{tmp_path / name}.yaml"),
        lambda: read_trace(_trace(tmp_path, "0,1,1\n"), components=tmp_path / name),
    ):
        with pytest.raises(InstanceError):
            read()


def _trace(folder: Path, rows: str, head: str = HEAD) -> Path:
    (folder / "t.csv").write_text(head + rows)
    return folder / "t.csv"


def test_one_endless_line_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"1" * 300_000_000, compresslevel=1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InstanceError, match=r"bomb.csv.gz:2: a line of more than 1,048,576"):
        read_trace(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_blank_lines_and_ids_of_blocks_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_LINES", 1000)
    with pytest.raises(InstanceError, match=r"more than .* or 1,000 lines"):
        read_trace(_trace(tmp_path, "0,1,1\n" + "\n" * 2000))
    monkeypatch.setattr(trace, "_MOST_IDS", 50)
    head = HEAD.replace("\n", ",hash_ids\n")
    with pytest.raises(InstanceError, match=r"t.csv:12: more than 50 hash_ids"):
        read_trace(_trace(tmp_path, "0,2560,1,1 2 3 4 5\n" * 40, head))


def test_a_column_or_a_block_is_there_once(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=r"t.csv:1: the column t_s is there twice"):
        read_trace(_trace(tmp_path, "0,1,1,2\n", HEAD.replace("\n", ",t_s\n")))
    (tmp_path / "c.csv").write_text("hash_id,tokens\n1,5\n2,5\n1,6\n")
    with pytest.raises(InstanceError, match=r"c.csv:4: hash_id 1 is there twice"):
        read_trace(_trace(tmp_path, "0,1,1\n"), components=tmp_path / "c.csv")
    (tmp_path / "c.csv").write_text("hash_id,tokens\n1\n")
    with pytest.raises(InstanceError, match=r"c.csv:2: 1 cells under 2 columns"):
        read_trace(_trace(tmp_path, "0,1,1\n"), components=tmp_path / "c.csv")


@pytest.mark.parametrize(
    "described",
    [
        {"arrivals": {"rate": 1e-300}, "lengths": LENGTHS},
        {"arrivals": {"rate": 1, "process": "gamma", "cv": 1e-200}, "lengths": LENGTHS},
        {"arrivals": {"rate": 1}, "lengths": {**LENGTHS, "input": {"mean": 1e-300, "std": 1e6}}},
        {"arrivals": {"rate": 1}, "lengths": {**LENGTHS, "input": {"p50": 1e-300, "p99": 5}}},
    ],
)
def test_described_traffic_has_a_measure(described: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(described))
    with pytest.raises(InstanceError, match="must be at least"):
        load_traffic(str(tmp_path / "t.yaml"))


def test_traffic_in_which_nothing_comes_is_refused(tmp_path: Path) -> None:
    described = {"arrivals": {"rate": 0.01, "process": "constant"}, "lengths": LENGTHS}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(described))
    with pytest.raises(InstanceError, match="--duration: no request comes within 5 s"):
        load_traffic(str(tmp_path / "t.yaml"), duration_s=5)
    with pytest.raises(InstanceError, match="at most 1,000,000 are drawn"):
        load_traffic(str(tmp_path / "t.yaml"), duration_s=1e9, rate=1e8)


def test_requests_of_one_moment_are_replayed(layout: Path, tmp_path: Path) -> None:
    path = _trace(tmp_path, "0,9,9\n1e-300,9,9\n2e-300,9,9\n")
    code, said = asked("replay", layout, "--traffic", path, "--json")
    assert code == 0
    assert "NaN" not in said


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"throughput": {"output_tokens_per_s": float("1e999")}}, "finite number"),
        ({"requests": {"t_s": [], "input_tokens": [], "output_tokens": []}}, "requests.t_s"),
        ({"requests": {"t_s": [1, 0], "input_tokens": [1, 1], "output_tokens": [1, 1]}}, "sort the requests"),
        ({"requests": {"t_s": [1], "input_tokens": [1, 1], "output_tokens": [1]}}, "1, 2 and 1 requests"),
        ({"duration_s": 1e-300}, "duration_s"),
        ({"profile": {"question_tokens": 0, "output_tokens": 1}}, "question_tokens"),
        ({"prompt_len": {"mean": 1e-300}}, "prompt_len.mean"),
    ],
)  # fmt: skip
def test_load_tests_without_a_measure_are_refused(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": [RUN | changed]}).replace("Infinity", "1e999"))
    with pytest.raises(InstanceError, match=message):
        read_load_runs(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"requested_rate": 1e8, "duration_s": 1e7}, "at most 1,000,000 are drawn"),
        ({"stage": -1, "stage_rates": [1e8] * 100}, "at most 1,000,000 are drawn"),
        ({**CLOSED, "concurrency": 10**6, "prompt_len": {"mean": 9}, "output_len": {"mean": 9}},
         "at most 1,000,000 are drawn"),
        ({"parallelism": {"attention_dp": 10**30}}, "ranks do not divide 8 chips"),
        ({"chip": "../../../etc/passwd"}, "not in the catalogue"),
        ({"tp": 10**6, "dp": 10**6}, "8 usable chips"),
    ],
)  # fmt: skip
def test_load_tests_that_cannot_be_replayed_say_why(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": [RUN | changed]}))
    found = validate_load(read_load_runs(path), "calibrated")
    ((_, reason),) = found.unsupported
    assert message in reason

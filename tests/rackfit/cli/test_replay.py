"""``rackfit replay``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from rackfit import solve
from rackfit.cli.app import build_app


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "layout.json"
    scenario = Scenario(
        model="llama-3.1-70b", cluster="hgx-h100", workload="chat", slo=Slo(ttft=2.0, tpot=0.05)
    )
    solve(scenario).write(path)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["replay", *map(str, words)])


def test_a_replay_as_a_document(layout: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "met.csv", tmp_path / "met.html"
    found = run(layout, "--rate", 1, "--duration", 200, "--json", "--out", out, "--report", page)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert list(document[name]) == ["mean", "p50", "p90", "p95", "p99"]
        assert document[name]["p50"] <= document[name]["p99"]
    assert document["requests"] == 200
    assert document["stable"] is True
    assert 0 <= document["goodput"] <= 1
    assert document["kv_fill"].keys() == {"mean", "p99"}
    with out.open() as file:
        rows = list(csv.DictReader(file))
    mean = sum(float(row["ttft_s"]) for row in rows) / len(rows)
    assert mean == pytest.approx(document["ttft_s"]["mean"], rel=1e-4)
    assert page.read_text().count('<figure class="live">') >= 3
    basis = "times measured: profile calibrated; money published: "
    assert f"Basis: {basis}" in page.read_text()
    assert f"basis: {basis}" in run(layout, "--rate", 1, "--duration", 200).stdout


def test_more_load_waits_longer_and_too_much_is_said(layout: Path) -> None:
    calm, full = (
        json.loads(run(layout, "--rate", rate, "--duration", 300, "--json").stdout)
        for rate in (1, 60)
    )
    assert calm["ttft_s"]["p99"] < full["ttft_s"]["p99"]
    assert not full["stable"]
    assert "overloaded" in run(layout, "--rate", 60, "--duration", 300).stdout


def test_the_shortest_prompt_may_be_next(layout: Path) -> None:
    """Of unlike prompts at a high load fewer wait long, and the longest do."""
    words = ("--traffic", "azure-conversation-2023", "--rate", 14, "--duration", 200, "--json")
    plain, first, shortest = (
        json.loads(run(layout, *words, *order).stdout)["ttft_s"]
        for order in ((), ("--prompt-order", "first-come"), ("--prompt-order", "shortest"))
    )
    assert plain == first
    assert shortest["mean"] < 0.9 * first["mean"]


def test_requests_that_come_for_less_than_they_take_are_said(layout: Path) -> None:
    """Of a closed loop the time counts in which they begin."""
    for words, short in (
        (("--rate", 3, "--duration", 5), True),
        (("--rate", 1, "--duration", 200), False),
        (("--concurrency", 4), False),
    ):
        assert ("the fleet may never fill" in run(layout, *words).stdout) is short


def test_traffic_and_a_closed_loop(layout: Path) -> None:
    bursts = run(layout, "--traffic", "azure-code-2023", "--rate", 2, "--duration", 60)
    assert bursts.exit_code == 0, bursts.output
    assert "wait for a pass" in bursts.stdout
    loop = json.loads(run(layout, "--concurrency", 8, "--json").stdout)
    in_flight = loop["requests"] * loop["e2e_s"]["mean"] / loop["duration_s"]
    assert in_flight == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --traffic, --rate or --concurrency"),
        (
            ("--rate", 0),
            "--rate: expected 0.000001 to below 1,000,000,000 requests per second, got 0",
        ),
        (("--rate", 1e12), "to below 1,000,000,000 requests per second, got 1e+12"),
        (("--rate", 1, "--concurrency", 2), "leave out --rate"),
        (("--rate", 1, "--cv", -1), "--cv: expected a number from 0.01"),
        (("--concurrency", 0), "--concurrency: expected 1 to"),
        (("--traffic", "nonesuch"), "unknown name 'nonesuch'"),
        (("--rate", 1, "--duration", -3), "--duration: expected seconds above 0 and below 1e9"),
        (("--rate", 1, "--out", "/nonesuch/x.csv"), "does not exist"),
    ],
)
def test_bad_options_are_refused(layout: Path, words: tuple[object, ...], message: str) -> None:
    from topology.errors import InstanceError

    found = run(layout, *words)
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


def test_a_request_longer_than_the_model_supports_is_refused(layout: Path, tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    trace.write_text("t_s,input_tokens,output_tokens\n0,1000,10\n1,131000,300\n")
    found = run(layout, "--traffic", trace)
    said = "traffic: the longest request has 131300 tokens with its answer, more than the 131072 positions"
    assert said in str(found.exception)

"""``rackfit solve --traffic``: percentiles asked and answered, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rackfit.cli.app import build_app
from rackfit.documents.schema import FOLDER
from topology.errors import InstanceError

WORDS = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100")


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["solve", *WORDS, *map(str, words)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten seconds of short chats."""
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.exponential(1 / 50, 500))
    rows = [
        f"{t:.4f},{n},{m}"
        for t, n, m in zip(
            times, rng.integers(50, 2000, 500), rng.integers(2, 300, 500), strict=True
        )
    ]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["t_s,input_tokens,output_tokens", *rows]) + "\n")
    return path


def test_the_answer_says_what_replays_met(trace: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "answer.json", tmp_path / "page.html"
    targets = ("--ttft-p99", "1s", "--tpot-p99", "30ms", "--goodput", 0.99)
    found = run("--traffic", trace, *targets, "--gap", 0.1, "--out", out, "--report", page)
    assert found.exit_code == 0, found.output
    assert "all met TTFT P99 1 s, TPOT P99 30 ms" in found.output
    assert "all met TTFT P99 1 s, TPOT P99 30 ms" in page.read_text()
    document = json.loads(out.read_text())
    jsonschema.validate(document, json.loads((FOLDER / "result.schema.json").read_text()))
    assert document["replay"]["ttft_s"]["p99"] <= 1.0
    assert document["replay"]["tpot_s"]["p99"] <= 0.03
    assert document["replay"]["goodput"] >= 0.99
    assert document["traffic"]["ttft_p99_s"] == 1.0
    assert document["traffic"]["runs"] > 1
    assert document["instance"]["scenario"]["workload"]["spread"]["steps"] > 0
    again = CliRunner().invoke(build_app(), ["evaluate", str(out), "--json"])
    assert json.loads(again.stdout)["evaluation"] == document["evaluation"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ttft-p99", "1s", "--peak", 2), "--ttft-p99: needs --traffic, or --rate for"),
        (("--rate", "5", "--spare", "node"), "--spare: has no target"),
        (("--rate", "5", "--ttft-p99", "1s", "--prefixes", "hbm"), "--prefixes: needs --traffic"),
        (("--traffic", "chat-poisson"), "has no target"),
        (
            ("--traffic", "chat-poisson", "--tpot-p99", "30ms", "--goodput", 1),
            "--goodput: expected",
        ),
        (("--traffic", "chat-poisson", "--tpot-p99", "30ms", "--peak", 0), "--peak: expected 1 to"),
        (("--traffic", "chat-poisson", "--tpot-p99", "30ms", "--spare", "x"), "--spare: expected"),
        (("--ttft-p99", "1s", "--prefixes", "any"), "--prefixes: needs --traffic"),
        (
            ("--traffic", "chat-poisson", "--tpot-p99", "30ms", "--prefixes", "hbm"),
            "--prefixes: the traffic has no hash_ids",
        ),
        (("--traffic", "nowhere", "--tpot-p99", "30ms"), "unknown name"),
        (("--traffic", "chat-poisson", "--tpot-p99", "fast"), "--ttft-p99, --tpot-p99"),
    ],
)
def test_bad_options_are_refused(words: tuple[object, ...], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)

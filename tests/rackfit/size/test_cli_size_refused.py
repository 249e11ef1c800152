"""``rackfit size``: what it refuses, and how it says so."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from tests.rackfit.size.test_cli_size import run
from topology.errors import InstanceError


def test_everything_wrong_is_said_at_once() -> None:
    words = (
        "size --model nobody --workload nothing --rate 0 --peak 0 --spare row --gap 2 "
        "--time-limit -1 --buy nowhere,hgx-h100@2"
    )
    found = CliRunner().invoke(build_app(), words.split())
    assert isinstance(found.exception, InstanceError)
    places = sorted(problem.place for problem in found.exception.problems)
    options = ["--buy", "--gap", "--peak", "--rate", "--spare"]
    assert places == [*options, "clusters", "models", "time limit", "workloads"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--traffic", "azure-conversation-2023"), "--traffic: has no target: give --ttft-p99"),
        (("--rate", "5", "--goodput", "0.9"), "--goodput: has no target"),
    ],
)
def test_traffic_needs_a_target_and_its_options_traffic(
    words: tuple[str, ...], message: str
) -> None:
    found = CliRunner().invoke(
        build_app(), ["size", "--model", "llama-3.1-8b", "--buy", "hgx-h100", *words]
    )
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", 1), "--buy: is missing"),
        (("--buy", "hgx-h100"), "--rate: is missing"),
        (("--buy", "hgx-h100", "--rate", 0), "--rate: is missing or 0: give the requests"),
        (
            ("--rate", "1e-300", "--buy", "hgx-h100"),
            "expected 0.000001 to below 1,000,000,000 requests per second, got 1e-300",
        ),
        (("--rate", 1, "--buy", "hgx-h100", "--time-limit", "nan"), "positive seconds, got nan"),
        (("--rate", 1, "--buy", "hgx-h100", "--time-limit", -1), "positive seconds, got -1"),
        (("--rate", 1, "--buy", "hgx-h100@2"), "name one unit, without a count"),
        (("--rate", 1, "--buy", "hgx-h100", "--peak", 0.5), "--peak: expected 1 to 1000"),
        (("--rate", 1, "--buy", "hgx-h100", "--spare", "row"), "--spare: expected node, rack"),
    ],
)
def test_bad_options_are_refused(words: tuple[object, ...], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


def test_a_replay_asks_for_a_target() -> None:
    words = ["size", "--model", "llama-3.1-8b", "--rate", "1", "--buy", "hgx-h100", "--replay"]
    found = CliRunner().invoke(build_app(), words)
    assert isinstance(found.exception, InstanceError)
    assert "give --ttft or --tpot" in str(found.exception)

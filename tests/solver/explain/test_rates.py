"""What is said where a rate is not served: a figure that is true, and no guess at how many chips would do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.cli.app import build_app
from solver.clock import Clock
from solver.explain.explain import rate_words
from solver.search import search
from topology.errors import NoFeasibleLayout

SHORT = Workload(input_tokens=1000, output_tokens=200)


def why(**question: Any) -> str:
    instance = resolve_instance(Scenario(**({"workload": SHORT} | question)))
    with pytest.raises(NoFeasibleLayout) as failure:
        search(instance, clock=Clock(60))
    return str(failure.value)


def test_no_number_of_chips_is_guessed_from_a_rate_bound() -> None:
    text = why(model="llama-3.1-8b", cluster="hgx-h100", rate=50_000)
    assert "no fleet on these chips serves more than" in text
    assert "such chips" not in text
    assert "rackfit explain" in text


def test_a_rate_below_what_parts_of_replicas_serve_is_not_said_to_be_above_it() -> None:
    """A bound by parts of replicas may lie above the rate that whole ones miss."""
    assert "serves more than 5.048" not in rate_words(5.0, 5.048)
    assert "no set of whole replicas" in rate_words(5.0, 5.048)
    assert "serves more than 4.9" in rate_words(5.0, 4.9)


def test_a_rate_is_not_blamed_where_no_request_can_be_served() -> None:
    """A target that no replica meets: the rate is not what is in the way."""
    text = why(model="llama-3.1-8b", cluster="hgx-h100", rate=1.0, slo={"ttft": 1e-4})
    assert "Rate" not in text
    assert "TTFT: the target is 0.1 ms" in text


def test_figures_of_a_reason_are_no_powers_of_ten() -> None:
    text = why(model="llama-3.1-8b", cluster="hgx-h100", slo={"tpot": 1e-6})
    assert re.search(r" [1-9],\d{3} times the target", text)
    assert "e+" not in text
    least, times = re.findall(r"([\d,.]+) ms is the least reachable.*?([\d,]+) times", text)[0]
    assert float(times.replace(",", "")) >= float(least) / 1e-3 * 0.99
    assert "Rate: 1,000,000 requests/s are asked for" in rate_words(1e6, 23456.7)
    assert "serves more than 23,457." in rate_words(1e6, 23456.7)


def test_pay_whole_with_a_rate_is_not_ignored_in_silence() -> None:
    options = ["--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--rate", "5"]
    lengths = ["--input-tokens", "1000", "--output-tokens", "200"]
    said = CliRunner().invoke(build_app(), ["solve", *options, *lengths, "--pay", "whole"])
    assert "--pay whole has no effect with a rate" in said.stderr
    said = CliRunner().invoke(build_app(), ["solve", *options, *lengths])
    assert "--pay" not in said.stderr


def test_hbm_that_would_hold_the_weights_does() -> None:
    """Rounded to the nearest it named 88 GB for chips of 88.5 GB, which then did not fit."""
    asked = {"model": "deepseek-v3", "cluster": "hgx-h100", "workload": SHORT}
    said = re.search(r"or chips with ([\d.,]+) GB each", why(**asked))
    assert said is not None
    assert "HBM:" not in why(**asked, chip={"hbm_bytes": f"{said[1]} GB"})


def test_chips_that_an_engine_fills_are_not_counted() -> None:
    """They held less than nothing, so that -3 of them were said to do."""
    text = why(model="llama-3.1-8b", cluster="hgx-h100", chip={"hbm_bytes": "2 GB"})
    assert "such chips" not in text
    assert re.search(r"What would fit: chips with [\d.]+ GB each", text)

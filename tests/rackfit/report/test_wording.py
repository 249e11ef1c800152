"""Money has digits that fit its size, and a share that is nothing has no sign, wherever it is said."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rackfit.figures.chart import Chart, Series, short
from rackfit.figures.live import figure
from rackfit.importers.running import verdict
from rackfit.measurements.decision import Decision
from rackfit.measurements.probe import Probed
from rackfit.wording import amount, at_least, by_how_much, rate, some
from topology.quantity import per_cent

#: a cost per million tokens, as it is said, and the bound of so much
SAID = {
    0.2483219: ("0.2483", "0.2483"),
    10.67871: ("10.6787", "10.6787"),
    99.99994: ("99.9999", "99.9999"),
    100.0: ("100.00", "100.00"),
    12_345.6789: ("12,345.68", "12,345.67"),
    4.21e6: ("4,210,000.00", "4,210,000.00"),
    0.0012345: ("0.0012", "0.0012"),
    0.000123456: ("0.0001235", "0.0001234"),
    1.23456e-9: ("0.000000001235", "0.000000001234"),
    0.0: ("0.0000", "0.0000"),
}


@pytest.mark.parametrize("usd", list(SAID))
def test_money_has_digits_of_its_size(usd: float) -> None:
    said, bound = SAID[usd]
    assert amount(usd) == said
    assert at_least(usd) == bound
    assert float(at_least(usd).replace(",", "")) <= usd


@pytest.mark.skipif(which("node") is None, reason="no node to run the page's script")
def test_the_page_says_money_as_commands_do() -> None:
    source = (Path(__file__).parents[3] / "rackfit/serve/explore.js").read_text(encoding="utf-8")
    own = "\n".join(re.findall(r"^const (?:places|money|bound).*$", source, re.M))
    usd = list(SAID)
    script = f"{own}\nconsole.log(JSON.stringify({json.dumps(usd)}.map(x => [cost(x), bound(x)])))"
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    for one, (cost, bound) in zip(usd, json.loads(done.stdout), strict=True):
        assert cost == f"${amount(one)}"
        assert float(bound.strip("$").replace(",", "")) <= one
        assert one < 1e-3 or bound == f"${at_least(one)}"


@pytest.mark.parametrize(
    ("per_s", "decimals", "said"),
    [(2472.4, 0, "2,472"), (12.4, 0, "12"), (1.8649, 0, "1.86"), (0.0, 0, "0"), (0.123, 1, "0.123"),
     (178.04, 1, "178.0"), (0.04151, 2, "0.0415"), (24.531, 2, "24.53")],
)  # fmt: skip
def test_a_small_rate_keeps_its_digits(per_s: float, decimals: int, said: str) -> None:
    """A layout that serves two tokens a second said that each chip serves none."""
    assert rate(per_s, decimals) == said


def test_nothing_has_no_sign() -> None:
    assert per_cent(-1e-9) == per_cent(-1e-9, signed=True) == "0.0%"
    assert per_cent(1e-9, 0, signed=True) == "0%"
    assert per_cent(0.031, signed=True) == "+3.1%"
    assert per_cent(-0.031) == "-3.1%"
    assert by_how_much(-1e-6) == by_how_much(1e-6) == "as much"
    assert by_how_much(0.02, 2) == "2.00% more"
    assert by_how_much(-0.02) == "2.0% less"
    assert some(-1e-17) == some(1e-17) == "nothing"
    assert some(1e-5) == "under 0.1%"
    assert some(1e-5, 2) == "under 0.01%"
    assert some(0.125) == "12.5%"


def test_a_run_that_tells_nothing_saves_nothing() -> None:
    row = {
        "chips": 8, "concurrency": 1, "input_tokens": 100, "output_tokens": 10, "expected_tpot_ms": 3.0,
        "gain": -1e-17, "answer_sd": 1e-4, "right": 0.5, "launch": "vllm serve m", "bench": "vllm bench serve",
    }  # fmt: skip
    data = {
        "layouts": [{"usd_per_m_output_tokens": 12_345.6789, "replicas": "1 mixed tp 8"}],
        "answer_sd": 1e-4,
        "runs": [row],
    }
    told = SimpleNamespace(as_dict=lambda: data, layouts=[None], cut_short=None, between=None)
    text = "\n".join(Probed.lines(cast(Any, told)))
    assert "1. $12,345.68  1 mixed tp 8" in text
    assert "saves nothing on average; the cost is then known within less than 1%" in text


def test_what_runs_and_costs_no_more_saves_nothing() -> None:
    def cost(usd: float) -> Any:
        return SimpleNamespace(usd_per_m_output_tokens=usd, violations=())

    same = Decision(cost(1.0), cost(1.0), cost(1.0), True, (cost(1.0), cost(0.97)))
    assert same.lines()[-1] == (
        "against what runs it saves nothing: the best found costs 3.1% more, not nothing"
    )
    other = Decision(cost(1.0), cost(1.0), cost(1.0 - 1e-9), False)
    assert other.lines()[-1] == "the former best costs $1.0000 now, as much"


@pytest.mark.parametrize(("excess", "said"), [(3e-5, "under 0.1%"), (0.5, "50.0%")])
def test_what_is_paid_too_much_is_above_nothing(excess: float, said: str) -> None:
    best = SimpleNamespace(
        instance=SimpleNamespace(engine=None),
        evaluation=SimpleNamespace(usd_per_m_output_tokens=1234.5),
        certificate=SimpleNamespace(gap=0.0),
    )
    running = cast(Any, SimpleNamespace(nothing_instead=None, instead=best, excess=excess))
    text = verdict(running)
    assert text.startswith(f"you pay {said} more than needed: Rackfit found $1,234.50 per million")


def test_figures_beside_a_chart_have_no_powers_of_ten() -> None:
    assert short(12_345.6) == "12,346"
    assert short(0.00012) == "0.00012"
    chart = Chart("t", "x", "$", [Series("a", [(1.5, 1_234_567.8), (np.pi * 1e4, 2.0)])])
    page = figure(chart)
    assert "1234568" in page
    assert not re.search(r"\de\+0\d", page)

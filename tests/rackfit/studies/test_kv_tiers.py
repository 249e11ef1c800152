"""``kv-tiers`` and ``prices`` by the solver: tables that keep their order, words that agree with them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from asking import ask

from rackfit.figures.drawing import chart_spec
from rackfit.studies.questions import prices
from rackfit.studies.questions.kv_tiers import _PLACES, saving_usd_per_m
from rackfit.studies.run import StudyResult

SMALL = {
    "model": "llama-3.1-8b",
    "cluster": "hgx-h200",
    "failed": "+".join(f"r0g{i}" for i in range(2, 8)),
}
HELD = {"input_tokens": 4000, "output_tokens": 500, "cached_tokens": 3000, "hold_s": 300,
        "return_rate": 0.8}  # fmt: skip


@pytest.fixture(scope="module")
def held() -> StudyResult:
    over: dict[str, list[Any]] = {
        "workload.hold_s": [60, 7200], "idle.place": ["best", "none", "host", "flash"],
    }  # fmt: skip
    return ask("kv-tiers", over, workload=HELD, kv_tiers=["host", "flash"], **SMALL)


def test_the_best_place_costs_no_more_than_any(held: StudyResult) -> None:
    assert not held.failed
    for hold in (60, 7200):
        line = {r["idle.place"]: r for r in held.rows if r["workload.hold_s"] == hold}
        bound = line["best"]["bound_usd_per_m_output_tokens"]
        assert all(bound <= row["usd_per_m_output_tokens"] * (1 + 1e-9) for row in line.values())
        best = line["best"]["usd_per_m_output_tokens"]
        assert best <= min(r["usd_per_m_output_tokens"] for r in line.values()) * 1.05
        assert line["flash"]["kept_in"] == "flash"
        assert line["none"]["kept_in"] == "none"


def test_a_longer_hold_never_costs_less(held: StudyResult) -> None:
    short, long = (
        next(r for r in held.rows if r["workload.hold_s"] == hold and r["idle.place"] == "best")
        for hold in (60, 7200)
    )
    assert long["usd_per_m_output_tokens"] >= short["bound_usd_per_m_output_tokens"]
    assert short["kept_share"] > long["kept_share"]


def test_words_agree_with_the_table(held: StudyResult) -> None:
    line = {r["idle.place"]: r for r in held.rows if r["workload.hold_s"] == 60}
    best, none = line["best"], line["none"]
    assert f"1 min: {_PLACES[best['kept_in']]}" in held.conclusion[0]
    (found,) = (
        match
        for sentence in held.conclusion
        if (
            match := re.match(
                r"1 min: .* costs ([0-9.]+) times as much; .* save \$([0-9.]+),", sentence
            )
        )
    )
    ratio = none["usd_per_m_output_tokens"] / best["usd_per_m_output_tokens"]
    assert float(found[1]) == pytest.approx(ratio, abs=0.005)
    assert float(found[2]) == pytest.approx(saving_usd_per_m(best, none), abs=1e-4)
    assert chart_spec(held.study.chart(held.rows))["datasets"]["rows"]


def test_a_place_that_is_not_allowed_is_named() -> None:
    result = ask(
        "kv-tiers", {"workload.hold_s": [60], "idle.place": ["tape"]}, workload=HELD, **SMALL
    )
    (row,) = result.failed
    assert "'tape' is not a place that kv_tiers allows" in row["error"]
    result = ask("kv-tiers", {"board.hold_s": [60], "board.drains": ["hbm:1"]}, **SMALL)
    assert "expected NAME=SECONDS" in result.failed[0]["error"]


def test_prices_of_tokens_agree_with_the_words() -> None:
    result = ask(
        "prices", {"workload.input_tokens": [2000]}, workload={"input_tokens": 2000, "output_tokens": 500},
        slo={"tpot": 0.03}, kv_tiers=[], **SMALL,
    )  # fmt: skip
    assert not result.failed, result.failed[0]["error"]
    (row,) = result.rows
    assert 0 < row["hit_usd_per_m"] < row["input_usd_per_m"] < row["output_usd_per_m"]
    assert row["output_over_input"] == pytest.approx(
        row["output_usd_per_m"] / row["input_usd_per_m"]
    )
    assert f"({row['output_over_input']:.1f} times)" in result.conclusion[0]
    # the last token is the dearest: a longer context costs every token more
    priced = (2000 * row["input_usd_per_m"] + 500 * row["output_usd_per_m"]) / 1e6
    assert row["usd_per_request"] < priced < 2 * row["usd_per_request"]


def test_prices_that_the_searches_leave_open_are_not_compared() -> None:
    """An answer of 16 tokens seemed to save money: its page had no logarithm, and its words told -57 times."""
    rows = [
        {
            "error": "", "workload.input_tokens": tokens, "input_usd_per_m": 0.2, "output_usd_per_m": usd, "hit_usd_per_m": 0.0,
            "output_over_input": usd / 0.2, "hit_over_input": 0.0,
        }
        for tokens, usd in ((1000, 0.5), (8000, -11.0))
    ]  # fmt: skip
    said = prices.STUDY.conclude(rows)
    assert len(said) == 2  # by what factor a price below nothing rises is not said
    assert (
        "of output $0.5000 (2.5 times), of cached input no more than the searches leave open."
        in said[0]
    )
    assert "of output no more than the searches leave open, of cached" in said[1]
    assert chart_spec(prices.STUDY.chart(rows))

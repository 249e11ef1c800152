"""``context``: cost against the length of the prompt, for dense and for sparse attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.chart import Chart, Series
from rackfit.studies.base import Axes, Row, Study, solved


def _axes(base: Mapping[str, Any]) -> Axes:
    """The scenario's model beside one with sparse attention; prompts up to 128,000 tokens."""
    models = dict.fromkeys([str(base["model"]), "deepseek-v3.2"])
    return {"model": list(models), "workload.input_tokens": [1000, 8000, 32000, 128000]}


def _by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(solved(rows), key=lambda row: int(row["workload.input_tokens"])):
        found.setdefault(row["model_name"], []).append(row)
    return found


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(name, [(r["workload.input_tokens"], r["usd_per_m_output_tokens"]) for r in line])
        for name, line in _by_model(rows).items()
    ]
    return Chart(
        "Cost against context", "prompt tokens", "$ per million output tokens", series,
        log_x=True, log_y=True,
    )  # fmt: skip


def attention_share(row: Row) -> float:
    """Share of a pass of the largest generating replica that reads and scores the context."""
    parts = {key: row[key] for key in row if key.startswith("time_") and key.endswith("_s")}
    return float(parts.get("time_attention_context_s", 0.0) / sum(parts.values()))


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for name, line in _by_model(rows).items():
        short, long = line[0], line[-1]
        if short is long:
            said.append(f"{name}: one length has an answer, {short['workload.input_tokens']:,}.")
            continue
        ratio = long["usd_per_m_output_tokens"] / short["usd_per_m_output_tokens"]
        times = long["workload.input_tokens"] / short["workload.input_tokens"]
        said.append(
            f"{name}: a prompt {times:g} times as long ({short['workload.input_tokens']:,} to "
            f"{long['workload.input_tokens']:,} tokens) makes a token of the answer, prompt included, {ratio:.1f} times as dear; "
            f"attention over the context is {attention_share(short):.0%} of a generating pass "
            f"before, {attention_share(long):.0%} after."
        )
        lengths = [r["workload.input_tokens"] for r in line if attention_share(r) >= 0.5]
        if lengths:
            said.append(
                f"{name}: attention over the context is half of a generating pass or more at "
                f"{', '.join(f'{length:,}' for length in lengths)} prompt tokens."
            )
        prefill = [f"{row['prefill_chips'] / row['chips_used']:.0%}" for row in line]
        said.append(
            f"{name}: share of the chips that compute prompts only, by length: {', '.join(prefill)}."
        )
    return said


STUDY = Study(
    name="context",
    question="What does a longer context cost, with dense and with sparse attention?",
    default={
        "model": "deepseek-v3",
        "cluster": "gb200-nvl72",
        "workload": "chat",
        "slo": {"tpot": 0.05},
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
)

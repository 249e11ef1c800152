"""``frontier``: dollars per million tokens against the time per output token, by cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import Axes, Row, Study, asked, solved, varied
from rackfit.wording import amount


def _axes(base: Mapping[str, Any]) -> Axes:
    """The scenario's own cluster beside two others; targets from interactive to leisurely."""
    clusters = dict.fromkeys([str(base["cluster"]), "hgx-b200", "vr-nvl72"])
    return {"cluster": list(clusters), "slo.tpot": [0.01, 0.015, 0.02, 0.03, 0.05, 0.1]}


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by cluster and by what else was varied, from the tightest target to the loosest."""
    found: dict[str, list[Row]] = {}
    several = len({row["model_name"] for row in solved(rows)}) > 1
    for label, alike in varied(solved(rows), ("slo.tpot",)).items():
        for row in alike:
            names = (row["cluster_name"], row["model_name"] if several else "", label)
            found.setdefault(", ".join(filter(None, names)), []).append(row)
    return {name: sorted(line, key=_target_ms) for name, line in found.items()}


def _target_ms(row: Row) -> float:
    """The TPOT that was asked for; the one reached where there was no target."""
    target = asked(row, "slo.tpot")
    return 1e3 * float(row["tpot_s"] if target is None else target)


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(name, [(_target_ms(row), row["usd_per_m_output_tokens"]) for row in line])
        for name, line in _lines(rows).items()
    ]
    return Chart(
        "Cost against speed", "target: ms per output token", "$ per million output tokens",
        series, log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for name, line in _lines(rows).items():
        fast, slow = line[0], line[-1]
        split = [row for row in line if row["prefill_chips"]]
        if fast is slow:
            said.append(f"{name}: one target is met, {_target_ms(fast):g} ms.")
            continue
        ratio = fast["usd_per_m_output_tokens"] / slow["usd_per_m_output_tokens"]
        said.append(
            f"{name}: {_target_ms(fast):g} ms instead of {_target_ms(slow):g} ms per token costs "
            f"{ratio:.2f} times as much (${amount(fast['usd_per_m_output_tokens'])} and "
            f"${amount(slow['usd_per_m_output_tokens'])}); prefill and decode are apart at "
            f"{len(split)} of {len(line)} targets."
        )
    winners = []
    named = {id(row): name for name, line in _lines(rows).items() for row in line}
    for target in sorted({_target_ms(row) for row in solved(rows)}):
        there = [row for row in solved(rows) if _target_ms(row) == target]
        best = min(there, key=lambda row: float(row["usd_per_m_output_tokens"]))
        winners.append(f"{target:g} ms: {named[id(best)]}")
    said.append(f"Cheapest by target: {'; '.join(winners)}.")
    return said


STUDY = Study(
    name="frontier",
    question="What does speed cost, and on which cluster?",
    default={"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat",
             "slo": {"ttft": 2.0}},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    explored=True,
)  # fmt: skip

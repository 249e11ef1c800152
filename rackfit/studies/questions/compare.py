"""``compare``: one question on several clusters, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import ONE_RACK, Axes, Row, Study, cheapest, solved
from rackfit.wording import amount


def _axes(base: Mapping[str, Any]) -> Axes:
    """72 chips of each generation."""
    return {"cluster": ["hgx-h200@9", "hgx-b200@9", "gb200-nvl72", "gb300-nvl72", "vr-nvl72"]}


def _chart(rows: Sequence[Row]) -> Chart:
    bars = [(row["cluster_name"], row["usd_per_m_output_tokens"]) for row in solved(rows)]
    return Chart(
        "Cost of a million output tokens", "cluster", "$ per million output tokens",
        [Series("cheapest layout", bars)], kind="bar",
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    found = solved(rows)
    best = cheapest(rows)
    fastest = max(found, key=lambda row: float(row["output_tokens_per_s_per_gpu"]))
    said = [
        f"{best['cluster_name']} is the cheapest of {len(found)}: "
        f"${amount(best['usd_per_m_output_tokens'])} per million output tokens.",
        f"{fastest['cluster_name']} serves most per chip: "
        f"{fastest['output_tokens_per_s_per_gpu']:,.0f} output tokens/s.",
    ]
    dearest = max(found, key=lambda row: float(row["usd_per_m_output_tokens"]))
    if dearest is not best:
        ratio = dearest["usd_per_m_output_tokens"] / best["usd_per_m_output_tokens"]
        said.append(f"{dearest['cluster_name']} costs {ratio:.2f} times as much as the cheapest.")
    unsure = [
        row
        for row in found
        if row["bound_usd_per_m_output_tokens"] < best["usd_per_m_output_tokens"]
        and row is not best
    ]
    if unsure:
        names = ", ".join(row["cluster_name"] for row in unsure)
        said.append(f"Not proven dearer than the cheapest: {names}.")
    return said


STUDY = Study(
    name="compare",
    question="Which cluster serves this for the least money?",
    default=ONE_RACK,
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
)

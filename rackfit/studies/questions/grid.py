"""``grid``: any scenario keys crossed with each other, given by ``--over``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import ONE_RACK, Axes, Row, Study, cheapest, solved
from rackfit.wording import amount

#: bars that fit beside each other; the rest is in the table
_MAX_BARS = 24


def _axes(base: Mapping[str, Any]) -> Axes:
    return {}


def axis_names(rows: Sequence[Row]) -> list[str]:
    """Names of the axes: the columns before what was found."""
    names = list(rows[0])
    return names[: min(names.index(key) for key in ("model_name", "status") if key in names)]


def _label(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{name.split('.')[-1]} {row[name]}" for name in names) or row["cluster_name"]


def _chart(rows: Sequence[Row]) -> Chart:
    found = sorted(solved(rows), key=lambda row: float(row["usd_per_m_output_tokens"]))
    shown = found if len(found) <= _MAX_BARS else found[:_MAX_BARS]
    names = axis_names(rows)
    bars = [(_label(row, names), row["usd_per_m_output_tokens"]) for row in shown]
    chips = [f"{row['chips_used']} of {row['chips_total']} chips" for row in shown]
    title = f"Cost of a million output tokens: {len(shown)} of {len(found)} points, cheapest first"
    return Chart(
        title, "point", "$ per million output tokens",
        [Series("cheapest layout", bars, about=chips)], kind="bar",
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    names = axis_names(rows)
    best = cheapest(rows)
    said = [
        f"Cheapest of {len(solved(rows))}: {_label(best, names)}, at "
        f"${amount(best['usd_per_m_output_tokens'])} per million output tokens."
    ]
    for name in names:
        others = [other for other in names if other != name]
        ratios = _ratios(solved(rows), name, others)
        if ratios:
            said.append(
                f"{name} alone moves the cost by a factor of up to {max(ratios):.2f} "
                f"(at least {min(ratios):.2f}) with all else equal."
            )
    return said


def _ratios(rows: Sequence[Row], name: str, others: Sequence[str]) -> list[float]:
    """Dearest over cheapest along one axis, for each combination of the others."""
    lines: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = tuple(str(row[other]) for other in others)
        lines.setdefault(key, []).append(float(row["usd_per_m_output_tokens"]))
    return [max(costs) / min(costs) for costs in lines.values() if len(costs) > 1]


STUDY = Study(
    name="grid",
    question="What does each choice of --over change?",
    default=ONE_RACK,
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    explored=True,
)

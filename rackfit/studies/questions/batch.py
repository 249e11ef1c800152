"""``batch``: latency and cost against the number of sequences that a chip may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.chart import Chart, Series
from rackfit.studies.base import Axes, Row, Study, cheapest, solved

#: the batch is large enough when its cost is within this much of the cheapest
_CLOSE = 0.10


def _axes(base: Mapping[str, Any]) -> Axes:
    return {"limits.max_sequences_per_rank": [1, 4, 16, 64, 256, 1024]}


def _by_batch(rows: Sequence[Row]) -> list[Row]:
    return sorted(solved(rows), key=lambda row: int(row["limits.max_sequences_per_rank"]))


def _chart(rows: Sequence[Row]) -> Chart:
    found = _by_batch(rows)
    cost = min(row["usd_per_m_output_tokens"] for row in found)
    time = min(row["tpot_s"] for row in found)
    at = "limits.max_sequences_per_rank"
    return Chart(
        "Cost and time per token against batch", "most sequences on an attention rank",
        "times the least",
        [
            Series("cost", [(row[at], row["usd_per_m_output_tokens"] / cost) for row in found]),
            Series("time per output token", [(row[at], row["tpot_s"] / time) for row in found]),
        ],
        log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    found, best = _by_batch(rows), cheapest(rows)
    small, cost = found[0], best["usd_per_m_output_tokens"]
    enough = next(row for row in found if row["usd_per_m_output_tokens"] <= (1 + _CLOSE) * cost)
    at = "limits.max_sequences_per_rank"
    said = [
        f"With at most {small[at]} sequences per rank a million output tokens cost "
        f"{small['usd_per_m_output_tokens'] / cost:.1f} times the least, "
        f"${cost:.4f}, and a token takes {small['tpot_s'] * 1e3:.1f} ms.",
        f"{enough[at]} sequences per rank are within {_CLOSE:.0%} of the least cost, at "
        f"{enough['tpot_s'] * 1e3:.1f} ms per token.",
    ]
    slow = max(found, key=lambda row: float(row["tpot_s"]))
    if slow["tpot_s"] > enough["tpot_s"]:
        saved = max(0.0, 1 - slow["usd_per_m_output_tokens"] / enough["usd_per_m_output_tokens"])
        said.append(
            f"Slow mode: waiting {slow['tpot_s'] / enough['tpot_s']:.1f} times as long per token as "
            f"that saves {saved:.0%}."
        )
    if enough is not small:
        ratio = small["usd_per_m_output_tokens"] / enough["usd_per_m_output_tokens"]
        said.append(
            f"Fast mode: {enough['tpot_s'] / small['tpot_s']:.1f} times the speed of that for "
            f"{ratio:.1f} times its price, with the smallest batch."
        )
    return said


STUDY = Study(
    name="batch",
    question="What do more sequences at once save, and what do they cost in time?",
    default={"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"},
    fixed={"slo": {}},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
)

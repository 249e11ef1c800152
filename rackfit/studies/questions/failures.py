"""``failures``: what is left when chips are lost and the layout is solved again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.chart import Chart, Series
from rackfit.studies.base import Axes, Row, Study, solved
from topology import load_cluster

_LOST = (1, 2, 4, 8, 16)


def _axes(base: Mapping[str, Any]) -> Axes:
    """Nothing, then 1 to 16 chips lost: the last ones of each domain in turn."""
    domains = load_cluster(str(base["cluster"])).domains
    depth = max(len(domain.usable) for domain in domains)
    order = [
        domain.usable[-1 - step].id
        for step in range(depth)
        for domain in domains
        if step < len(domain.usable)
    ]
    return {"failed": ["none", *("+".join(order[:lost]) for lost in _LOST if lost < len(order))]}


def _by_lost(rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Chips lost, against the row with most of them left."""
    found = solved(rows)
    most = max(row["chips_healthy"] for row in found)
    return sorted(((most - row["chips_healthy"], row) for row in found), key=lambda pair: pair[0])


def _chart(rows: Sequence[Row]) -> Chart:
    found = _by_lost(rows)
    whole = found[0][1]
    kept = [(k, r["output_tokens_per_s"] / whole["output_tokens_per_s"] * 100) for k, r in found]
    chips = [(k, r["chips_healthy"] / whole["chips_healthy"] * 100) for k, r in found]
    return Chart(
        "Throughput kept, solved again", "chips lost", "% of what there was",
        [Series("output tokens per s", kept), Series("chips", chips)],
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    found = _by_lost(rows)
    whole = found[0][1]
    said = []
    for lost, row in found[1:]:
        kept = row["output_tokens_per_s"] / whole["output_tokens_per_s"]
        share = row["chips_healthy"] / whole["chips_healthy"]
        said.append(
            f"{lost} {'chip' if lost == 1 else 'chips'} lost ({1 - share:.1%}): {kept:.1%} of the throughput is kept when solved "
            f"again, {kept / share:.3f} of the chips' share; EP {row['ep']} instead of "
            f"{whole['ep']}."
        )
    return said or ["Only one state of the cluster has an answer."]


STUDY = Study(
    name="failures",
    question="How much throughput is left when chips are lost and the layout is solved again?",
    default={"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat",
             "slo": {"ttft": 2.0, "tpot": 0.03}},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
)  # fmt: skip

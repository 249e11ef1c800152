"""``scale-up``: the same chips in scale-up domains of different sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackfit.chart import Chart, Series
from rackfit.studies.base import Axes, Row, Study, cheapest, settled, solved

#: parts of a pass that wait for links between chips
NETWORK = ("dispatch", "combine", "all_reduce", "hand_off")
#: a size is enough when its cost is within this much of the cheapest
_CLOSE = 0.02


def _axes(base: Mapping[str, Any]) -> Axes:
    return {"cluster.domain_size": [8, 16, 36, 72, 144, 576]}


def network_share(row: Row) -> float:
    """Share of a pass of the largest replica that waits for links between chips."""
    parts = {key: row[key] for key in row if key.startswith("time_") and key.endswith("_s")}
    waits = sum(parts.get(f"time_{part}_s", 0.0) for part in NETWORK)
    return float(waits / sum(parts.values()))


def _chart(rows: Sequence[Row]) -> Chart:
    found = solved(rows)
    return Chart(
        "Cost against the size of a scale-up domain, total chips equal",
        "chips in a scale-up domain", "$ per million output tokens",
        [
            Series("cheapest layout", [
                (r["domain_size"], r["usd_per_m_output_tokens"]) for r in found]),
            Series("proven bound", [
                (r["domain_size"], r["bound_usd_per_m_output_tokens"]) for r in found]),
        ],
        log_x=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    found = sorted(settled(rows), key=lambda row: int(row["domain_size"]))
    best, small = cheapest(found), found[0]
    ratio = small["usd_per_m_output_tokens"] / best["usd_per_m_output_tokens"]
    enough = next(
        row for row in found
        if row["usd_per_m_output_tokens"] <= (1 + _CLOSE) * best["usd_per_m_output_tokens"]
    )  # fmt: skip
    alike = [
        row
        for row in found
        if row is not best
        and row["bound_usd_per_m_output_tokens"] <= best["usd_per_m_output_tokens"]
    ]
    unproven = ", ".join(str(row["domain_size"]) for row in alike)
    widths = ", ".join(
        f"{row['domain_size']}: EP {row['ep']}"
        + (f" over {row['domains_per_stage']} domains" if row["domains_per_stage"] > 1 else "")
        for row in found
    )
    return [
        f"Domains of {best['domain_size']} are the cheapest found, ${best['usd_per_m_output_tokens']:.4f} "
        f"per million output tokens; domains of {small['domain_size']} cost {ratio:.2f} times that.",
        f"Domains of {enough['domain_size']} are within {_CLOSE:.0%} of the cheapest: more than that "
        "buys little here."
        + (f" Not proven dearer than the cheapest: domains of {unproven}." if alike else ""),
        f"Expert parallelism of the best layout at each size: {widths}.",
        f"Network: waiting for links is {network_share(small):.0%} of a pass in domains of "
        f"{small['domain_size']}, {network_share(best):.0%} in domains of {best['domain_size']}.",
        f"Capacity: {small['sequences_per_chip']:.1f} sequences per chip in domains of "
        f"{small['domain_size']}, {best['sequences_per_chip']:.1f} in domains of "
        f"{best['domain_size']}.",
        f"Bandwidth: reading and multiplying routed experts takes {_experts_ms(small):.1f} ms of a "
        f"pass in domains of {small['domain_size']}, {_experts_ms(best):.1f} ms in domains of "
        f"{best['domain_size']}.",
    ]


def _experts_ms(row: Row) -> float:
    return float(row.get("time_routed_experts_s", 0.0)) * 1e3


STUDY = Study(
    name="scale-up",
    question="How large should a scale-up domain be, with the same chips in all?",
    default={"model": "deepseek-v3", "workload": "chat", "slo": {"ttft": 2.0, "tpot": 0.03}},
    fixed={"cluster": "nvl-72@8"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
)

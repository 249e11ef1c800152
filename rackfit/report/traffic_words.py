"""What replays said of an answer for traffic, in words."""

from __future__ import annotations

from costmodel.replay.met import Spread
from rackfit.documents.result import Result


def traffic_lines(result: Result) -> list[str]:
    """One claim a line; none for an answer that is no answer for traffic."""
    found = result.search.traffic
    if found is None:
        return []
    met, targets = found.met, found.targets
    after = f", {found.losses} of them after a loss" if found.losses else ""
    wanted = [
        f"TTFT P99 {targets.ttft_p99_s:g} s" if targets.ttft_p99_s is not None else "",
        f"TPOT P99 {targets.tpot_p99_s * 1e3:g} ms" if targets.tpot_p99_s is not None else "",
        f"goodput {targets.goodput:.1%}" if targets.goodput is not None else "",
    ]
    peak = f" at {found.peak:g} times the mean rate" if found.peak > 1 else ""
    lines = [
        f"traffic: {met.requests:,} requests, {met.rate:,.4g} per second{peak}; {found.runs} replays{after}, all met "
        + ", ".join(one for one in wanted if one),
        f"replayed as it is: TTFT {_words(met.ttft_s, 1.0, 's')}; TPOT {_words(met.tpot_s, 1e3, 'ms')}"
        + (f"; {met.goodput:.2%} of requests within both" if met.goodput is not None else ""),
        "loads: " + ", ".join(f"{role} {load:.1%}" for role, load in found.loads.items()),
        f"${found.usd_per_hour:,.2f}/h; a steady answer at the mean lengths costs ${found.mean_usd_per_hour:,.2f}/h "
        f"(unlike lengths add {found.spread_usd_per_hour / found.mean_usd_per_hour - 1:.1%}, queueing "
        f"{found.usd_per_hour / found.spread_usd_per_hour - 1:.1%})",
    ]
    if found.peak > 1:
        lines.append(
            f"${found.usd_per_m_output_tokens:.4f} per million output tokens at the mean rate"
        )
    return lines


def _words(spread: Spread, factor: float, unit: str) -> str:
    return f"P50 {spread.p50 * factor:,.3g} {unit}, P99 {spread.p99 * factor:,.3g} {unit}"

"""What replays said of an answer for traffic, in words."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field

from costmodel.tolerance import RELATIVE
from rackfit.quoting import markup
from rackfit.wording import amount
from topology.quantity import per_cent


class _Spread(BaseModel):
    p50: float
    p99: float


class _Replay(BaseModel):
    requests: int
    rate: float
    ttft_s: _Spread
    tpot_s: _Spread
    goodput: float | None = None


class _Prefixes(BaseModel):
    tier: str
    host_bytes: float
    hit_rate: float
    most_hit_rate: float
    hbm_usd_per_m_output_tokens: float | None = None


class _PutOff(BaseModel):
    tokens: int
    ttft_p50_s: float
    late: float


class _Traffic(BaseModel):
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    goodput: float | None = None
    runs: int
    losses: int
    #: older documents do not say
    confirmed: bool = True
    draws: tuple[int, int] | None = None
    peak: float
    mean_usd_per_hour: float | None = Field(gt=0)
    spread_usd_per_hour: float | None = Field(gt=0)
    usd_per_hour: float
    usd_per_m_output_tokens: float
    loads: dict[str, float]
    prefill_chunk_tokens: int | None = None
    chunks_tried: tuple[int, ...] = ()
    under_way: bool = False
    prefixes: _Prefixes | None = None
    put_off: _PutOff | None = None


class _Evaluation(BaseModel):
    usd_per_m_output_tokens: float | None = None


class ForTraffic(BaseModel):
    """The parts of a document that replays fill; ``None`` where the question was no traffic."""

    traffic: _Traffic | None = None
    replay: _Replay | None = None
    evaluation: _Evaluation = _Evaluation()


def traffic_lines(document: Mapping[str, object]) -> list[str]:
    """One claim a line; none for an answer that is no answer for traffic."""
    read = ForTraffic.model_validate(document)
    found, met = read.traffic, read.replay
    if found is None or met is None:
        return []
    after = f", also after each of {found.losses} losses" if found.losses else ""
    open_end = "" if found.confirmed else " (the time ended before all draws that confirm it)"
    if found.draws is not None:
        met_on, of = found.draws
        open_end = (
            f"; it missed one of those that confirm it, and meets them on {met_on} of {of} others"
        )
    wanted = [
        f"TTFT P99 {found.ttft_p99_s:g} s" if found.ttft_p99_s is not None else "",
        f"TPOT P99 {found.tpot_p99_s * 1e3:g} ms" if found.tpot_p99_s is not None else "",
        f"goodput {found.goodput:.1%}" if found.goodput is not None else "",
    ]
    peak = f" at {found.peak:g} times the mean rate" if found.peak > 1 else ""
    lines = [
        f"traffic: {met.requests:,} requests, {met.rate:,.4g} per second{peak}; {found.runs} replays{after}, all met "
        + ", ".join(one for one in wanted if one)
        + open_end,
        f"replayed as it is{', on a fleet that is busy from the start' * found.under_way}: TTFT {_words(met.ttft_s, 1.0, 's')}; TPOT {_words(met.tpot_s, 1e3, 'ms')}"
        + (f"; {met.goodput:.2%} of requests within both" if met.goodput is not None else ""),
        "loads: " + ", ".join(f"{role} {load:.1%}" for role, load in found.loads.items()),
        _beside_steady(found),
    ]
    others = [f"{one:,}" for one in found.chunks_tried if one != found.prefill_chunk_tokens]
    if others:
        lines.append(
            f"a pass takes at most {found.prefill_chunk_tokens:,} prompt tokens of a rank; tried beside: {', '.join(others)}"
        )
    if found.put_off is not None:
        lines.append(_order_words(found.put_off))
    if found.prefixes is not None:
        lines.append(_prefix_words(found.prefixes, read.evaluation))
    if found.peak > 1:
        lines.append(
            f"${amount(found.usd_per_m_output_tokens)} per million output tokens at the mean rate"
        )
    return lines


def _beside_steady(found: _Traffic) -> str:
    """What the answer costs, beside steady answers."""
    mean, spread = found.mean_usd_per_hour, found.spread_usd_per_hour
    costs = f"${found.usd_per_hour:,.2f}/h; "
    waits = (
        "there each prompt just missed a full pass, and each answer meets as many prompts as end"
    )
    if mean is None or spread is None:
        return f"{costs}no layout meets the targets in a steady state: {waits}"
    costs += f"a steady answer at the mean lengths costs ${mean:,.2f}/h "
    if found.usd_per_hour < spread * (1 - RELATIVE):
        return f"{costs}(${spread:,.2f}/h with unlike lengths): {waits}"
    return f"{costs}(unlike lengths add {per_cent(spread / mean - 1)}, queueing {per_cent(found.usd_per_hour / spread - 1)})"


def traffic_section(document: Mapping[str, object]) -> str:
    """The same as part of a page."""
    words = "".join(f"<li>{markup(line)}</li>" for line in traffic_lines(document))
    return f"<h2>Under traffic</h2><ul>{words}</ul>" if words else ""


def _words(spread: _Spread, factor: float, unit: str) -> str:
    return f"P50 {spread.p50 * factor:,.3g} {unit}, P99 {spread.p99 * factor:,.3g} {unit}"


def _order_words(found: _PutOff) -> str:
    """What the order of prompts costs the longest ones."""
    return (
        "the shortest prompt that waits is next, which the router has to do: of prompts of "
        f"{found.tokens:,} tokens or more, the longest hundredth, {found.late:.0%} have a late first token, and half wait more than {found.ttft_p50_s:,.3g} s for it"
    )


def _prefix_words(found: _Prefixes, priced: _Evaluation) -> str:
    """What is kept of earlier prompts, where, and what that saves."""
    share = found.hit_rate / found.most_hit_rate if found.most_hit_rate else 0.0
    known = f"{found.hit_rate:.1%} of the prompt tokens need no pass, {share:.0%} of what a cache that never forgets would have"
    if found.tier == "hbm":
        return f"prefixes: kept in what running requests leave of HBM; {known}"
    words = f"prefixes: kept in {found.host_bytes / 1e12:,.3g} TB of the hosts' memory beside HBM; {known}"
    alone, cost = found.hbm_usd_per_m_output_tokens, priced.usd_per_m_output_tokens
    if alone is None or cost is None:
        return words
    return (
        f"{words}; that saves ${amount(alone - cost)} per million output tokens against HBM alone"
    )

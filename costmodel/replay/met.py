"""What requests met: percentiles, goodput, use of the pools, money over tokens really served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import SECONDS_PER_HOUR
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Job

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

PERCENTILES = (50, 90, 95, 99)
#: share of the arriving tokens by which those that are served may fall behind in a queue that does not grow
_BEHIND = 0.1
#: what is known of every request
_TIMES = ("arrival_s", "sent_s", "ttft", "tpot", "ends_s")


@dataclass(frozen=True)
class Totals:
    """What the servers counted, and how long the replay took."""

    fleet: Sequence[Standing]
    gaps: Gaps
    wall_s: float


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of one measure, seconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Fill:
    """Share of the room for KV that is in use, over time and the replicas that decode."""

    mean: float
    p99: float


@dataclass(frozen=True)
class Met:
    """What requests met; see ``docs/replay.md`` for each figure.

    ``duration_s`` ends with the last answer. ``rate``: requests per second while they arrived (closed loop:
    while they were served). ``stable``: what waits did not grow. ``goodput``: share of requests within the
    TTFT and the TPOT target of the question, ``None`` without a target. ``utilisation`` by role:
    share of the time that passes run, of decode replicas the mean share of their slots in use. ``usd_per_m_output_tokens``: money for the whole duration over tokens
    that were served in it.
    """

    requests: int
    duration_s: float
    rate: float
    stable: bool
    ttft_s: Spread
    tpot_s: Spread
    itl_s: Spread
    e2e_s: Spread
    queue_s: Spread
    goodput: float | None
    output_tokens_per_s: float
    utilisation: dict[str, float]
    kv_fill: Fill
    put_back: int
    prefix_hit_rate: float
    usd_per_m_output_tokens: float
    wall_s: float
    #: of every request ``[requests]``: arrival, when its KV was where it decodes (below 0: it stayed), TTFT, TPOT, end
    arrival_s: Array
    sent_s: Array
    ttft: Array
    tpot: Array
    ends_s: Array

    def of(self, some: NDArray[np.bool_]) -> Met:
        """With the times of some requests; the figures stay those of all."""
        times = {name: getattr(self, name)[some] for name in _TIMES}
        return replace(self, **times)

    def as_dict(self) -> dict[str, Any]:
        """The published figures as plain data."""
        found: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name not in _TIMES:
                found[name] = vars(value) if isinstance(value, Spread | Fill) else value
        return found


def met(
    instance: Instance,
    layout: Layout,
    requests: Requests,
    jobs: Sequence[Job],
    totals: Totals,
    *,
    closed: bool,
) -> Met:
    """Figures from the times of all requests."""
    arrival, started, sent, first, ends, hits = (
        np.array([getattr(job, name) for job in jobs], dtype=float)
        for name in ("arrival_s", "started_s", "sent_s", "first_s", "ends_s", "hit_tokens")
    )
    output = requests.output_tokens
    ttft, e2e = first - arrival, ends - arrival
    steps = np.maximum(output - 1, 1)
    tpot = np.where(output > 1, (ends - first) / steps, 0.0)
    decoded = tpot[output > 1]
    duration = float(ends.max(initial=0.0))
    slo, goodput = instance.slo, None
    if slo.ttft is not None or slo.tpot is not None:
        good = np.ones(len(ttft), dtype=bool)
        if slo.ttft is not None:
            good &= ttft <= slo.ttft
        if slo.tpot is not None:
            good &= tpot <= slo.tpot
        goodput = float(good.mean())
    tokens = float(output.sum())
    gaps = totals.gaps
    itl = Spread(gaps.mean_s(), *(gaps.percentile_s(p / 100) for p in PERCENTILES))
    arrived = float(arrival.max(initial=0.0))
    return Met(
        requests=len(jobs),
        duration_s=duration,
        rate=len(jobs) / (duration if closed or not arrived else arrived),
        stable=closed or _stable(arrival, first, ends, output),
        ttft_s=_spread(ttft),
        tpot_s=_spread(decoded),
        itl_s=itl,
        e2e_s=_spread(e2e),
        queue_s=_spread(started - arrival),
        goodput=goodput,
        output_tokens_per_s=tokens / duration,
        utilisation=_utilisation(totals.fleet, duration),
        kv_fill=_kv_fill(totals.fleet, duration),
        put_back=sum(one.server.put_back for one in totals.fleet),
        prefix_hit_rate=float(hits.sum() / requests.input_tokens.sum()),
        usd_per_m_output_tokens=_usd_per_hour(instance, layout)
        / SECONDS_PER_HOUR
        * duration
        / tokens
        * 1e6,
        wall_s=totals.wall_s,
        arrival_s=arrival,
        sent_s=sent,
        ttft=ttft,
        tpot=tpot,
        ends_s=ends,
    )


def _spread(values: Array) -> Spread:
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    return Spread(float(values.mean()), *np.percentile(values, PERCENTILES).tolist())


def _utilisation(fleet: Sequence[Standing], duration: float) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in fleet:
        server = one.server
        used = server.slot_seconds / server.slots if server.role == "decode" else server.busy_s
        found.setdefault(server.role, []).append(used / duration)
    return {role: float(np.mean(shares)) for role, shares in sorted(found.items())}


def _kv_fill(fleet: Sequence[Standing], duration: float) -> Fill:
    seconds = sum(
        (np.array(one.server.kv_seconds) for one in fleet if one.server.role != "prefill"),
        start=np.zeros(101),
    )
    count = sum(one.server.role != "prefill" for one in fleet)
    seconds[0] += count * duration - seconds.sum()  # idle
    shares = np.cumsum(seconds) / seconds.sum()
    mean = float((seconds * np.arange(101)).sum() / seconds.sum() / 100)
    return Fill(mean, float(np.searchsorted(shares, 0.99)) / 100)


def _usd_per_hour(instance: Instance, layout: Layout) -> float:
    """Dollars per hour of the chips that are paid, as ``evaluate`` counts them."""
    from costmodel.evaluate import evaluate

    return evaluate(instance, layout).usd_per_hour or 0.0


def _stable(arrival: Array, first: Array, ends: Array, output: Ints) -> bool:
    """Whether tokens are served as fast as they arrive in the second half of the arrivals.

    The backlog (tokens asked for and not yet out) is looked at through that half; its straight line must
    rise by less than :data:`_BEHIND` of the tokens that arrive meanwhile.
    """
    last = float(arrival.max(initial=0.0))
    if last <= 0:
        return True
    share = np.linspace(0.0, 1.0, 65)
    moments = last / 2 * (1.0 + share)
    spans = np.maximum(ends - first, 1e-12)
    asked = np.concatenate([[0.0], np.cumsum(output[np.argsort(arrival)])])
    known = asked[np.searchsorted(np.sort(arrival), moments, side="right")]
    out = np.array(
        [float((np.clip((t - first) / spans, 0.0, 1.0) * output).sum()) for t in moments]
    )
    risen = float(np.polyfit(share, known - out, 1)[0])
    return risen <= _BEHIND * float(known[-1] - known[0])

"""A replay as one HTML page: percentiles, and what requests met over time."""

from __future__ import annotations

import numpy as np

from costmodel.findings import provenance
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import reuse
from costmodel.replay.met import PERCENTILES, Met, Spread
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import figure
from rackfit.quoting import markup
from rackfit.report.page import page, table
from rackfit.report.replay_words import MEASURES, lines
from rackfit.wording import BASES, rests_on

#: stretches of time that a chart over time shows
_STRETCHES = 60


def replay_page(instance: Instance, layout: Layout, requests: Requests, met: Met) -> str:
    """The page."""
    rows = []
    for name, field, factor, unit in MEASURES:
        spread: Spread = getattr(met, field)
        values = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99)
        rows.append([f"{name}, {unit}", *(f"{factor * value:,.4g}" for value in values)])
    head = ["measure", "mean", *(f"P{p}" for p in PERCENTILES)]
    words = "".join(f"<p>{markup(line)}</p>" for line in lines(instance, requests, met))
    basis = rests_on(provenance(instance, layout), *BASES)
    words += f'<p class="note basis">Basis: {markup(basis)}.</p>'
    sections = [
        f'<div class="headline">{words}</div>',
        "<h2>What requests met</h2>" + table(head, rows, "percentiles"),
        "<h2>Over time</h2>" + _over_time(met) + _rates(met),
        "<h2>Shares of requests</h2>" + _shares(met),
    ]
    if len(requests.blocks):
        sections.append("<h2>Prefixes</h2>" + _prefixes(requests))
    return page(f"Replay: {instance.model.name} on {instance.cluster.name}", sections)


def _over_time(met: Met) -> str:
    """P50 and P99 of TTFT by time of arrival."""
    edges = np.linspace(0.0, float(met.arrival_s.max(initial=0.0)) + 1e-9, _STRETCHES + 1)
    place = np.digitize(met.arrival_s, edges) - 1
    middle, p50, p99 = [], [], []
    for stretch in range(_STRETCHES):
        own = met.ttft[place == stretch]
        if len(own):
            middle.append(float((edges[stretch] + edges[stretch + 1]) / 2))
            p50.append(float(np.percentile(own, 50)))
            p99.append(float(np.percentile(own, 99)))
    return figure(
        Chart(
            "Time to first token by arrival",
            "seconds since the first request",
            "TTFT, s",
            [
                Series("P50", list(zip(middle, p50, strict=True)), "line"),
                Series("P99", list(zip(middle, p99, strict=True)), "line"),
            ],
        )
    )


def _rates(met: Met) -> str:
    """Requests that came and that ended, per second."""
    edges = np.linspace(0.0, met.duration_s + 1e-9, _STRETCHES + 1)
    width = float(edges[1] - edges[0])
    middle = ((edges[:-1] + edges[1:]) / 2).tolist()
    series = []
    for name, times in (("arrived", met.arrival_s), ("ended", met.ends_s)):
        counts = np.histogram(times, edges)[0] / width
        series.append(Series(name, list(zip(middle, counts.tolist(), strict=True)), "line"))
    return figure(
        Chart("Requests per second", "seconds since the first request", "requests/s", series)
    )


def _shares(met: Met) -> str:
    """Share of requests that waited at most so long, for TTFT."""
    shares = np.concatenate([np.linspace(0.0, 0.99, 100), [0.995, 0.999, 1.0]])
    points = [
        (float(np.quantile(met.ttft, share)), float(share)) for share in shares if len(met.ttft)
    ]
    return figure(
        Chart(
            "Share of requests by time to first token",
            "TTFT, s",
            "share of requests",
            [Series("TTFT", points, "line")],
        )
    )


def _prefixes(requests: Requests) -> str:
    """Share of prompt tokens that one cache for all would have, by its capacity."""
    found = reuse(requests)
    if not len(found.distances):
        return "<p>No prompt begins like an earlier one.</p>"
    capacities = np.geomspace(
        max(float(found.distances[0]), 1.0), max(float(found.distances[-1]), 2.0), _STRETCHES
    )
    points = [(float(c), 100.0 * found.hit_rate(float(c))) for c in capacities]
    return figure(
        Chart(
            "Prompt tokens found in one cache for all requests",
            "tokens of KV that the cache keeps",
            "% of prompt tokens",
            [Series("least recently used out first", points, "line")],
            log_x=True,
        )
    )

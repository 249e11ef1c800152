"""``load``: what requests meet while the load grows, on the layout that serves most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.replay.replay import Course, replay
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import ONE_RACK, Axes, Number, Options, Own, Row, Study, solved
from rackfit.studies.point import solve_instance

#: a replay lasts so many times as long as a request, and has so many requests at least and at most
_LASTS, _LEAST, _MOST = 4.0, 2_000, 20_000
#: share of requests within the targets that counts as good service
_GOOD = 0.99


def _axes(base: Mapping[str, Any]) -> Axes:
    """Loads up to and beyond what the layout serves; independent arrivals, and arrivals in bursts."""
    return {"cv": [1.0, 4.0], "load": [0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1]}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    layout, evaluation = _fullest(instance.scenario.model_dump_json(), options)
    most = evaluation.requests_per_s or 0.0
    rate, workload = most * float(own["load"]), instance.workload
    lasts = (evaluation.ttft_s or 0.0) + workload.output_tokens * (evaluation.tpot_s or 0.0)
    count = min(_MOST, max(_LEAST, ceil(_LASTS * lasts * rate)))
    arrivals = Arrivals(process="gamma", cv=float(own["cv"]), rate=rate)
    # a fleet that fills first would meet more than one that is busy, most of all a large one
    course = replace(Course.of(instance), under_way=options.seed)
    met = replay(instance, layout, steady(workload, arrivals, count, options.seed), course)
    return {
        "capacity_requests_per_s": most,
        "requests_per_s": rate,
        "requests": count,
        "goodput": met.goodput,
        "good_requests_per_s": rate * (1.0 if met.goodput is None else met.goodput),
        "ttft_p50_s": met.ttft_s.p50,
        "ttft_p99_s": met.ttft_s.p99,
        "tpot_p50_s": met.tpot_s.p50,
        "tpot_p99_s": met.tpot_s.p99,
        "kv_fill": met.kv_fill.mean,
        # what comes beyond capacity waits; a replay alone lets a backlog rise by a tenth of what arrives
        "stable": met.stable and rate <= most,
    }


@lru_cache(maxsize=8)
def _fullest(scenario: str, options: Options) -> tuple[Layout, Evaluation]:
    """The layout that serves the question for the least money, and its figures."""
    found = solve_instance(resolve_instance(Scenario.model_validate_json(scenario)), options)
    return found.layout, found.evaluation


def _by_bursts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(solved(rows), key=lambda row: (float(row["cv"]), float(row["load"]))):
        name = "independent arrivals" if float(row["cv"]) == 1.0 else f"bursts, cv {row['cv']:g}"
        found.setdefault(name, []).append(row)
    return found


def _line(rows: Sequence[Row], key: str, factor: float) -> list[tuple[float | str, float]]:
    return [(100 * float(row["load"]), factor * float(row[key])) for row in rows]


def _charts(rows: Sequence[Row]) -> list[Chart]:
    found = _by_bursts(rows)
    charts = []
    for title, unit, factor, keys in (
        ("Time to first token against load", "TTFT, s", 1.0, ("ttft_p50_s", "ttft_p99_s")),
        ("Time per token against load", "TPOT, ms", 1e3, ("tpot_p50_s", "tpot_p99_s")),
    ):
        series = [
            Series(f"{key.split('_')[1].upper()}, {name}", _line(line, key, factor))
            for name, line in found.items()
            for key in keys
        ]
        charts.append(Chart(title, "load, % of capacity", unit, series, log_y=factor == 1.0))
    if any(row["goodput"] is not None for row in solved(rows)):
        goods = [
            Series(name, _line([r for r in line if r["goodput"] is not None], "goodput", 100.0))
            for name, line in found.items()
        ]
        title, unit = "Requests within both targets against load", "% of requests"
        charts.insert(0, Chart(title, "load, % of capacity", unit, goods))
    return charts


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for name, line in _by_bursts(rows).items():
        first, last = line[0], line[-1]
        said.append(
            f"{name}: from {first['load']:.0%} to {last['load']:.0%} of {first['capacity_requests_per_s']:,.1f} "
            f"requests/s the P99 of TTFT goes from {first['ttft_p99_s']:.3g} to {last['ttft_p99_s']:.3g} s, that of "
            f"TPOT from {1e3 * first['tpot_p99_s']:.3g} to {1e3 * last['tpot_p99_s']:.3g} ms."
        )
        judged = [row for row in line if row["goodput"] is not None]
        good = [row for row in judged if row["goodput"] >= _GOOD]
        if good:
            most = max(good, key=lambda row: float(row["load"]))
            said.append(
                f"{name}: {_GOOD:.0%} of requests are within the targets up to {most['load']:.0%}."
            )
        elif judged:
            said.append(f"{name}: at no load are {_GOOD:.0%} of requests within the targets.")
    return said


STUDY = Study(
    name="load",
    question="What do requests meet while the load grows?",
    default=ONE_RACK,
    axes=_axes,
    chart=_charts,
    conclude=_conclude,
    parameters={"cv": 1.0, "load": 0.8},
    numbers={"cv": Number(0.01, 100), "load": Number(0.001, 100)},
    answer=_answer,
    shown={
        "goodput": "goodput", "requests_per_s": "req/s", "ttft_p50_s": "TTFT P50", "ttft_p99_s": "TTFT P99",
        "tpot_p50_s": "TPOT P50", "tpot_p99_s": "TPOT P99", "kv_fill": "KV", "stable": "stable",
    },
)  # fmt: skip

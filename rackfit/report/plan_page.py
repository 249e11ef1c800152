"""A plan as one HTML page: requests, units and money over the hours."""

from __future__ import annotations

from rackfit.documents.plan_document import hour_document
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import figure
from rackfit.quoting import markup
from rackfit.report.page import page, table
from rackfit.report.plan_words import column_lines, header, lines, rows
from solver.plan.confirm import Confirmed
from solver.plan.day import DayPlan


def plan_page(found: DayPlan, confirmed: Confirmed | None = None) -> str:
    """The page."""
    words = "".join(f"<p>{markup(line)}</p>" for line in lines(found, confirmed))
    built = "".join(f"<li>{markup(line)}</li>" for line in column_lines(found))
    sections = [
        f'<div class="headline">{words}</div>',
        "<h2>Requests and units</h2>" + _requests(found) + _units(found) + _money(found),
        "<h2>Hour by hour</h2>" + table(header(found), rows(found), "hours"),
        f"<h2>What units run</h2><ul>{built}</ul>",
    ]
    return page(f"Plan: {found.asked.title or found.asked.name}", sections)


def _chart(title: str, unit: str, series: dict[str, list[float]]) -> str:
    """Lines over the hours; each value holds for its hour."""
    drawn = [
        Series(name, [(hour + part, value) for hour, value in enumerate(own) for part in (0, 1)], "line")
        for name, own in series.items()
    ]  # fmt: skip
    return figure(Chart(title, "hour", unit, drawn))


def _requests(found: DayPlan) -> str:
    demand = zip(found.hours.models, found.hours.demand, strict=True)
    return _chart("Requests per second", "requests/s", {name: list(own) for name, own in demand})


def _units(found: DayPlan) -> str:
    """Units that serve a model, by kind, and those that stand by."""
    series: dict[str, list[float]] = {}
    hours = [hour_document(found, hour) for hour in range(found.hours.hours)]
    for model in found.hours.models:
        for kind in (one.name for one in found.hours.kinds):
            own = [float(hour["fleet_by_model"][model].get(kind, 0)) for hour in hours]
            if any(own):
                series[f"{model} on {kind}"] = own
    for kind in (one.name for one in found.hours.kinds):
        own = [float(hour["standing_by"][kind]) for hour in hours]
        if any(own):
            series[f"{kind} standing by"] = own
    shared = any(any(own.values()) for hour in hours for own in hour["shared_by_model"].values())
    return _chart("Units" + ", shared ones for each model" * shared, "units", series)


def _money(found: DayPlan) -> str:
    return _chart("Money", "$/h", {"all units": [h.usd for h in found.planned.judged.hours]})

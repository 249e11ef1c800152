"""A study as one HTML page: question, conclusion, figure, table."""

from __future__ import annotations

from collections.abc import Sequence

from rackfit.figures.chart import Chart
from rackfit.figures.live import figure, still
from rackfit.quoting import markup
from rackfit.report.page import page, table
from rackfit.studies.base import Axes, Row, Study
from rackfit.studies.explorer import STYLE, explorer

#: more rows than this are left to the CSV file, so that the page stays small
_MAX_ROWS = 500


def study_page(
    study: Study,
    charts: Sequence[Chart],
    conclusion: Sequence[str],
    rows: Sequence[Row],
    columns: list[str],
    axes: Axes,
) -> str:
    """The page of a finished study."""
    said = "".join(f"<p>{markup(sentence)}</p>" for sentence in conclusion)
    shown = [column for column in columns if column != "digest"]
    cells = [[row.get(column, "") for column in shown] for row in rows[:_MAX_ROWS]]
    more = f"<p>The first {_MAX_ROWS} of {len(rows)} rows.</p>" if len(rows) > _MAX_ROWS else ""
    explored = explorer(axes, rows) if study.explored else ""
    return page(
        f"{study.name}: {study.question}",
        [
            f'<div class="headline">{said}</div>',
            *map(figure, charts),
            explored,
            "<h2>Table</h2>",
            _answers(study, rows[:_MAX_ROWS], axes),
            more,
            f"<details><summary>Every column</summary>{table(shown, cells, 'every column')}</details>",
        ],
        STYLE if explored else "",
    )


def study_html(
    study: Study,
    charts: Sequence[Chart],
    conclusion: Sequence[str],
    rows: Sequence[Row],
    axes: Axes,
) -> str:
    """A finished study as a notebook shows it."""
    said = "".join(f"<p>{markup(sentence)}</p>" for sentence in conclusion)
    return f"{said}{''.join(map(still, charts))}{_answers(study, rows[:_MAX_ROWS], axes)}"


def _answers(study: Study, rows: Sequence[Row], axes: Axes) -> str:
    """What was asked, on how many chips, and what a terminal shows of the answer."""
    counted = any("chips_total" in row for row in rows)
    known = {key: title for key, title in study.shown.items() if any(key in row for row in rows)}
    cells = [
        [
            *(row.get(axis, "") for axis in axes),
            *([_chips(row)] if counted else []),
            *(row.get(key, "") for key in known),
        ]
        for row in rows
    ]
    head = [*axes, *(["chips in use"] if counted else []), *known.values()]
    return table(head, cells, "table of the study")


def _chips(row: Row) -> str:
    return f"{row['chips_used']} of {row['chips_total']}" if "chips_total" in row else ""

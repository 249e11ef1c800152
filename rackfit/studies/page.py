"""A study as one HTML page: question, conclusion, figure, table."""

from __future__ import annotations

from collections.abc import Sequence

from rackfit.figures.chart import Chart
from rackfit.quoting import markup
from rackfit.report.page import page, table
from rackfit.studies.base import Row, Study

#: more rows than this are left to the CSV file, so that the page stays small
_MAX_ROWS = 500


def study_page(
    study: Study,
    charts: Sequence[Chart],
    conclusion: Sequence[str],
    rows: Sequence[Row],
    columns: list[str],
) -> str:
    """The page of a finished study."""
    said = "".join(f"<p>{markup(sentence)}</p>" for sentence in conclusion)
    shown = [column for column in columns if column != "digest"]
    cells = [[row.get(column, "") for column in shown] for row in rows[:_MAX_ROWS]]
    more = f"<p>The first {_MAX_ROWS} of {len(rows)} rows.</p>" if len(rows) > _MAX_ROWS else ""
    return page(
        f"{study.name}: {study.question}",
        [
            f'<div class="headline">{said}</div>',
            *(
                f'<div class="wide" tabindex="0" role="region" aria-label="{markup(chart.title)}">'
                f"{chart.svgs()}</div>"
                for chart in charts
            ),
            "<h2>Table</h2>",
            table(shown, cells, "table of the study"),
            more,
        ],
    )

"""``rackfit report``: one layout as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``report`` to the command line."""
    app.command("report")(report_command)


def report_command(
    layout: Annotated[Path, typer.Argument(help="A JSON document written by rackfit solve.")],
    out: Annotated[Path | None, typer.Option(help="Write the page here, not to stdout.")] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write each figure as SVG into this folder (extra: charts).")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write each figure as PNG into this folder (extra: charts).")
    ] = None,
) -> None:
    """Draw a layout as one HTML page that works offline: cost, proof, rack map, times, links.

    With --svg or --png the figures become files; the page is then written only if --out says where.

    Exit code 0 if every rule holds, 1 if the layout breaks one (the page lists them).
    """
    from costmodel.evaluate import evaluate
    from rackfit.documents.output import check_writable, say, write_whole
    from rackfit.documents.result import read_result
    from rackfit.figures.drawing import check_charts
    from rackfit.figures.files import figures_of, write_figures
    from rackfit.report.report import figure_style, report_page

    check_writable(page=out, besides=(layout,))
    for option, folder in (("--svg", svg), ("--png", png)):
        if folder is not None:
            check_charts(option)
    instance, decision, document = read_result(layout)
    evaluation = evaluate(instance, decision)
    page = report_page(instance, decision, evaluation, document)
    drawn = write_figures(figures_of(page, figure_style()), svg, png, page=out, besides=(layout,))
    if out is not None or (svg is None and png is None):
        write_whole(page, out)
    if out is not None:
        say(f"report written to {out}")
    for path in drawn:
        say(f"written: {path}")
    if evaluation.violations:
        raise typer.Exit(1)

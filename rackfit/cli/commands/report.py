"""``rackfit report``: one layout as one self-contained HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``report`` to the command line."""
    app.command("report")(report_command)


def report_command(
    layout: Annotated[Path, typer.Argument(help="A JSON document written by rackfit solve.")],
    out: Annotated[Path | None, typer.Option(help="Write the page here, not to stdout.")] = None,
) -> None:
    """Draw a layout as one HTML page that works offline: cost, proof, rack map, times, links.

    Exit code 0 if every rule holds, 1 if the layout breaks one (the page lists them).
    """
    from costmodel.evaluate import evaluate
    from rackfit.output import check_writable, write_whole
    from rackfit.report import report_page
    from rackfit.result import read_result

    check_writable(out)
    instance, decision, document = read_result(layout)
    evaluation = evaluate(instance, decision)
    write_whole(report_page(instance, decision, evaluation, document), out)
    if out is not None:
        print(f"report written to {out}", file=sys.stderr)
    if evaluation.violations:
        raise typer.Exit(1)

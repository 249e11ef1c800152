"""``rackfit diff``: what changes between two layouts, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``diff`` to the command line."""
    app.command("diff")(diff_command)


def diff_command(
    first: Annotated[Path, typer.Argument(help="A document of rackfit solve: what is.")],
    second: Annotated[Path, typer.Argument(help="Another: what would be.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two layouts, each re-evaluated on its own instance: figures, replicas, chips, experts."""
    import json as json_module

    from costmodel.evaluate import evaluate
    from rackfit.documents.output import say, write_whole
    from rackfit.documents.result import read_result
    from rackfit.report.compare import compare

    sides = []
    for path in (first, second):
        instance, layout, _ = read_result(path)
        sides.append((instance, layout, evaluate(instance, layout)))
    difference = compare(sides[0], sides[1])
    for field in difference.asked:
        say(f"rackfit: the two layouts answer different questions: {field}")
    if json:
        write_whole(json_module.dumps(difference.as_dict(), indent=1) + "\n", None)
        return
    print("\n".join(difference.lines()))

"""``rackfit evaluate``: re-derive every figure of a written layout and list violations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate_command)


def evaluate_command(
    layout: Annotated[Path, typer.Argument(help="A JSON document written by rackfit solve.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Price a layout from scratch: from the cluster's graph and the placements alone.

    Exit code 0 if every rule holds, 1 if the layout breaks one.
    """
    import json as json_module

    from costmodel.evaluate import evaluate
    from rackfit.output import write_whole
    from rackfit.result import SCHEMA_VERSION, read_result

    instance, decision, document = read_result(layout)
    evaluation = evaluate(instance, decision)
    written = document.get("instance", {}).get("digest")
    if written != instance.digest:
        print(
            "rackfit: the instance has changed since the layout was written (other data or version); "
            "the figures are today's",
            file=sys.stderr,
        )
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "instance": instance.describe(),
            "evaluation": evaluation.as_dict(),
        }
        write_whole(json_module.dumps(data, indent=1, allow_nan=False) + "\n", None)
    else:
        from rackfit.render import print_evaluation

        print_evaluation(instance, decision, evaluation)
    if evaluation.violations:
        raise typer.Exit(1)

"""``rackfit probe``: which runs to measure next, with their commands."""

from __future__ import annotations

from typing import Annotated

import typer

from rackfit.cli import question
from topology.names import shown_lines


def register(app: typer.Typer) -> None:
    """Add ``probe`` to the command line."""
    app.command("probe")(probe_command)


@question.asking("choose")
def probe_command(
    asked: question.Asked,
    *,
    runs: Annotated[
        int, typer.Option(help="Runs to propose, each beside those before.", min=1, max=20)
    ] = 3,
    between: Annotated[
        str | None,
        typer.Option(help="Two of the listed layouts, as 1,2: runs that put these in order."),
    ] = None,
    time_limit: question.TimeLimit = 120.0,
    seed: question.Seed = 0,
    json: question.AsJson = False,
) -> None:
    """Propose the few runs that tell most about the answer, with the commands that start and measure them.

    The question is solved under several parameter sets that the measurements leave open. Runs of these layouts' workers
    are ranked by what choosing after them saves on average, then by how well the best layout's cost is known; with
    --between by how surely they tell which of two layouts costs less. Give the
    results to rackfit calibrate. Needs --engine.
    """
    import json as json_module

    from costmodel.question.engine import ANY
    from costmodel.question.instance import resolve_instance
    from rackfit.documents.output import write_whole
    from rackfit.measurements.probe import probe
    from solver.clock import check_time_limit
    from topology.errors import InstanceError, Problem

    check_time_limit(time_limit)
    pair = None
    if between is not None:
        numbers = [one.strip() for one in between.split(",")]
        if len(set(numbers)) != 2 or not all(
            n.isascii() and n.isdigit() and len(n) < 4 for n in numbers
        ):
            message = "expected the numbers of two layouts as they are listed, such as 1,2"
            raise InstanceError(Problem("--between", message))
        pair = int(numbers[0]), int(numbers[1])
    scenario = asked.build()
    if scenario.engine == ANY:
        raise InstanceError(Problem("--engine", "any is a choice of solve; name one engine here"))
    found = probe(
        resolve_instance(scenario), runs, time_limit_s=time_limit or 120.0, seed=seed, between=pair
    )
    if json:
        write_whole(json_module.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n", None)
    else:
        typer.echo(shown_lines("\n".join(found.lines())))

"""``rackfit new``: a commented scenario to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``new`` to the command line."""
    app.command("new")(new_command)


def new_command(
    out: Annotated[Path | None, typer.Argument(help="File to write; stdout without one.")] = None,
    model: Annotated[str, typer.Option(help="Model: name or config.json.")] = "deepseek-v3",
    cluster: Annotated[str, typer.Option(help="Cluster: name, name@N or file.")] = "gb200-nvl72",
    input_tokens: Annotated[int, typer.Option(help="Prompt tokens of a request.")] = 4000,
    output_tokens: Annotated[int, typer.Option(help="Answer tokens of a request.")] = 1000,
    ttft: Annotated[str | None, typer.Option(help="Target: time to first token.")] = "2 s",
    tpot: Annotated[str | None, typer.Option(help="Target: time per output token.")] = "30 ms",
    measurements: Annotated[
        Path | None, typer.Option(help="Write a table for measured runs here instead (CSV).")
    ] = None,
) -> None:
    """Write a scenario with every key explained. An existing file is never overwritten."""
    from costmodel.question.instance import resolve_instance
    from costmodel.question.scenario import Scenario
    from rackfit.documents.new_scenario import scenario_text
    from rackfit.documents.output import check_writable, say, write_whole
    from rackfit.quoting import shell_word
    from topology.catalogue import checked
    from topology.errors import InstanceError, Problem
    from topology.reading import parse_yaml

    if measurements is not None:
        _write_table(measurements, out)
        return
    if out is not None and os.path.lexists(out):
        raise InstanceError(Problem(str(out), "exists already"))
    check_writable(out)
    name = out.stem if out is not None else "custom"
    text = scenario_text(
        name,
        model,
        cluster,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        ttft=ttft,
        tpot=tpot,
    )
    with checked(name):
        resolve_instance(Scenario.model_validate(parse_yaml(text, name)))
    write_whole(text, out)
    if out is not None:
        say(f"{out} written; next: rackfit solve {shell_word(str(out))} --out layout.json")


def _write_table(path: Path, out: Path | None) -> None:
    """Write the template of a table of measured runs."""
    from rackfit.documents.output import check_writable, say, write_whole
    from rackfit.measurements.template import table_text
    from topology.errors import InstanceError, Problem

    if out is not None:
        raise InstanceError(
            Problem("--measurements", "writes no scenario; leave the other file out")
        )
    if os.path.lexists(path):
        raise InstanceError(Problem(str(path), "exists already"))
    check_writable(path)
    write_whole(table_text(), path)
    say(f"{path} written; docs/your-measurements.md describes its columns")

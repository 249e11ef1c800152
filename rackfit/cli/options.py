"""What every command takes: ``--version`` and ``--debug``, before the command's name."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def _print_version(asked: bool) -> None:
    if asked:
        from rackfit.documents.result import versions

        found = versions()
        typer.echo(
            f"rackfit {found['rackfit']} (Python {found['python']}, OR-Tools {found['ortools']})"
        )
        raise typer.Exit


def every_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (RACKFIT_DEBUG=1).")
    ] = False,
) -> None:
    """Which layout serves this model on this cluster for the least money per token?"""
    if debug:
        os.environ["RACKFIT_DEBUG"] = "1"

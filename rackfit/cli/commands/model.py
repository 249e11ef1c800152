"""``rackfit model``: what an architecture costs, and how its config was read."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from costmodel.models import ModelSpec, load_model
from costmodel.models.report import as_json, context_rows, layer_rows, part_rows, summary_rows
from rackfit.console import make_console, print_sentence, print_table
from rackfit.quoting import plain


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("model")(model)


def model(
    name: Annotated[str, typer.Argument(help="catalogue name, config.json or a folder with one")],
    as_document: Annotated[
        bool, typer.Option("--json", help="one JSON document on stdout")
    ] = False,
    weight_dtype: Annotated[
        str | None,
        typer.Option(help="bf16, fp16, fp8, fp4, int8 or int4 instead of the native precision"),
    ] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="KV cache: bf16, fp8, ...")] = None,
) -> None:
    """What the architecture costs, and how it was read."""
    spec = load_model(name, weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    if as_document:
        json.dump(as_json(spec), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return
    _print(spec)


def _print(spec: ModelSpec) -> None:
    console = make_console()
    head = f"{spec.name}: read as family {spec.family}, weights {spec.native_dtype}"
    print_sentence(console, plain(head))
    for warning in spec.warnings:
        print_sentence(console, plain(warning))
    _table(console, "What it is", ("", ""), summary_rows(spec), numeric=(1,))
    _table(console, "Layers by kind", ("layers", "attention or state", "feed-forward"),
           layer_rows(spec), numeric=(0,))  # fmt: skip
    _table(console, "Parameters by part", ("part", "parameters", "share", "GB", "dtype"),
           part_rows(spec), numeric=(1, 2, 3))  # fmt: skip
    _table(console, "One sequence", ("context", "KV GB", "index GB", "state GB", "all GB"),
           context_rows(spec), numeric=(1, 2, 3, 4))  # fmt: skip
    readings = [(item.key, item.value, item.source) for item in spec.readings]
    _table(console, "Where each number came from", ("key", "value", "source"), readings)
    rest = [note for note in spec.notes if note not in spec.warnings]
    if rest:
        console.print("Notes")
        for note in rest:
            print_sentence(console, plain(note), indent="  ")


def _table(
    console: Console,
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    numeric: tuple[int, ...] = (),
) -> None:
    table = Table(title=title, title_justify="left", show_header=any(columns), box=None)
    for index, column in enumerate(columns):
        table.add_column(
            column, justify="right" if index in numeric else "left", no_wrap=index in numeric
        )
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    print_table(console, table)
    console.print()

"""``rackfit study``: a family of questions, its table, figure and conclusion."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rackfit.cli import question

Backend = Literal["loky", "dask", "ray"]


def register(app: typer.Typer) -> None:
    """Add ``study`` to the command line."""
    app.command("study")(study_command)


def study_command(
    name: Annotated[str, typer.Argument(help="Study: compare, frontier, grid, ...")],
    *,
    scenario: Annotated[
        str | None, typer.Argument(help="Scenario: a shipped name or a file; else the study's own.")
    ] = None,
    over: Annotated[
        list[str] | None, typer.Option(help="Axis KEY=VALUE,VALUE,...; may be repeated.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes, one by default, all on a cluster; -1 is one per core."),
    ] = None,
    backend: Annotated[Backend, typer.Option(help="Where points run.")] = "loky",
    out: Annotated[
        Path | None, typer.Option(help="Write table, figure and page into this folder.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write the figures as PNG into this folder (extra: charts).")
    ] = None,
    gap: Annotated[float, typer.Option(help="Proven gap at which each point stops.")] = 0.02,
    time_limit: Annotated[float, typer.Option(help="Seconds of each point at most.")] = 120.0,
    seed: question.Seed = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of finished points, to resume from.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Neither read nor keep points.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Ask a family of questions and say what changes the answer.

    Finished points are kept, so that a study that was interrupted or extended goes on where it
    stopped. Exit code 0 if any point has an answer, 1 if none has, 2 if what is asked is wrong at every point (a name
    that nothing has), 4 if one is an error of Rackfit's own.
    """
    from rackfit.cli.app import EXIT_BAD_INPUT, EXIT_INTERNAL
    from rackfit.documents.output import make_folder, say, write_whole
    from rackfit.figures.drawing import check_charts
    from rackfit.figures.files import write_figures
    from rackfit.studies.base import Options
    from rackfit.studies.grid import parse_over
    from rackfit.studies.run import default_cache, study
    from topology.errors import InstanceError, Problem

    problems = []
    if not 0 <= gap < 1:
        problems.append(Problem("--gap", f"must be at least 0 and below 1, got {gap:g}"))
    if not 0 < time_limit < 1e9:
        problems.append(Problem("--time-limit", f"must be positive seconds, got {time_limit:g}"))
    if problems:
        raise InstanceError(problems)
    if png is not None:
        check_charts("--png")
    make_folder(out)
    make_folder(png)
    make_folder(cache)
    kept = None if fresh else cache or default_cache()
    if kept is not None and cache is None:
        try:
            make_folder(kept)
        except InstanceError as error:
            say(f"rackfit: points are not kept: {error}")
            kept = None
    if scenario is not None:
        question.refuse_others(scenario)
    progress = _Progress()
    try:
        result = study(
            name,
            scenario,
            over=parse_over(over or []),
            jobs=jobs,
            backend=backend,
            options=Options(gap=gap, time_limit_s=time_limit, seed=seed),
            cache=kept,
            on_point=progress,
        )
    except KeyboardInterrupt:
        done = f"stopped: {progress.done} of {progress.total} points are done"
        on = "; the same command goes on from there" if kept is not None else ""
        say(f"rackfit: {done + on if progress.done else 'stopped before a point was done'}")
        raise
    alike: dict[str, list[str]] = {}
    for row in result.failed:
        place = ", ".join(f"{key}={row[key]}" for key in result.axes if key in row)
        alike.setdefault(row["error"], []).append(place)
    for why, places in alike.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        say(f"rackfit: {places[0]}{more}: {why}")
    written = result.write(out) if out is not None else []
    if png is not None:
        written += write_figures(result.figures(), svg=None, png=png)
    if json:
        write_whole(result.text(), None)
    else:
        _print(result)
    for path in written:
        say(f"written: {path}")
    if len(result.failed) == len(result.rows):
        how = {row["status"] for row in result.failed}
        bad = EXIT_BAD_INPUT if how == {"bad_input"} else 1
        raise typer.Exit(EXIT_INTERNAL if "internal" in how else bad)


class _Progress:
    """Rewrites one line on a terminal: points done, reused, failed, and time to go."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.reused = self.failed = self.done = self.total = 0

    def __call__(self, done: int, total: int, row: dict[str, Any], reused: bool) -> None:
        self.done, self.total = done, total
        self.reused += reused
        self.failed += bool(row["error"])
        if not sys.stderr.isatty():
            return
        solved = done - self.reused
        each = (time.monotonic() - self.start) / solved if solved else 0.0
        full = round(24 * done / total)
        sys.stderr.write(
            f"\r[{'#' * full}{'.' * (24 - full)}] {done}/{total} points, {self.reused} reused, "
            f"{self.failed} failed, {each * (total - done):.0f} s to go   "
        )
        if done == total:
            sys.stderr.write("\n")
        sys.stderr.flush()


#: columns of a table that rest on prices or times
_RESTING = (
    "usd_per_m_output_tokens",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s",
    "tpot_s",
)


def _cell(value: object) -> str:
    """A value of the table; empty where there is none."""
    if value is None:
        return ""
    from topology.quantity import figure

    return figure(value, 4) if isinstance(value, float) else str(value)


def _print(result: Any) -> None:
    from rich.table import Table

    from rackfit.console import make_console, print_sentence, print_table
    from rackfit.quoting import plain

    console = make_console()
    console.print(plain(result.study.question), style="bold", highlight=False)
    shown = {**{key: key for key in result.axes}, **result.study.shown}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in shown.values():
        table.add_column(plain(title))
    for row in result.rows:
        cells = [(key, row.get(key, "")) for key in shown]
        texts = [_cell(value) for _, value in cells]
        if row.get("assumed"):
            texts = [
                f"{text}*" if key in _RESTING else text
                for (key, _), text in zip(cells, texts, strict=True)
            ]
        table.add_row(*map(plain, texts))
    print_table(console, table)
    if any(row.get("assumed") for row in result.rows):
        print_sentence(console, "* rests on assumed figures, named below")
    for sentence in result.conclusion:
        print_sentence(console, plain(sentence))

"""``rackfit validate``: predict each row of a file of measured runs and print the errors."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costmodel.measured.fitting.calibration import validate_unseen
from costmodel.measured.load.runs import LoadRun, read_load_runs
from costmodel.measured.load.scores import validate_load
from costmodel.measured.scores import Score, Validation, validate_rows
from costmodel.question.profile import load_profile
from costmodel.question.traffic.sessions import read_sessions
from rackfit.cli import runs
from rackfit.documents.output import check_writable, write_whole
from rackfit.figures.drawing import chart_svg, check_charts
from rackfit.figures.scatter_plot import scatter_chart
from rackfit.measurements.rows import read_runs, tool_of
from rackfit.quoting import shell_word
from rackfit.report.load_words import load_text
from topology.errors import InstanceError, Problem
from topology.names import shown, shown_lines
from topology.quantity import per_cent


class LeftOutKey(StrEnum):
    """What a row shares with no row of the fit that predicts it; a system is a chip in its usual domain."""

    model = "model"
    system = "system"
    chip = "chip"
    engine = "engine"


def register(app: typer.Typer) -> None:
    """Add ``validate`` to the application."""
    app.command("validate", no_args_is_help=True)(validate)


def validate(
    measured: runs.Files = None,
    *,
    chip: Annotated[str | None, typer.Option(help="Chip of results that name none.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine that --launch is for.")] = None,
    launch: runs.Launch = None,
    model: runs.Model = None,
    warm_up: runs.WarmUp = 0.0,
    profile: Annotated[
        str | None,
        typer.Option(help="physics, calibrated (default), calibrated:ENGINE, or a profile file."),
    ] = None,
    left_out: Annotated[
        LeftOutKey | None,
        typer.Option(
            help="Predict each row by a fit of the shipped runs that never saw its model, system, chip or engine."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a scatter plot of TPOT (SVG).")] = None,
    load: Annotated[
        Path | None, typer.Option(help="JSON of load tests instead: replayed beside measured.")
    ] = None,
    sessions: Annotated[
        Path | None,
        typer.Option(
            help="CSV of conversations that stand for those of load tests whose own are not known."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Predict each measured run and print the error, by model, system and engine.

    Rows that cannot be used are named with the reason. The columns are those of the shipped
    measurements; see docs/accuracy.md and docs/your-measurements.md. With --left-out (needs scipy) no row is predicted by a fit that
    has seen its model, system, chip or engine. With --load each test is replayed request by request; see
    docs/replay.md.
    """
    if bool(measured) == (load is not None):
        raise InstanceError(
            Problem("validate", "give either files of measured runs, or --load FILE")
        )
    if left_out is not None and (load is not None or profile is not None):
        other = "--load" if load is not None else "--profile"
        raise InstanceError(Problem("--left-out", f"fits anew for a CSV of runs; not with {other}"))
    if sessions is not None and load is None:
        raise InstanceError(Problem("--sessions", "stands for those of load tests; give --load"))
    named = profile or "calibrated"
    if load is not None:
        if plot is not None:
            raise InstanceError(Problem("--plot", "draws TPOT of a CSV of runs, not load tests"))
        talks = None if sessions is None else read_sessions(sessions)
        tests = validate_load(_load_runs(load), named, sessions=talks)
        typer.echo(
            json.dumps(tests.as_dict() | {"profile": named})
            if as_json
            else shown_lines(load_text(tests))
        )
        return
    assert measured
    if plot is not None:
        check_charts("--plot")
    check_writable(plot, besides=(*measured, launch))
    rows, skipped = read_runs(measured, runs.told(launch, chip, engine, model, warm_up))
    if left_out is None:
        found, fitted = validate_rows(rows, skipped, load_profile(named)), {"profile": named}
    else:
        key = "system" if left_out is LeftOutKey.chip else left_out.value
        found, fitted = validate_unseen(rows, skipped, key), {"left_out": left_out.value}
    if plot is not None:
        chart = scatter_chart(
            (1e3 * found.measured_tpot_s).tolist(),
            (1e3 * found.tpot_s).tolist(),
            [run.row.model for run in found.runs],
            "ms per output token",
        )
        write_whole(chart_svg(chart), plot)
    typer.echo(json.dumps(found.as_dict() | fitted) if as_json else shown_lines(_text(found)))


def _load_runs(path: Path) -> list[LoadRun]:
    """Load tests of a file. Raises ``InstanceError``; it says where a file of another kind goes."""
    try:
        return read_load_runs(path)
    except InstanceError:
        tool = tool_of(path)
        if tool is None:
            raise
        kind = "a table of runs (CSV)" if tool == "a CSV" else f"a result of {tool}"
        file = shell_word(str(path))
        message = f"{kind}, which --load does not read; leave --load out: rackfit validate {file}"
        raise InstanceError(Problem(shown(path, 200), message)) from None


def _text(found: Validation) -> str:
    lines = [_line("TPOT", found.tpot()), _line("TTFT", found.ttft())]
    for key in ("model", "system", "engine"):
        lines += ["", f"TPOT by {key}"]
        lines += [_line(f"  {name}", one) for name, one in found.by(key).items()]
    if found.unsupported:
        lines += ["", f"not scored: {len(found.unsupported)} rows"]
        reasons = Counter(skipped.reason for skipped in found.unsupported)
        for reason, count in reasons.most_common():
            first = next(s.id for s in found.unsupported if s.reason == reason)
            lines.append(f"  {count:5d}  {reason} (first: {first})")
    return "\n".join(lines)


def _line(name: str, one: Score | None) -> str:
    if one is None:
        return f"{name:<44} not measured"
    return (
        f"{name:<44} mean {one.mape:6.1%}  median {one.median_ape:6.1%}  p90 {one.p90:6.1%}  "
        f"bias {per_cent(one.bias, signed=True):>6}  {one.n:5d} rows"
    )

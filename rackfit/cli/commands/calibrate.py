"""``rackfit calibrate``: fit a profile to one's own measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.measured.fitting.calibration import Calibration, calibrate, profile_json
from costmodel.measured.systems import system_names
from rackfit.cli import runs
from rackfit.documents.output import check_writable, write_whole
from rackfit.measurements.rows import read_runs
from topology.errors import InstanceError, Problem
from topology.names import shown_lines


def register(app: typer.Typer) -> None:
    """Add ``calibrate`` to the application."""
    app.command("calibrate", no_args_is_help=True)(run)


def run(
    measured: runs.Files = None,
    *,
    chip: Annotated[
        str | None,
        typer.Option(help="Use the rows of this chip only; chip of results that name none."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Use the rows of this engine only; engine that --launch is for."),
    ] = None,
    launch: runs.Launch = None,
    model: runs.Model = None,
    warm_up: runs.WarmUp = 0.0,
    out: Annotated[Path | None, typer.Option(help="Write the profile here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The profile on stdout.")] = False,
) -> None:
    """Fit eight physical parameters per chip and engine to measured runs; see docs/your-measurements.md.

    Use the file with --profile. Needs scipy: pip install 'rackfit\\[calibrate]'.
    """
    if not measured:
        raise InstanceError(Problem("calibrate", "give one or more files of measured runs"))
    check_writable(out, besides=(*measured, launch))
    rows, skipped = read_runs(measured, runs.told(launch, chip, engine, model, warm_up))
    if engine is not None:
        rows = [row for row in rows if row.engine == engine.lower()]
    if chip is not None:
        rows = [row for row in rows if _chip(row.system) == chip]
    found = calibrate(rows, skipped, out.stem if out is not None else "own")
    text = profile_json(found.profile)
    if out is not None:
        write_whole(text, out)
    typer.echo(text.rstrip() if as_json else shown_lines(_text(found, out)))


def _chip(system: str) -> str:
    try:
        return system_names(system)[0]
    except InstanceError:
        return ""


def _text(found: Calibration, out: Path | None) -> str:
    tpot = found.validation.tpot()
    assert tpot is not None
    lines = [
        f"{tpot.n} rows fitted, {len(found.validation.unsupported)} left out",
        f"TPOT in sample: mean error {tpot.mape:.1%}, median {tpot.median_ape:.1%}, bias {tpot.bias:+.1%}",
    ]
    lines += [part for part in found.profile.error.split("; ") if part]
    for (chip, engine), values in found.intervals.items():
        lines.append(f"{chip}, {engine}: value (90 % interval)")
        for name, (low, value, high) in values.items():
            lines.append(f"  {name:<22} {value:>10.4g} ({low:.3g} to {high:.3g})")
    if out is not None:
        lines.append(f"written: {out}")
    return "\n".join(lines)

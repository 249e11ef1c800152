"""``rackfit calibrate``: move the shipped profile by one's own measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.measured.fitting.calibration import profile_json
from costmodel.measured.own.calibration import OwnCalibration, calibrate_own
from costmodel.measured.own.prior import shipped_known
from costmodel.measured.own.profile import TOLD, Moved, error_words, moved, own_profile
from costmodel.measured.systems import system_names
from costmodel.question.profile import load_profile
from costmodel.question.scenario import load_scenario
from rackfit.cli import runs
from rackfit.documents.output import check_writable, write_whole
from rackfit.measurements.decision import decide
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
    noise: Annotated[
        float | None,
        typer.Option(help="Scatter of a measured time per token, as a share; found from the runs."),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="Question to answer before and after: a name or a file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the profile here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The profile on stdout.")] = False,
) -> None:
    """Move the shipped constants of a chip and engine by measured runs, five or five hundred; see docs/your-measurements.md.

    Runs move what they can tell; the rest stays as shipped. With --scenario it is said what that changes in the answer,
    and with --launch what it gains on what runs.

    Use the file with --profile. Needs scipy: pip install 'rackfit\\[calibrate]'.
    """
    if not measured:
        raise InstanceError(Problem("calibrate", "give one or more files of measured runs"))
    if noise is not None and not 0.001 <= noise <= 1.0:
        raise InstanceError(Problem("--noise", f"expected a share from 0.001 to 1, got {noise:g}"))
    if scenario is not None and as_json:
        raise InstanceError(Problem("--scenario", "prints words; not with --json"))
    check_writable(out, besides=(*measured, launch, Path(scenario) if scenario else None))
    asked = None if scenario is None else load_scenario(scenario)
    rows, skipped = read_runs(measured, runs.told(launch, chip, engine, model, warm_up))
    if engine is not None:
        rows = [row for row in rows if row.engine == engine.lower()]
    if chip is not None:
        rows = [row for row in rows if _chip(row.system) == chip]
    base = load_profile("calibrated")
    found = calibrate_own(rows, skipped, base, shipped_known(), noise=noise)
    profile = own_profile(found, base, out.stem if out is not None else "own")
    text = profile_json(profile)
    if out is not None:
        write_whole(text, out)
    if as_json:
        typer.echo(text.rstrip())
        return
    typer.echo(shown_lines("\n".join(_lines(found, out))))
    if asked is not None:
        engines = {run.row.engine for run in found.runs}
        engine = engines.pop() if launch is not None and len(engines) == 1 else None
        typer.echo(shown_lines("\n".join(decide(asked, profile, engine, launch).lines())))


def _chip(system: str) -> str:
    try:
        return system_names(system)[0]
    except InstanceError:
        return ""


def _lines(found: OwnCalibration, out: Path | None) -> list[str]:
    lines = [f"{len(found.runs)} runs used, {len(found.unsupported)} left out"]
    lines += [f"  left out: {one.id}: {one.reason}" for one in found.unsupported[:10]]
    lines += error_words(found)
    for cell in found.cells:
        parts = moved(cell)
        lines.append(
            f"{cell.prior.chip} with {cell.prior.engine}: shipped -> own (90 % interval), and how much of what was "
            "open the runs tell"
        )
        lines += [_line(part) for part in parts if part.told >= TOLD]
        rest = [part.name for part in parts if part.told < TOLD]
        if rest:
            lines.append(f"  hardly told by these runs, about as shipped: {', '.join(rest)}")
        lines.append(f"  runs scatter by {cell.after.row_sd:.1%} around this")
    if out is not None:
        lines.append(f"written: {out}")
    return lines


def _line(part: Moved) -> str:
    limit = "" if part.limit is None else f"; at its limit {part.limit:.4g}"
    return (
        f"  {part.name:<22} {part.before:>10.4g} -> {part.value:<10.4g} ({part.low:.3g} to {part.high:.3g}), "
        f"{part.told:.0%} told{limit}"
    )

"""``rackfit plan``: which units run which model in every hour of a day, for the least money."""

from __future__ import annotations

import json as json_module
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rackfit.cli import question

if TYPE_CHECKING:
    from costmodel.plan.question import PlanQuestion
    from solver.clock import Clock
    from solver.plan.confirm import Confirmed
    from solver.plan.day import DayPlan

#: as in ``rackfit.studies.backends``, which is read only where several searches run at a time
Backend = Literal["loky", "dask", "ray"]
_MOST_JOBS = 1000


def register(app: typer.Typer) -> None:
    """Add ``plan`` to the command line."""
    app.command("plan", no_args_is_help=True)(plan_command)


def plan_command(
    scenario: Annotated[
        str,
        typer.Argument(
            help="Models with requests by hour, and units: a shipped name or a file. Or a scenario, with --traffic."
        ),
    ],
    *,
    traffic: Annotated[
        str | None,
        typer.Option(
            help="Requests over time of the only model: a name, trace (CSV, JSONL) or YAML."
        ),
    ] = None,
    buy: Annotated[
        str,
        typer.Option(help="Kinds to buy: cluster names, joined by commas; instead of the units."),
    ] = "",
    hours: Annotated[int | None, typer.Option(help="The first so many hours.")] = None,
    spare: Annotated[
        str | None,
        typer.Option(
            help="node or rack: any one unit may be lost; or a number of chips: any units that hold them."
        ),
    ] = None,
    replayed: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Replay every hour after every loss (without traffic, even arrivals), and plan again where targets are missed.",
        ),
    ] = False,
    time_limit: question.TimeLimit = None,
    gap: Annotated[float, typer.Option(help="Gap of each search for a layout.")] = 0.01,
    seed: question.Seed = 0,
    jobs: Annotated[int, typer.Option(help="Searches at a time; -1 is one per core.")] = 1,
    backend: Annotated[Backend, typer.Option(help="Where searches run, if several do.")] = "loky",
    out: Annotated[
        Path | None,
        typer.Option(help="Write the plan and the layouts of every hour into this folder."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    json: question.AsJson = False,
) -> None:
    """Plan a day or a week: units reserved and rented, models on them hour by hour, what a loss leaves.

    Every hour's rates are carried after the loss of any spare units. Units load weights before they serve and finish
    requests after; what one model no longer needs serves another. Money is proven against plans of any layouts.
    """
    from rackfit.cli.interrupts import Stop
    from rackfit.documents.output import check_writable, new_folder, write_folder, write_whole

    check_writable(page=report, besides=(Path(scenario),))
    if out is not None:
        new_folder(out)
    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[tuple[DayPlan, Confirmed | None]] = Stop("the first plan", limit)

    def work() -> tuple[DayPlan, Confirmed | None]:
        from costmodel.plan.changed import plan_question
        from solver.clock import Clock, check_seed, check_time_limit
        from solver.plan.confirm import confirm
        from topology.errors import InstanceError, Problem, noted

        problems: list[Problem] = []
        with noted(problems):
            check_seed(seed)
        with noted(problems):
            check_time_limit(time_limit)
        if not (jobs == -1 or 1 <= jobs <= _MOST_JOBS):
            message = f"must be 1 to {_MOST_JOBS}, or -1, got {jobs}"
            problems.append(Problem("--jobs", message))
        if not 0 <= gap < 1:
            message = f"must be at least 0 and below 1, got {gap:g}"
            problems.append(Problem("--gap", message))
        with noted(problems):
            kinds = [name.strip() for name in buy.split(",") if name.strip()]
            asked = plan_question(scenario, traffic=traffic, buy=kinds, hours=hours)
            if spare is not None:
                asked = _with_spare(spare, asked)
        if problems:
            raise InstanceError(problems)
        clock = stop.clock = Clock(time_limit, started=stop.started)
        found = _planned(asked, clock, gap, seed, jobs, backend)
        stop.kept = lambda: (found, None)
        if not replayed:
            return found, None
        confirmed = confirm(found, clock=clock, seed=seed)
        return confirmed.plan, confirmed

    def finish(answer: tuple[DayPlan, Confirmed | None]) -> None:
        found, confirmed = answer
        from rackfit.documents.plan_document import layout_files, plan_document

        document = (
            json_module.dumps(plan_document(found, seed, confirmed), indent=1, allow_nan=False)
            + "\n"
        )
        if out is not None:
            write_folder({"plan.json": document, **layout_files(found)}, out)
        if report is not None:
            from rackfit.report.plan_page import plan_page

            write_whole(plan_page(found, confirmed), report)
        if json:
            write_whole(document, None)
            return
        from rackfit.report.plan_words import print_plan

        print_plan(found, confirmed)

    stop.run(work, finish)


def _planned(
    asked: PlanQuestion, clock: Clock, gap: float, seed: int, jobs: int, backend: Backend
) -> DayPlan:
    from solver.plan.day import plan_day

    if jobs == 1 and backend == "loky":
        return plan_day(asked, clock=clock, gap=gap, seed=seed)
    import joblib

    from rackfit.studies.backends import check_backend

    check_backend(backend)
    # folders where a person wants them, not in /dev/shm
    folder = {"temp_folder": tempfile.gettempdir()} if backend == "loky" else {}
    with joblib.parallel_config(backend=backend, **folder):
        return plan_day(asked, clock=clock, gap=gap, seed=seed, jobs=jobs if jobs != 1 else 2)


def _with_spare(text: str, asked: PlanQuestion) -> PlanQuestion:
    """The question with what may be lost: one unit, or as many units of each kind as hold so many chips."""
    from costmodel.plan.question import lost_of
    from topology.errors import InstanceError, Problem

    if text in ("node", "rack"):
        return asked.model_copy(update={"spare": 1, "spare_chips": 0})
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        message = f"expected node, rack or a number of chips, got {text[:40]!r}"
        raise InstanceError(Problem("--spare", message))
    asked = asked.model_copy(update={"spare": 0, "spare_chips": int(text)})
    lost_of(asked, "--spare")
    return asked

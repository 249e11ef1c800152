"""``rackfit solve``: the cheapest layout, and how far from optimal it can be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rackfit.cli import percentiles, question

if TYPE_CHECKING:
    from rackfit.documents.result import Result
    from solver.together.divided import Divided


def register(app: typer.Typer) -> None:
    """Add ``solve`` to the command line."""
    app.command("solve")(solve_command)


@question.asking()
def solve_command(
    asked: question.Asked,
    *,
    traffic: percentiles.Traffic = None,
    ttft_p99: percentiles.TtftP99 = None,
    tpot_p99: percentiles.TpotP99 = None,
    goodput: percentiles.Goodput = None,
    peak: Annotated[
        float,
        typer.Option(help="With --traffic or --rate: targets hold at so many times the mean rate."),
    ] = 1.0,
    spare: Annotated[
        str,
        typer.Option(
            help="With --traffic or --rate: they hold without any one node, rack or N chips."
        ),
    ] = "0",
    prefixes: Annotated[
        Literal["off", "hbm", "host", "any"],
        typer.Option(
            help="With --traffic: blocks of earlier prompts stay in HBM, in hosts' memory too, or what is cheaper (any)."
        ),
    ] = "off",
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Least cost in this share of the parameter sets that fit as well, 0.5 to 0.95."
        ),
    ] = None,
    time_limit: question.TimeLimit = None,
    gap: Annotated[float, typer.Option(help="Stop when this gap is proven.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Threads to use.")] = None,
    seed: question.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the layout as JSON here; of several models into this new folder."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    json: question.AsJson = False,
) -> None:
    """Find the cheapest layout and prove how far from optimal it can be.

    A scenario with several models gets a layout for each, on chips of its own, and one proof for all of them.
    """
    from rackfit.cli.interrupts import Stop

    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[Result | Divided] = Stop("the first verified layout", limit)

    def work() -> Result | Divided:
        from rackfit.api import make_instance, solve
        from rackfit.cli.together import Effort, divide
        from rackfit.documents.output import check_writable
        from rackfit.documents.result import Result
        from rackfit.progress import ProgressPrinter, answered
        from solver.clock import Clock

        if asked.several:
            unlike = {
                "traffic": traffic, "ttft_p99": ttft_p99, "tpot_p99": tpot_p99, "goodput": goodput,
                "peak": None if peak == 1.0 else peak, "spare": None if spare == "0" else spare,
                "prefixes": None if prefixes == "off" else prefixes,
                "confidence": confidence, "report": report,
            }  # fmt: skip
            effort = Effort(time_limit, gap, workers, seed)
            return divide(asked, unlike, effort, stop, out)
        check_writable(out, page=report, besides=asked.files())
        scenario = asked.build()
        wished = percentiles.Percentiles(
            traffic, ttft_p99, tpot_p99, goodput, peak, spare, prefixes
        ).read(scenario, seed)
        instance = make_instance(scenario, choosing=True)
        clock = stop.clock = Clock(time_limit, started=stop.started)

        def kept() -> Result | None:
            found = clock.kept()
            own = instance if found is None or found.instance is None else found.instance
            return None if found is None else Result(own, found, seed, workers or 1)

        stop.kept = kept
        with ProgressPrinter(sys.stderr) as progress:
            return solve(
                instance,
                time_limit_s=time_limit,
                gap=gap,
                workers=workers,
                seed=seed,
                on_progress=progress,
                on_answer=answered,
                clock=clock,
                traffic=wished,
                confidence=confidence,
            )

    def finish(answer: Result | Divided) -> None:
        from rackfit.cli.together import write_divided
        from solver.together.divided import Divided

        if isinstance(answer, Divided):
            write_divided(answer, workers, out, as_json=json)
        else:
            _write(answer, out, report, as_json=json)

    stop.run(work, finish)


def _write(result: Result, out: Path | None, report: Path | None, *, as_json: bool) -> None:
    """Write what was asked for, and print the answer."""
    from rackfit.documents.output import say, write_whole

    if out is not None:
        result.write(out)
    if report is not None:
        from rackfit.report.report import report_page

        page = report_page(result.instance, result.layout, result.evaluation, result.as_dict())
        write_whole(page, report)
    if as_json:
        write_whole(result.text(), None)
        return
    from rackfit.report.render import print_result

    print_result(result)
    if out is not None:
        from rackfit.cli.next_step import export_step

        say(f"layout written to {out}; next: {export_step(out, result.instance, result.layout)}")

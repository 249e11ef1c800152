"""``rackfit move``: from the running layout to another: bytes, minutes, steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rackfit.cli import question

if TYPE_CHECKING:
    from costmodel.layout.layout import Layout
    from costmodel.question.instance import Instance
    from costmodel.question.scenario import Scenario
    from solver.move.move import Move

Source = Literal["host", "peers", "flash", "disk"]


def register(app: typer.Typer) -> None:
    """Add ``move`` to the command line."""
    app.command("move", no_args_is_help=True)(move_command)


@question.asking(
    "scenario",
    "model",
    "weight_dtype",
    "kv_dtype",
    "draft_tokens",
    "acceptance",
    "draft",
    "choose",
    "layer_slots",
)
def move_command(
    asked: question.Asked,
    *,
    layout: Annotated[Path, typer.Argument(help="What runs: a document of rackfit solve.")],
    target: Annotated[
        str | None,
        typer.Argument(
            help="Another document, or a scenario to solve; else the layout's question as options change it."
        ),
    ] = None,
    failed: Annotated[
        str | None, typer.Option(help="Out of service: chips, nodes, links (r2,r0g3).")
    ] = None,
    taken: Annotated[
        str | None, typer.Option(help="Chips or nodes that others use (r2,r0g3).")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(help="Fewest bytes moved among layouts within this share of the best cost."),
    ] = None,
    most_bytes: Annotated[
        str | None, typer.Option(help="Least cost among layouts that move at most this ('500 GB').")
    ] = None,
    during: Annotated[
        float | None,
        typer.Option(help="Requests/s to serve all the while; else the smaller rate asked for."),
    ] = None,
    weights_from: Annotated[
        Source, typer.Option(help="Where new replicas get their weights.")
    ] = "host",
    start: Annotated[
        str, typer.Option(help="Seconds that an engine's start takes beside its weights.")
    ] = "0",
    as_placed: Annotated[
        bool, typer.Option("--as-placed", help="Keep the target document's own chips.")
    ] = False,
    time_limit: question.TimeLimit = None,
    gap: Annotated[float, typer.Option(help="Gap of the search.")] = 0.01,
    seed: question.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Write the final layout as JSON here.")] = None,
    json: question.AsJson = False,
) -> None:
    """Find where to go when a node has died or targets change, and in which steps.

    Every state in between is judged by the evaluator: of each target the looser one holds until the end.
    """
    from rackfit.cli.interrupts import Stop

    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[Move] = Stop("the move was found", limit)

    def work() -> Move:
        from costmodel.question.instance import resolve_instance
        from rackfit.documents.output import check_writable
        from rackfit.documents.result import read_result
        from rackfit.progress import ProgressPrinter
        from solver.clock import Clock, check_seed, check_time_limit
        from solver.move.move import Budget, move_to, move_within
        from solver.move.steps import Asked

        named = None if target is None else Path(target)
        check_writable(out, besides=(layout, named, *asked.files()))
        most, start_s = _checked(within, most_bytes, during, start, gap)
        budget = Budget(most, 0.01 if within is None else within)
        check_seed(seed)
        check_time_limit(time_limit)
        how = Asked(weights_from, start_s)
        instance, running, _ = read_result(layout)
        clock = stop.clock = Clock(time_limit, started=stop.started)
        stop.kept = lambda: clock.kept()
        document = None if target is None else _document(target)
        if document is not None:
            _refuse_options(asked, failed, taken, within, most_bytes)
            return move_to((instance, running), document, how, during=during, as_placed=as_placed)
        scenario = _scenario(asked, target, instance.scenario, failed, taken)
        with ProgressPrinter(sys.stderr) as progress:
            return move_within(
                (instance, running), resolve_instance(scenario), how, budget, clock=clock,
                during=during, gap=gap, seed=seed, on_progress=progress,
            )  # fmt: skip

    stop.run(work, lambda move: _write(move, out, as_json=json))


def _write(move: Move, out: Path | None, *, as_json: bool) -> None:
    """Print the move, and write where it goes."""
    import json as json_module

    from rackfit.documents.output import say, write_whole
    from rackfit.report.move_words import layout_document, move_document, print_move

    if out is not None:
        text = json_module.dumps(layout_document(move), indent=1, allow_nan=False)
        write_whole(text + "\n", out)
    if as_json:
        text = json_module.dumps(move_document(move), indent=1, allow_nan=False)
        write_whole(text + "\n", None)
        return
    print_move(move)
    if out is not None:
        say(f"final layout written to {out}")


def _document(target: str) -> tuple[Instance, Layout] | None:
    """The layout of a document; ``None`` for a scenario."""
    from rackfit.documents.result import read_result
    from topology.catalogue import is_file, read_data

    path = Path(target)
    if not is_file(path):
        return None
    data = read_data(path)
    if not isinstance(data, dict) or not {"layout", "schema_version"} & data.keys():
        return None
    instance, layout, _ = read_result(path)
    return instance, layout


def _scenario(
    asked: question.Asked,
    target: str | None,
    running: Scenario,
    failed: str | None,
    taken: str | None,
) -> Scenario:
    """The question to solve anew. Raises ``InstanceError``."""
    from costmodel.question.scenario import Scenario, load_scenario
    from topology.catalogue import checked

    if target is not None:
        question.refuse_others(target)
    base = running if target is None else load_scenario(target)
    scenario = asked.build(base)
    changed = {
        key: value for key, value in (("failed", failed), ("taken", taken)) if value is not None
    }
    if not changed:
        return scenario
    with checked("command line"):
        return Scenario.model_validate(scenario.model_dump(exclude_none=True) | changed)


def _refuse_options(
    asked: question.Asked,
    failed: str | None,
    taken: str | None,
    within: float | None,
    most_bytes: str | None,
) -> None:
    """Raise ``InstanceError`` for options that a given target leaves no room for."""
    from dataclasses import asdict

    from topology.errors import InstanceError, Problem

    given = asdict(asked) | {
        "failed": failed,
        "taken": taken,
        "within": within,
        "most_bytes": most_bytes,
    }
    message = "is for a question to solve; the target is a layout with a question of its own"
    problems = [
        Problem(f"--{name.replace('_', '-')}", message)
        for name, value in given.items()
        if value is not None
    ]
    if problems:
        raise InstanceError(problems)


def _checked(
    within: float | None, most_bytes: str | None, during: float | None, start: str, gap: float
) -> tuple[float | None, float]:
    """Most bytes and the seconds of a start; raises ``InstanceError`` with everything wrong with the numbers."""
    from topology.errors import InstanceError, Problem, noted

    problems: list[Problem] = []
    most, start_s = None, 0.0
    if most_bytes is not None:
        with noted(problems):
            most = _quantity("--most-bytes", most_bytes, "B")
    with noted(problems):
        start_s = _quantity("--start", start, "s")
    if most_bytes is not None and within is not None:
        problems.append(Problem("--most-bytes", "and --within are two budgets: give one of them"))
    if within is not None and not 0 <= within <= 10:
        message = f"expected a share from 0 to 10 (0.02 is 2 %), got {within:g}"
        problems.append(Problem("--within", message))
    if during is not None and not 0 < during < 1e9:
        problems.append(Problem("--during", f"expected requests per second, got {during:g}"))
    if not 0 <= gap < 1:
        problems.append(Problem("--gap", f"must be at least 0 and below 1, got {gap:g}"))
    if problems:
        raise InstanceError(problems)
    return most, start_s


def _quantity(option: str, text: str, unit: str) -> float:
    """A number with its unit, not negative. Raises ``InstanceError``."""
    from topology.errors import InstanceError, Problem
    from topology.quantity import parse_quantity

    try:
        found = parse_quantity(text, unit)
    except ValueError as error:
        raise InstanceError(Problem(option, str(error))) from None
    if found < 0:
        raise InstanceError(Problem(option, f"expected at least 0 {unit}, got {text[:40]!r}"))
    return found

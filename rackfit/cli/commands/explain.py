"""``rackfit explain``: why nothing fits and what would, or which limits bind."""

from __future__ import annotations

from typing import Any

import typer

from rackfit.cli import question
from topology.names import shown_lines


def register(app: typer.Typer) -> None:
    """Add ``explain`` to the command line."""
    app.command("explain")(explain_command)


@question.asking("choose")
def explain_command(
    asked: question.Asked,
    *,
    time_limit: question.TimeLimit = None,
    seed: question.Seed = 0,
    json: question.AsJson = False,
) -> None:
    """Name the limits that conflict and the nearest change in each that solves.

    Exit code 0 for both answers: something fits (with the limits that bind), or nothing does.
    """
    import json as json_module

    from rackfit.cli.interrupts import Stop

    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[str] = Stop("the answer was complete", limit)

    def work() -> str:
        from costmodel.question.engine import ANY
        from rackfit.api import make_instance
        from rackfit.documents.result import SCHEMA_VERSION
        from solver.clock import Clock, check_time_limit
        from solver.explain.conflicts import explain_conflict
        from topology.errors import InstanceError, Problem

        check_time_limit(time_limit)
        scenario = asked.build()
        if scenario.engine == ANY:
            raise InstanceError(
                Problem("--engine", "any is a choice of solve; name one engine here")
            )
        instance = make_instance(scenario)
        clock = stop.clock = Clock(time_limit, started=stop.started)
        why = explain_conflict(instance, clock=clock, seed=seed)
        answer: dict[str, Any] = {"fits": why is None}
        if why is None:
            fitting, lines = _what_binds(instance, clock, seed)
            answer |= fitting
        else:
            answer |= why.as_dict()
            lines = why.words()
        if json:
            document = {
                "schema_version": SCHEMA_VERSION,
                "instance": instance.describe(),
                "explanation": answer,
            }
            return json_module.dumps(document, indent=1, allow_nan=False) + "\n"
        return shown_lines("\n".join(lines)) + "\n"

    from rackfit.documents.output import write_whole

    stop.run(work, lambda text: write_whole(text, None))


def _what_binds(instance: Any, clock: Any, seed: int) -> tuple[dict[str, Any], list[str]]:
    """The cheapest layout and how much of each limit it uses, as data and as lines."""
    from rackfit.report.uncertainty_words import interval_words
    from rackfit.wording import at_most
    from solver.explain.binding import uses_of
    from solver.search import search

    found = search(instance, clock=clock, seed=seed)
    uses = uses_of(instance, found)
    cost = found.evaluation.usd_per_m_output_tokens
    lines = [
        f"a layout fits: it costs ${cost:.4g} per million output tokens, at most "
        f"{at_most(found.certificate.gap)} above the least possible cost",
        f"limited by {found.evaluation.bottleneck}",
    ]
    intervals = found.evaluation.intervals
    if intervals is not None:
        lines.append(f"{intervals.confidence:.0%} range: {interval_words(intervals)}")
    for use in uses:
        word = "this limit binds" if use.binds else "room is left"
        lines.append(f"{use.title}: {use.share:.1%} of the limit is used, {word}")
    return {
        "usd_per_m_output_tokens": cost,
        "gap": found.certificate.gap,
        "bottleneck": found.evaluation.bottleneck,
        "intervals": None if intervals is None else intervals.as_dict(),
        "limits": [use.as_dict() for use in uses],
    }, lines

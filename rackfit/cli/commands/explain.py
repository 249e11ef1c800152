"""``rackfit explain``: why nothing fits and what would, or which limits bind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rackfit.cli import question
from topology.names import shown_lines

if TYPE_CHECKING:
    from costmodel.question.instance import Instance
    from solver.answer import SearchResult
    from solver.clock import Clock
    from solver.explain.conflicts import Conflict
    from solver.explain.explanation import Explanation

#: a layout so close to the least possible cost is taken for the cheapest
_GAP = 0.01


def register(app: typer.Typer) -> None:
    """Add ``explain`` to the command line."""
    app.command("explain")(explain_command)


@question.asking("choose")
def explain_command(
    asked: question.Asked,
    *,
    time_limit: question.TimeLimit = 60.0,
    seed: question.Seed = 0,
    json: question.AsJson = False,
) -> None:
    """Name the limits that conflict and the nearest change in each that solves.

    Where the time ends first, what is known by then, and what was not looked at. Exit code 0 for both answers:
    something fits (with the limits that bind), or nothing does; 3 where neither is known in time.
    """
    import json as json_module

    from rackfit.cli.interrupts import Stop

    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[str] = Stop("it was known whether anything fits", limit)

    def work() -> str:
        from costmodel.question.engine import ANY
        from rackfit.api import make_instance
        from rackfit.documents.result import SCHEMA_VERSION
        from solver.clock import Clock, check_time_limit
        from solver.explain.conflicts import Conflict
        from topology.errors import InstanceError, Problem

        check_time_limit(time_limit)
        scenario = asked.build()
        if scenario.engine == ANY:
            raise InstanceError(
                Problem("--engine", "any is a choice of solve; name one engine here")
            )
        instance = make_instance(scenario)
        clock = stop.clock = Clock(time_limit, started=stop.started)
        conflict = Conflict(instance, clock, seed)

        def text(why: Explanation | None, fitting: SearchResult | None) -> str:
            answer: dict[str, Any] = {"fits": why is None}
            if why is not None:
                answer |= why.as_dict()
                lines = why.words()
            else:
                assert fitting is not None
                binding, lines = _what_binds(instance, fitting, clock)
                answer |= binding
            if json:
                document = {
                    "schema_version": SCHEMA_VERSION,
                    "instance": instance.describe(),
                    "explanation": answer,
                }
                return json_module.dumps(document, indent=1, allow_nan=False) + "\n"
            return shown_lines("\n".join(lines)) + "\n"

        def kept() -> str | None:
            fitting = conflict.fitting
            if fitting is not None:
                return text(None, clock.kept() or fitting)
            why = conflict.so_far()
            return None if why is None else text(why, None)

        stop.kept = kept
        why = conflict.explain()
        return text(why, None if why is not None else _cheapest(conflict))

    from rackfit.documents.output import write_whole

    stop.run(work, lambda text: write_whole(text, None))


def _cheapest(conflict: Conflict) -> SearchResult | None:
    """The cheapest layout of what fits that the time allows: limits bind or leave room there."""
    from solver.search import search
    from topology.errors import NoLayoutInTime

    try:
        return search(conflict.instance, clock=conflict.clock, gap=_GAP, seed=conflict.seed)
    except NoLayoutInTime:
        return conflict.fitting


def _what_binds(
    instance: Instance, found: SearchResult, clock: Clock
) -> tuple[dict[str, Any], list[str]]:
    """A layout and how much of each limit it uses, as data and as lines."""
    from rackfit.report.uncertainty_words import interval_words
    from rackfit.wording import amount, at_most
    from solver.explain.binding import uses_of
    from solver.explain.explanation import not_looked_at_words

    early = clock.over and found.certificate.gap > _GAP
    left = ("cheaper layouts, in which other limits may bind",) if early else ()

    uses = uses_of(instance, found)
    cost = found.evaluation.usd_per_m_output_tokens
    lines = [
        f"a layout fits: it costs ${amount(cost)} per million output tokens, at most "
        f"{at_most(found.certificate.gap)} above the least possible cost",
        f"limited by {found.evaluation.bottleneck}",
    ]
    intervals = found.evaluation.intervals
    if intervals is not None:
        lines.append(f"{intervals.confidence:.0%} range: {interval_words(intervals)}")
    for use in uses:
        word = "this limit binds" if use.binds else "room is left"
        lines.append(f"{use.title}: {use.share:.1%} of the limit is used, {word}")
    lines += not_looked_at_words(left)
    return {
        "usd_per_m_output_tokens": cost,
        "gap": found.certificate.gap,
        "bottleneck": found.evaluation.bottleneck,
        "intervals": None if intervals is None else intervals.as_dict(),
        "limits": [use.as_dict() for use in uses],
        "not_looked_at": list(left),
    }, lines

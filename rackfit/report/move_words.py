"""A move as words, a table and a document: where to, in which steps, beside a plain restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Replica
from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from rackfit.quoting import plain
from rackfit.wording import amount, at_most, rate
from solver.move.move import Candidate, Move
from solver.move.steps import Step

_GB = 1e9
_SOURCES = {
    "host": "host memory, which is taken to hold the model's files, at each chip's own rate",
    "peers": "replicas that run, over the cluster's links, which requests are taken to leave free",
    "flash": "flash beside each chip, which is taken to hold the model's files",
    "disk": "disks beside each chip, which are taken to hold the model's files",
}


def move_document(move: Move) -> dict[str, Any]:
    """The document of ``rackfit move --json``."""
    steps = move.steps
    bytes_read, seconds = move.restart
    return layout_document(move) | {
        "moved_bytes": move.target.moved_bytes,
        "read_bytes": sum(step.read_bytes for step in steps.steps),
        "seconds": move.seconds,
        "weights_from": move.asked.source,
        "engine_start_s": move.asked.start_s,
        "replicas_that_stay": steps.stays,
        "judged_by": {
            "ttft_s": move.through.slo.ttft,
            "tpot_s": move.through.slo.tpot,
            "requests_per_s": move.through.scenario.rate,
        },
        "least_requests_per_s": steps.least_requests_per_s,
        "one_by_one": {"least_requests_per_s": steps.order.least, "proven": steps.order.proven},
        "before": _state(steps.first),
        "steps": [_step(number, step) for number, step in enumerate(steps.steps, 1)],
        "plain_restart": {"read_bytes": bytes_read, "seconds": seconds, "requests_per_s": 0.0},
        "candidates": [_candidate(one) for one in move.candidates],
        "bound_usd_per_m_output_tokens": None
        if move.search is None
        else move.search.certificate.bound_usd_per_m_output_tokens,
    }


def layout_document(move: Move) -> dict[str, Any]:
    """The final layout with its question, as ``rackfit evaluate`` and ``export`` read it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "instance": move.instance.describe(),
        "evaluation": move.target.evaluation.as_dict(),
        "layout": layout_dict(move.target.layout),
    }


def print_move(move: Move) -> None:
    """Print the move."""
    from rich.table import Table

    from rackfit.console import make_console, print_sentence, print_table

    console = make_console()

    def line(text: str) -> None:
        print_sentence(console, plain(text))

    for text in lines_before(move):
        line(text)
    if move.steps.steps:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in (
            "step",
            "stop",
            "start",
            "GB moved",
            "GB read",
            "seconds",
            "req/s during",
            "after",
        ):
            table.add_column(column, justify="left" if column in ("stop", "start") else "right")
        for number, step in enumerate(move.steps.steps, 1):
            table.add_row(
                str(number),
                plain(replicas_words(step.stop) or "-"),
                plain(replicas_words(step.start) or _live_words(step)),
                f"{step.moved_bytes / _GB:,.1f}",
                f"{step.read_bytes / _GB:,.1f}",
                "?" if step.seconds is None else f"{step.seconds:,.1f}",
                f"{_served(step.during):,.2f}",
                f"{_served(step.after):,.2f}",
            )
        print_table(console, table)
    for text in lines_after(move):
        line(text)


def lines_before(move: Move) -> list[str]:
    """What runs, and where it goes."""
    first, target = move.steps.first, move.target
    found = [f"what still runs serves {rate(_served(first), 2)} requests/s{_broken(first)}"]
    cost = target.evaluation.usd_per_m_output_tokens
    text = "to a layout that has no price" if cost is None else (
        f"to a layout of ${amount(cost)} per million output tokens that serves "
        f"{rate(target.evaluation.requests_per_s, 2)} requests/s"
    )  # fmt: skip
    if move.search is not None and cost is not None:
        bound = move.search.certificate.bound_usd_per_m_output_tokens
        text += f", at most {at_most(max(0.0, cost / bound - 1), 3)} above the least possible cost"
    found.append(text + _broken(target.evaluation))
    if move.search is None and move.candidates:
        found.append("the search ended before it had a layout, so that this has no bound")
    for one in move.candidates:
        sign = "*" if one.name == target.name else " "
        found.append(
            f"{sign} {one.name}: ${amount(one.cost)}, {one.moved_bytes / _GB:,.1f} GB moved, "
            f"{rate(one.least_requests_per_s, 2)} requests/s at the least on the way"
        )
    return found


def lines_after(move: Move) -> list[str]:
    """What it takes, beside a restart, and what cannot be kept."""
    steps = move.steps.steps
    total = sum(step.read_bytes for step in steps)
    found = [
        f"{move.steps.stays} of {len(move.target.layout.replicas)} replicas stay; "
        f"{move.target.moved_bytes / _GB:,.1f} GB of weights go to chips that do not hold them, "
        f"{total / _GB:,.1f} GB are read; {_time(move.seconds)}"
    ]
    size, seconds = move.restart
    found.append(
        f"a plain restart of everything reads {size / _GB:,.1f} GB in {_time(seconds)}, and nothing is served meanwhile"
    )
    for number, step in enumerate(steps, 1):
        for when, state in (("while it goes on", step.during), ("after it", step.after)):
            if state.violations:
                found.append(f"step {number} cannot keep to the targets {when}{_broken(state)}")
    if steps and not any(s.during.violations or s.after.violations for s in steps):
        found.append(f"every state between keeps to {_judged_by(move)}")
    if move.steps.order.proven and len(steps) > 1:
        found.append(
            f"one start at a time leaves {rate(move.steps.order.least, 2)} requests/s at the worst moment, "
            "and no order of these leaves more"
        )
    source = _SOURCES[move.asked.source]
    start = (
        f"an engine's start takes {move.asked.start_s:g} s more"
        if move.asked.start_s
        else "engines' own start is not counted"
    )
    found.append(f"weights come from {source}; {start}")
    return found


def replicas_words(replicas: Sequence[Replica]) -> str:
    """Replicas by role and chips, each with its first chip."""
    counted: Counter[str] = Counter()
    first: dict[str, list[str]] = {}
    for one in replicas:
        kind = f"{one.role} on {len(one.chips)}"
        counted[kind] += 1
        first.setdefault(kind, []).append(one.chips[0])
    return "; ".join(
        f"{count} x {kind} ({', '.join(first[kind][:3])}{', ...' if count > 3 else ''})"
        for kind, count in counted.items()
    )


def _live_words(step: Step) -> str:
    return f"{replicas_words(step.live)} go on, changed" if step.live else "-"


def _served(state: Evaluation) -> float:
    """What the replicas could serve, whatever is asked for."""
    return state.priced.requests_per_s


def _broken(state: Evaluation) -> str:
    if not state.violations:
        return ""
    more = f" and {len(state.violations) - 1} more" if len(state.violations) > 1 else ""
    return f"; {state.violations[0]}{more}"


def _judged_by(move: Move) -> str:
    slo, rate = move.through.slo, move.through.scenario.rate
    parts = [
        f"TTFT {slo.ttft:g} s" if slo.ttft is not None else "",
        f"TPOT {slo.tpot * 1e3:g} ms" if slo.tpot is not None else "",
        f"{rate:g} requests/s" if rate is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "every rule of the evaluator"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time (some chip has no such source, or no way to it)"
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.1f} minutes"


def _replica(one: Replica) -> dict[str, Any]:
    return {"role": one.role, "shape": one.shape.model_dump(), "chips": list(one.chips)}


def _state(state: Evaluation) -> dict[str, Any]:
    return {
        "requests_per_s": _served(state),
        "ttft_s": state.ttft_s,
        "tpot_s": state.tpot_s,
        "feasible": state.feasible,
        "violations": [
            {"rule": v.rule, "place": v.place, "message": v.message} for v in state.violations
        ],
    }


def _step(number: int, step: Step) -> dict[str, Any]:
    return {
        "step": number,
        "stop": [_replica(one) for one in step.stop],
        "start": [_replica(one) for one in step.start],
        "change_while_running": [_replica(one) for one in step.live],
        "moved_bytes": step.moved_bytes,
        "read_bytes": step.read_bytes,
        "drain_s": step.drain_s,
        "load_s": step.load_s,
        "start_s": step.start_s,
        "seconds": step.seconds,
        "during": _state(step.during),
        "after": _state(step.after),
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "name": one.name,
        "usd_per_m_output_tokens": one.evaluation.usd_per_m_output_tokens,
        "requests_per_s": _served(one.evaluation),
        "moved_bytes": one.moved_bytes,
        "least_requests_per_s": one.least_requests_per_s,
    }

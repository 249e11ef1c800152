"""``failures``: what is left when chips or a rack are lost, with and without solving again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import (
    ONE_RACK,
    SOLVED,
    Axes,
    Options,
    Own,
    Row,
    Study,
    experts_words,
    solved,
)
from rackfit.studies.point import evaluated_row, solve_instance, solve_row
from topology import load_cluster

_LOST = (1, 2, 4, 8, 16)


def _axes(base: Mapping[str, Any]) -> Axes:
    """Nothing, then 1 to 16 chips lost, the last ones of each domain in turn; then a whole rack."""
    domains = load_cluster(str(base["cluster"])).domains
    depth = max(len(domain.usable) for domain in domains)
    order = [
        domain.usable[-1 - step].id
        for step in range(depth)
        for domain in domains
        if step < len(domain.usable)
    ]
    lost = ["none", *("+".join(order[:lost]) for lost in _LOST if lost < len(order))]
    racks = [domains[-1].name] if len(domains) > 1 else []
    return {"solved_again": [True, False], "failed": [*lost, *racks]}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own["solved_again"]:
        return solve_row(instance, options)
    healthy = instance.scenario.model_copy(update={"failed": ()}).model_dump_json()
    layout = _healthy_layout(healthy, options)
    gone = {chip.id for chip in instance.cluster.chips if not chip.healthy}
    kept = tuple(replica for replica in layout.replicas if not gone & set(replica.chips))
    left = layout.model_copy(update={"replicas": kept})
    if not kept:
        return {
            "output_tokens_per_s": 0.0,
            "requests_per_s": 0.0,
            "replicas_lost": len(layout.replicas),
        }
    evaluation = evaluate(instance, left)
    row = evaluated_row(instance, left, evaluation)
    # a pool without its partner, or with a slower one, serves what the weaker of the two can; no more comes than is asked for
    served, asked_for = evaluation.priced.requests_per_s, instance.scenario.rate
    served = served if asked_for is None else min(served, asked_for)
    row["output_tokens_per_s"] = served * instance.workload.output_tokens
    return row | {"replicas_lost": len(layout.replicas) - len(kept)}


@lru_cache(maxsize=4)
def _healthy_layout(scenario: str, options: Options) -> Layout:
    """The layout that runs when chips are lost: the best one of the whole cluster."""
    whole = resolve_instance(Scenario.model_validate_json(scenario))
    return solve_instance(whole, options).layout


def _by_lost(rows: Sequence[Row], again: bool) -> list[tuple[int, Row]]:
    """Chips lost, against the row of that state."""
    found = [row for row in solved(rows) if bool(row.get("solved_again", True)) == again]
    most = max((row["chips_healthy"] for row in solved(rows)), default=0)
    return sorted(((most - row["chips_healthy"], row) for row in found), key=lambda pair: pair[0])


def _chart(rows: Sequence[Row]) -> Chart:
    again, before = _by_lost(rows, True), _by_lost(rows, False)
    whole = (again or before)[0][1]

    def kept(found: list[tuple[int, Row]]) -> list[tuple[float | str, float]]:
        rate = whole["output_tokens_per_s"]
        return [(lost, row["output_tokens_per_s"] / rate * 100) for lost, row in found]

    chips: list[tuple[float | str, float]] = [
        (lost, row["chips_healthy"] / whole["chips_healthy"] * 100) for lost, row in again or before
    ]
    named = (("solved again", kept(again)), ("replicas left as they are", kept(before)))
    return Chart(
        "Output tokens per second that are kept", "chips lost", "% of what there was",
        # a line alone, which dots of what is kept of as many chips would else hide
        [*(Series(name, points) for name, points in named if points), Series("chips", chips, look="line")],
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    again, before = _by_lost(rows, True), dict(_by_lost(rows, False))
    found = again or list(before.items())
    whole = found[0][1]
    said = []
    for lost, row in found[1:]:
        share = row["chips_healthy"] / whole["chips_healthy"]
        start = f"{lost} {'chip' if lost == 1 else 'chips'} lost ({1 - share:.1%}): "
        if again:
            kept = row["output_tokens_per_s"] / whole["output_tokens_per_s"]
            start += (
                f"{kept:.1%} of the throughput is kept when solved again, {kept / share:.3f} times the "
                f"share of the chips that are left; {experts_words(row)} instead of {experts_words(whole)}"
            )
        if lost in before:
            left = before[lost]
            kept = left["output_tokens_per_s"] / whole["output_tokens_per_s"]
            start += ("; " if again else "") + (
                f"{kept:.1%} when the replicas left go on as they are "
                f"({left['replicas_lost']} of them lost)"
            )
        said.append(start + ".")
    return said or ["Only one state of the cluster has an answer."]


STUDY = Study(
    name="failures",
    question="How much throughput is left when chips are lost, solved again or not?",
    default={**ONE_RACK, "cluster": "gb200-nvl72@2"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={"solved_again": True},
    answer=_answer,
    shown={"output_tokens_per_s": "tok/s", **SOLVED, "replicas_lost": "lost"},
)  # fmt: skip

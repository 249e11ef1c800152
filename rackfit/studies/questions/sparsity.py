"""``sparsity``: experts and experts per token, against the balance batch and the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.blackboard.balance import balance_batch
from costmodel.models.summary import summarise
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.altered import with_experts
from rackfit.studies.base import (
    COUNT,
    ONE_RACK,
    SOLVED,
    Axes,
    Options,
    Own,
    Row,
    Study,
    cheapest,
    solved,
)
from rackfit.studies.board import NUMBERS, PARAMETERS, board_of
from rackfit.studies.point import solve_row
from rackfit.wording import amount


def _axes(base: Mapping[str, Any]) -> Axes:
    return {"top_k": [4, 8, 16], "experts": [64, 128, 256, 512]}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """The model with other numbers of experts of the same size; quality is not priced."""
    moe = instance.operations.moe
    experts, top_k = own["experts"], own["top_k"]
    if moe is not None:
        experts = experts if experts is not None else moe.num_experts
        top_k = top_k if top_k is not None else round(moe.top_k)
    changed = with_experts(instance, int(experts or 0), int(top_k or 0))
    board, totals = board_of(changed, own), summarise(changed.model)
    return {
        "total_params": totals.total_params,
        "active_params": totals.active_params,
        "sparsity": board.sparsity,
        "balance_batch": balance_batch(board.intensity, board.sparsity),
        "balance_batch_experts": balance_batch(board.intensity, experts / top_k),
    } | solve_row(changed, options)


def _lines(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in solved(rows):
        found.setdefault(int(row["top_k"]), []).append(row)
    return {k: sorted(line, key=lambda row: int(row["experts"])) for k, line in found.items()}


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(
            f"{k} experts per token", [(r["experts"], r["usd_per_m_output_tokens"]) for r in line]
        )
        for k, line in _lines(rows).items()
    ]
    return Chart(
        "Cost against the number of experts, each as large as before", "routed experts in a layer",
        "$ per million output tokens", series, log_x=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for k, line in _lines(rows).items():
        few, many = line[0], line[-1]
        if few is many:
            continue
        dearer = many["usd_per_m_output_tokens"] / few["usd_per_m_output_tokens"]
        said.append(
            f"{k} of {few['experts']} to {k} of {many['experts']} experts: "
            f"{many['total_params'] / few['total_params']:.1f} times the parameters at the same work "
            f"per token costs {dearer:.2f} times as much; the balance batch goes from "
            f"{few['balance_batch']:,.0f} to {many['balance_batch']:,.0f} sequences "
            f"({few['balance_batch_experts']:,.0f} to {many['balance_batch_experts']:,.0f} expert by "
            f"expert), the batch in flight from {few['batch']:,} to {many['batch']:,}."
        )
    sizes = sorted({int(row["experts"]) for row in solved(rows)})
    for size in (sizes[len(sizes) // 2],):
        there = sorted(
            (r for r in solved(rows) if r["experts"] == size), key=lambda r: int(r["top_k"])
        )
        if len(there) > 1:
            ratio = there[-1]["usd_per_m_output_tokens"] / there[0]["usd_per_m_output_tokens"]
            said.append(
                f"At {size} experts, {there[-1]['top_k']} per token instead of {there[0]['top_k']} "
                f"cost {ratio:.2f} times as much: "
                f"{there[-1]['active_params'] / there[0]['active_params']:.2f} times the work."
            )
    best = cheapest(rows)
    said.append(
        f"Cheapest of {len(solved(rows))}: {best['top_k']} of {best['experts']} experts, "
        f"${amount(best['usd_per_m_output_tokens'])} per million output tokens (quality is not priced)."
    )
    return said


STUDY = Study(
    name="sparsity",
    question="What do more experts, or more of them per token, cost to serve?",
    default=ONE_RACK,
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={**PARAMETERS, "experts": None, "top_k": None},
    numbers={**NUMBERS, "experts": COUNT, "top_k": COUNT},
    answer=_answer,
    shown={**SOLVED, "balance_batch": "balance batch"},
)  # fmt: skip

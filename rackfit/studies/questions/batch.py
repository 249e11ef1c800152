"""``batch``: latency and cost against the number of sequences, solved and on the blackboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.blackboard.aggregate import aggregate_pass, drain_s, usd_per_m_tokens
from costmodel.blackboard.balance import balance_batch
from costmodel.blackboard.trains import train_latency
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import (
    POSITIVE,
    SHARE,
    SOLVED,
    Axes,
    Options,
    Own,
    Row,
    Study,
    along,
    cheapest,
)
from rackfit.studies.board import NUMBERS, PARAMETERS, board_of
from rackfit.studies.point import solve_row
from rackfit.wording import amount

#: the batch is large enough when its cost is within this much of the cheapest
_CLOSE = 0.10
_RANK, _BATCH = "limits.max_sequences_per_rank", "board.batch"


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    return [
        {_RANK: [1, 4, 16, 64, 256, 1024]},
        {_BATCH: [72 * each for each in (1, 4, 16, 64, 256, 1024)]},
    ]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own[_BATCH] is None:
        return solve_row(instance, options)
    return blackboard_row(instance, own)


def blackboard_row(instance: Instance, own: Own) -> Row:
    """One decode pass of ``board.batch`` sequences on one domain, as ``max(compute, weights + KV)``.

    ``board.pass_s`` sets the period of the passes instead. Costs are of decode alone.
    """
    board, batch = board_of(instance, own), float(own[_BATCH])
    moe = instance.operations.moe
    timed = aggregate_pass(board.model, board.machine, batch, board.context)
    own_period = own["board.pass_s"]
    period = float(timed.total_s("lecture")) if own_period is None else float(own_period)
    endless = max(float(timed.compute_s), float(timed.kv_s)) / batch
    share = board.context / board.balance_context if board.model.kv_bytes_per_token else 0.0
    if own["board.context_share"] is not None:
        share = float(own["board.context_share"])
    waits = train_latency(period)
    per_expert = moe.num_experts / moe.top_k if moe is not None else 1.0
    rate = batch / period
    return {
        "batch": batch,
        "usd_per_m_output_tokens": usd_per_m_tokens(board.chips, board.usd_per_chip_hour, rate),
        "output_tokens_per_s": rate,
        "output_tokens_per_s_per_gpu": rate / board.chips,
        "tpot_s": period,
        "compute_s": float(timed.compute_s),
        "weights_s": float(timed.weights_s),
        "kv_s": float(timed.kv_s),
        "cost_over_endless_batch": period / batch / endless if endless else None,
        "wait_best_s": waits.best_s,
        "wait_mean_s": waits.mean_s,
        "wait_worst_s": waits.worst_s,
        "drain_s": drain_s(board.hbm_bytes * board.chips, board.machine.hbm_bytes_per_s),
        "intensity": board.intensity,
        "sparsity": board.sparsity,
        "context_share": share,
        "balance_batch": balance_batch(board.intensity, board.sparsity, share),
        "balance_batch_experts": balance_batch(board.intensity, per_expert),
        "tokens_per_expert": batch / per_expert,
    }


def _chart(rows: Sequence[Row]) -> list[Chart]:
    costs, times = [], []
    for name, found in (("solved", along(rows, _RANK)), ("blackboard", along(rows, _BATCH))):
        if found:
            least = min(row["usd_per_m_output_tokens"] for row in found)
            points = [(row["batch"], row["usd_per_m_output_tokens"] / least) for row in found]
            costs.append(Series(name, points))
            times.append(Series(name, [(row["batch"], row["tpot_s"] * 1e3) for row in found]))
    across = "sequences in flight together (one replica)"
    return [
        Chart(
            "Cost of a token against batch", across, "times the least", costs, "line", True, True
        ),
        Chart(
            "Time per token against batch", across, "ms per output token", times, "line", True, True
        ),
    ]


def _conclude(rows: Sequence[Row]) -> list[str]:
    found, board = along(rows, _RANK), along(rows, _BATCH)
    return [*(_solved(found) if found else []), *(_blackboard(board) if board else [])]


def _solved(found: Sequence[Row]) -> list[str]:
    small, best = found[0], cheapest(found)
    cost = best["usd_per_m_output_tokens"]
    enough = next(row for row in found if row["usd_per_m_output_tokens"] <= (1 + _CLOSE) * cost)
    said = [
        f"With at most {small[_RANK]} {'sequence' if small[_RANK] == 1 else 'sequences'} per rank a million output tokens cost "
        f"{small['usd_per_m_output_tokens'] / cost:.1f} times the least, "
        f"${amount(cost)}, and a token takes {small['tpot_s'] * 1e3:.1f} ms.",
        f"{enough[_RANK]} sequences per rank are within {_CLOSE:.0%} of the least cost, at "
        f"{enough['tpot_s'] * 1e3:.1f} ms per token.",
    ]
    slow = max(found, key=lambda row: float(row["tpot_s"]))
    if slow["tpot_s"] > enough["tpot_s"]:
        saved = max(0.0, 1 - slow["usd_per_m_output_tokens"] / enough["usd_per_m_output_tokens"])
        said.append(
            f"Slow mode: waiting {slow['tpot_s'] / enough['tpot_s']:.1f} times as long per token as "
            f"that saves {saved:.0%}."
        )
    if enough is not small:
        ratio = small["usd_per_m_output_tokens"] / enough["usd_per_m_output_tokens"]
        said.append(
            f"Fast mode: {enough['tpot_s'] / small['tpot_s']:.1f} times the speed of that for "
            f"{ratio:.1f} times its price, with the smallest batch."
        )
    return said


def _blackboard(found: Sequence[Row]) -> list[str]:
    row = found[-1]
    said = []
    balance = row["balance_batch"]
    without = row["intensity"] * row["sparsity"]
    said.append(
        f"Blackboard: {row['intensity']:.0f} multiplications per weight load and a sparsity of "
        f"{row['sparsity']:.1f} balance at {without:,.0f} sequences without KV, "
        f"{row['balance_batch_experts']:,.0f} counted expert by expert; "
        + (
            f"with the context's KV reads at {balance:,.0f}."
            if balance is not None
            else "with this context never: KV alone takes longer than compute."
        )
    )
    if row["cost_over_endless_batch"] is not None:
        said.append(
            f"Blackboard: the batch of {found[0]['batch']:,.0f} costs "
            f"{found[0]['cost_over_endless_batch']:,.1f} times an endless one, that of "
            f"{row['batch']:,.0f} {row['cost_over_endless_batch']:.2f} times."
        )
    said.append(
        f"Reading all of HBM once takes {row['drain_s'] * 1e3:.1f} ms: a longer pass reads bytes twice."
    )
    return said


STUDY = Study(
    name="batch",
    question="What do more sequences at once save, and what do they cost in time?",
    default={"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"},
    fixed={"slo": {}},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={**PARAMETERS, _BATCH: None, "board.pass_s": None, "board.context_share": None},
    numbers={**NUMBERS, _BATCH: POSITIVE, "board.pass_s": POSITIVE, "board.context_share": SHARE},
    answer=_answer,
    shown={**SOLVED, "balance_batch": "balance batch"},
)

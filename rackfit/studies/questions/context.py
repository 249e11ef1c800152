"""``context``: cost against the length of the prompt, for dense, windowed and sparse attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from costmodel.blackboard.aggregate import ReadPattern, tokens_read, usd_per_m_tokens
from costmodel.blackboard.balance import attention_crossover, kv_bytes_at_balance
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import POSITIVE, SOLVED, Axes, Options, Own, Row, Study, along, asked
from rackfit.studies.board import NUMBERS, PARAMETERS, board_of
from rackfit.studies.point import solve_row
from topology.errors import InstanceError, Problem

_LENGTH, _CONTEXT = "workload.input_tokens", "board.context"


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    """The scenario's model beside one with sparse and one with windowed attention."""
    models = dict.fromkeys([str(base["model"]), "deepseek-v3.2", "mimo-v2-flash"])
    lengths: list[Any] = [1000, 8000, 32000, 128000]
    return [{"model": list(models), _LENGTH: lengths}, {_CONTEXT: list(lengths)}]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own[_CONTEXT] is None:
        return solve_row(instance, options) | _crossover(instance)
    return _blackboard_row(instance, own) | _crossover(instance)


def _blackboard_row(instance: Instance, own: Own) -> Row:
    """Decode at an endless batch, where only what cannot be shared is left: compute and KV."""
    board = board_of(instance, own)
    pattern = own["board.read"]
    if pattern not in get_args(ReadPattern):
        known = ", ".join(get_args(ReadPattern))
        raise InstanceError(Problem("board.read", f"unknown pattern {pattern!r}; known: {known}"))
    read = tokens_read(board.context, pattern)
    compute = 2.0 * board.model.active_params / board.machine.flops_per_s
    kv = read * board.model.kv_bytes_per_token / board.machine.hbm_bytes_per_s
    step = own["board.price_step"]
    implied = kv_bytes_at_balance(
        board.model.active_params, board.bytes_per_param, board.intensity, float(step or 1.0)
    )
    rate = 1.0 / max(compute, kv)
    return {
        "read_pattern": pattern,
        "usd_per_m_output_tokens": usd_per_m_tokens(board.chips, board.usd_per_chip_hour, rate),
        "compute_s_per_token": compute,
        "kv_s_per_token": kv,
        "cost_over_compute": max(compute, kv) / compute,
        "utilisation_lecture": compute / max(compute, kv),
        "utilisation_book": compute / (compute + kv),
        "kv_bytes_per_token": board.model.kv_bytes_per_token,
        "balance_context": board.balance_context if board.model.kv_bytes_per_token else None,
        "kv_bytes_at_price_step": implied if step else None,
    }


def _crossover(instance: Instance) -> Row:
    """Contexts at which a decoding token's attention costs as many FLOPs as its weights do.

    Only where every attention reads the whole context; else there is no such context.
    """
    operations = instance.operations
    whole = not any(kind.states for kind in operations.kinds) and all(
        part.window is None and part.read_top_k is None and part.compress == 1
        for kind in operations.kinds
        for part in kind.attentions
    )
    if not whole:
        return {}
    return {
        "attention_crossover_tokens": attention_crossover(operations, with_head=True),
        "attention_crossover_layers_tokens": attention_crossover(operations, with_head=False),
    }


def _by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in along(rows, _LENGTH):
        found.setdefault(row["model_name"], []).append(row)
    return found


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(name, [(asked(r, _LENGTH), r["usd_per_m_output_tokens"]) for r in line])
        for name, line in _by_model(rows).items()
    ]
    board = along(rows, _CONTEXT)
    if board:
        points = [(row[_CONTEXT], row["usd_per_m_output_tokens"]) for row in board]
        series.append(Series("blackboard: decode alone", points))
    return Chart(
        "Cost against context", "prompt tokens", "$ per million output tokens", series,
        log_x=True, log_y=True,
    )  # fmt: skip


def attention_share(row: Row) -> float:
    """Share of a pass of the largest generating replica that reads and scores the context."""
    parts = {key: row[key] for key in row if key.startswith("time_") and key.endswith("_s")}
    return float(parts.get("time_attention_context_s", 0.0) / sum(parts.values()))


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for name, line in _by_model(rows).items():
        short, long = line[0], line[-1]
        if short is long:
            said.append(f"{name}: one length has an answer, {asked(short, _LENGTH):,}.")
            continue
        ratio = long["usd_per_m_output_tokens"] / short["usd_per_m_output_tokens"]
        times = asked(long, _LENGTH) / asked(short, _LENGTH)
        said.append(
            f"{name}: a prompt {times:g} times as long ({asked(short, _LENGTH):,} to {asked(long, _LENGTH):,} "
            f"tokens) makes a token of the answer, prompt included, {ratio:.1f} times as dear; "
            f"attention over the context is {attention_share(short):.0%} of a generating pass "
            f"before, {attention_share(long):.0%} after."
        )
        lengths = [asked(row, _LENGTH) for row in line if attention_share(row) >= 0.5]
        if lengths:
            said.append(
                f"{name}: attention over the context is half of a generating pass or more at "
                f"{', '.join(f'{length:,}' for length in lengths)} prompt tokens."
            )
        prefill = [f"{row['prefill_chips'] / row['chips_used']:.0%}" for row in line]
        said.append(
            f"{name}: share of the chips that compute prompts only, by length: {', '.join(prefill)}."
        )
        if "attention_crossover_tokens" in short:
            said.append(
                f"{name}: attention's FLOPs equal those of the weights at "
                f"{short['attention_crossover_tokens']:,.0f} tokens of context when decoding."
            )
    board = along(rows, _CONTEXT)
    if board and board[0]["balance_context"]:
        row = board[-1]
        said.append(
            f"Blackboard: decode's KV reads take as long as its compute at "
            f"{row['balance_context']:,.0f} tokens; at {row[_CONTEXT]:,} a token costs "
            f"{row['cost_over_compute']:.1f} times its compute, utilisation "
            f"{row['utilisation_lecture']:.0%}."
        )
    return said


STUDY = Study(
    name="context",
    question="What does a longer context cost, with dense, windowed and sparse attention?",
    default={
        "model": "deepseek-v3",
        "cluster": "gb200-nvl72",
        "workload": "chat",
        "slo": {"tpot": 0.05},
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={**PARAMETERS, "board.read": "dense", "board.price_step": None},
    numbers={**NUMBERS, "board.price_step": POSITIVE},
    answer=_answer,
    shown={**SOLVED, "balance_context": "balance context"},
)

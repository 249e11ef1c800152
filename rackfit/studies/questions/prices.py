"""``prices``: what input, output, cached and long-context tokens should cost, and what a price step tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from costmodel.blackboard.aggregate import aggregate_pass
from costmodel.blackboard.balance import kv_bytes_at_balance
from costmodel.blackboard.token_prices import cost_over_compute, hit_usd_per_m, marginal_usd_per_m
from costmodel.question.instance import Instance
from costmodel.question.workload import Workload
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import POSITIVE, Axes, Options, Own, Row, Study, along, asked
from rackfit.studies.board import NUMBERS, PARAMETERS, Board, board_of, positive
from rackfit.studies.point import found_row, solve_instance
from rackfit.wording import amount
from solver.answer import SearchResult

_LENGTH, _TOKENS, _STEP = "workload.input_tokens", "board.tokens_per_pass", "board.price_step"
#: share of a prompt that a cache hit covers
_CACHED = 0.8


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    """Prompts from short to long; passes of 1 (decode) to 1,000 tokens; price steps of lists."""
    return [
        {_LENGTH: [1000, 8000, 32000, 64000]},
        {_TOKENS: [1, 2, 5, 10, 100, 1000]},
        {_STEP: [32_000, 128_000, 200_000, 1_000_000]},
    ]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own[_TOKENS] is not None:
        return _pass_row(instance, own)
    if own[_STEP] is not None:
        return _step_row(instance, own)
    return _solved_row(instance, options)


def _solved_row(instance: Instance, options: Options) -> Row:
    """The scenario and three like it: half as many more prompt tokens, twice the answer, a cache hit."""
    asked = instance.workload
    longer = asked.input_tokens + max(1, asked.input_tokens // 2)
    cached = int(_CACHED * asked.input_tokens)
    sharper = replace(options, gap=min(options.gap, 0.005))
    base = _with(instance, cached_tokens=0)
    found = solve_instance(base, sharper)
    usd = _usd_per_request(base, found)
    others = {
        "input": _with(base, input_tokens=longer),
        "output": _with(base, output_tokens=2 * asked.output_tokens),
        "hit": _with(base, cached_tokens=cached),
    }
    each = {
        name: _usd_per_request(other, solve_instance(other, sharper))
        for name, other in others.items()
    }
    input_usd = marginal_usd_per_m(usd, each["input"], longer - asked.input_tokens)
    output_usd = marginal_usd_per_m(usd, each["output"], asked.output_tokens)
    hit_usd = hit_usd_per_m(input_usd, usd, each["hit"], cached)
    return found_row(base, found) | {
        "usd_per_request": usd,
        "input_usd_per_m": input_usd,
        "output_usd_per_m": output_usd,
        "hit_usd_per_m": hit_usd,
        # what the searches leave open may exceed what more tokens cost
        "output_over_input": output_usd / input_usd if input_usd > 0 else None,
        "hit_over_input": hit_usd / input_usd if input_usd > 0 else None,
    }


def _with(instance: Instance, **changes: int) -> Instance:
    """The same question with other lengths and no hold."""
    data = instance.workload.model_dump() | {"hold_s": None, "return_rate": None, **changes}
    return replace(instance, workload=Workload.model_validate(data))


def _usd_per_request(instance: Instance, found: SearchResult) -> float:
    per_m = found.evaluation.usd_per_m_output_tokens
    assert per_m is not None
    return per_m * instance.workload.output_tokens / 1e6


def _pass_row(instance: Instance, own: Own) -> Row:
    """Cost of a token in passes of so many tokens of a sequence, in units of its compute."""
    board, tokens = board_of(instance, own), positive(own, _TOKENS)
    ratio = own["board.memory_over_compute"]
    known = (
        _memory_over_compute(board, own)
        if ratio is None
        else positive(own, "board.memory_over_compute")
    )
    cost = cost_over_compute(known, tokens)
    return {
        "memory_over_compute": known,
        "cost_over_compute": cost,
        "output_over_input": cost_over_compute(known, 1.0) / cost,
        "utilisation": 1.0 / cost,
    }


def _memory_over_compute(board: Board, own: Own) -> float:
    """Memory time over compute time of a decode pass of ``board.batch`` sequences."""
    timed = aggregate_pass(board.model, board.machine, positive(own, "board.batch"), board.context)
    return float((timed.weights_s + timed.kv_s) / timed.compute_s)


def _step_row(instance: Instance, own: Own) -> Row:
    """KV bytes per token that make a list's price step the context at which KV outweighs compute."""
    board, step = board_of(instance, own), positive(own, _STEP)
    implied = kv_bytes_at_balance(
        board.model.active_params, board.bytes_per_param, board.intensity, step
    )
    return {
        "kv_bytes_at_price_step": implied,
        "kv_bytes_per_token": board.model.kv_bytes_per_token,
        "balance_context": board.balance_context if board.model.kv_bytes_per_token else None,
    }


def _chart(rows: Sequence[Row]) -> Chart:
    line = along(rows, _LENGTH)
    if not line:
        passes = along(rows, _TOKENS)
        points = [(row[_TOKENS], row["cost_over_compute"]) for row in passes]
        return Chart(
            "Cost of a token against tokens of a sequence in a pass", "tokens of a sequence in a pass",
            "times its compute", [Series("blackboard", points)], log_x=True,
        )  # fmt: skip
    names = {"input": "input", "output": "output", "hit": "cached input"}
    return Chart(
        "Price without margin, by kind of token", "prompt tokens", "$ per million tokens",
        [Series(names[kind], [(asked(r, _LENGTH), r[f"{kind}_usd_per_m"]) for r in line]) for kind in names],
        log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    line = along(rows, _LENGTH)
    for row in line:
        said.append(
            f"{asked(row, _LENGTH):,} prompt tokens: a million more tokens of input cost {_usd(row['input_usd_per_m'])}, of "
            f"output {_usd(row['output_usd_per_m'])}{_over(row['output_over_input'], '.1f', ' times')}, of cached input "
            f"{_usd(row['hit_usd_per_m'])}{_over(row['hit_over_input'], '.0%', ' of input')}."
        )
    if len(line) > 1 and all(
        row[f"{kind}_usd_per_m"] > 0 for row in (line[0], line[-1]) for kind in ("input", "output")
    ):
        short, long = line[0], line[-1]
        said.append(
            f"From {asked(short, _LENGTH):,} to {asked(long, _LENGTH):,} prompt tokens the price of input rises by a factor "
            f"of {long['input_usd_per_m'] / short['input_usd_per_m']:.2f}, that of output by "
            f"{long['output_usd_per_m'] / short['output_usd_per_m']:.2f}."
        )
    passes = along(rows, _TOKENS)
    if passes:
        one = passes[0]
        enough = next((row for row in passes if row["cost_over_compute"] <= 1.0), None)
        said.append(
            f"Blackboard: memory takes {one['memory_over_compute']:.2g} times as long as compute in a decode "
            f"pass, so output costs up to {max(1.0, one['memory_over_compute']):.2g} times as much as input"
            + (
                f"; a pass over {enough[_TOKENS]:,} tokens of each sequence waits for compute."
                if enough
                else "."
            )
        )
    for row in along(rows, _STEP):
        said.append(
            f"Blackboard: a price step at {row[_STEP]:,} tokens would mean {row['kv_bytes_at_price_step']:,.0f} bytes of "
            f"KV per token; this model has {row['kv_bytes_per_token']:,.0f}."
        )
    return said


def _usd(found: float) -> str:
    return f"${amount(found)}" if found > 0 else "no more than the searches leave open"


def _over(times: float | None, digits: str, what: str) -> str:
    return "" if times is None or times <= 0 else f" ({times:{digits}}{what})"


STUDY = Study(
    name="prices",
    question="What do input, output, cached and long-context tokens cost, and what does a price list tell?",
    default={
        "model": "deepseek-v3",
        "cluster": "gb200-nvl72",
        "workload": {"input_tokens": 4000, "output_tokens": 1000},
        "slo": {"tpot": 0.05},
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        **PARAMETERS,
        _TOKENS: None,
        _STEP: None,
        "board.memory_over_compute": None,
        "board.batch": 2000,
    },
    numbers={
        **NUMBERS,
        **dict.fromkeys((_TOKENS, _STEP, "board.memory_over_compute", "board.batch"), POSITIVE),
    },
    answer=_answer,
    shown={
        "input_usd_per_m": "input $/M",
        "output_usd_per_m": "output $/M",
        "hit_usd_per_m": "cached $/M",
        "output_over_input": "output/input",
        "cost_over_compute": "cost/compute",
        "kv_bytes_at_price_step": "KV B/token",
    },
)

"""``scale-up``: the same chips in domains of different sizes, and real systems taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from costmodel.blackboard.aggregate import aggregate_pass
from costmodel.question.instance import Instance, resolve_instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import (
    POSITIVE,
    SOLVED,
    Axes,
    Options,
    Own,
    Row,
    Study,
    cheapest,
    experts_words,
    settled,
    solved,
    varied,
)
from rackfit.studies.board import NUMBERS, PARAMETERS, board_of
from rackfit.studies.point import described_row, solve_row
from rackfit.studies.systems.measured import measured_row, pairs
from rackfit.studies.systems.steps import GAINS, SYSTEMS, step_of
from rackfit.wording import amount

#: parts of a pass that wait for links between chips
NETWORK = ("dispatch", "combine", "all_reduce", "hand_off")
#: a size is enough when its cost is within this much of the cheapest
_CLOSE = 0.02
_SIZE, _SYSTEM, _CHIPS, _MEASURED = "cluster.domain_size", "system", "board.chips", "measured"
#: TPOT target of the real systems, seconds: one that the oldest of them meets
_TPOT = "system_tpot"


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    sizes: list[Any] = [8, 16, 36, 72, 144, 576]
    return [
        {_SIZE: sizes},
        {_SYSTEM: list(SYSTEMS)},
        {_CHIPS: list(sizes)},
        {_MEASURED: list(pairs())},
    ]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    if own[_MEASURED] is not None:
        return measured_row(str(own[_MEASURED]), options)
    if own[_SYSTEM] is not None:
        step = step_of(str(own[_SYSTEM]))
        slo = instance.slo.model_copy(update={"tpot": own[_TPOT]})
        scenario = instance.scenario.model_copy(
            update={"cluster": step.cluster, "failed": (), "slo": slo}
        )
        changed = replace(resolve_instance(scenario), cluster=step.build())
        row = described_row(changed) | solve_row(changed, options)
        return row | {"system_chip": step.chip.name, "gain": step.gain}
    if own[_CHIPS] is not None:
        board = board_of(instance, own)
        timed = aggregate_pass(board.model, board.machine, 1.0)
        return {
            "weights_s": float(timed.weights_s),
            "domain_hbm_bytes": board.hbm_bytes * board.chips,
            "weights_share_of_domain": board.model.weight_bytes / board.hbm_bytes / board.chips,
        }
    return solve_row(instance, options)


def network_share(row: Row) -> float:
    """Share of a pass of the largest replica that waits for links between chips."""
    parts = {key: row[key] for key in row if key.startswith("time_") and key.endswith("_s")}
    waits = sum(parts.get(f"time_{part}_s", 0.0) for part in NETWORK)
    return float(waits / sum(parts.values()))


def _with(rows: Sequence[Row], key: str) -> list[Row]:
    return [row for row in rows if key in row]


def _chart(rows: Sequence[Row]) -> list[Chart]:
    drawn = ((_SIZE, _sizes_chart), (_SYSTEM, _systems_chart), (_CHIPS, _floor_chart))
    return [chart(solved(_with(rows, key))) for key, chart in drawn if solved(_with(rows, key))]


def _sizes_chart(found: Sequence[Row]) -> Chart:
    return Chart(
        "Cost against the size of a scale-up domain, total chips equal",
        "chips in a scale-up domain", "$ per million output tokens",
        [
            Series(f"{name}, {label}" if label else name, [(r["domain_size"], r[key]) for r in rows])
            for label, rows in varied(found, (_SIZE,)).items()
            for name, key in (
                ("cheapest layout", "usd_per_m_output_tokens"),
                ("proven bound", "bound_usd_per_m_output_tokens"),
            )
        ],
        log_x=True,
    )  # fmt: skip


def _systems_chart(found: Sequence[Row]) -> Chart:
    bars = [(_bar(row), row["output_tokens_per_s_per_gpu"]) for row in found]
    return Chart(
        "Real systems of 72 chips, one property exchanged after another",
        "system, and what it takes from the next one", "output tokens per second and chip",
        [Series("cheapest layout", bars)], kind="bar",
    )  # fmt: skip


def _bar(row: Row) -> str:
    """The system as it is, or its chip and the property that came last."""
    system = str(row[_SYSTEM])
    return f"{row['system_chip']} + {row['gain']}" if "+" in system else system


def _floor_chart(found: Sequence[Row]) -> Chart:
    return Chart(
        "Blackboard: time to read every weight once", "chips in a scale-up domain", "milliseconds",
        [Series("total weights over the domain's bandwidth", [
            (row[_CHIPS], row["weights_s"] * 1e3) for row in found])],
        log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for key, words in (
        (_SIZE, _sizes),
        (_SYSTEM, _systems),
        (_CHIPS, _floor),
        (_MEASURED, _measured),
    ):
        found = _with(rows, key)
        if not solved(found):
            continue
        if words is not _sizes:
            said += words(found)
            continue
        for label, rows_alike in varied(solved(found), (_SIZE,)).items():
            said += [f"{label}: {line}" if label else line for line in _sizes(rows_alike)]
    return said


def _sizes(rows: Sequence[Row]) -> list[str]:
    found = sorted(settled(rows), key=lambda row: int(row["domain_size"]))
    best, small = cheapest(found), found[0]
    ratio = small["usd_per_m_output_tokens"] / best["usd_per_m_output_tokens"]
    enough = next(
        row for row in found
        if row["usd_per_m_output_tokens"] <= (1 + _CLOSE) * best["usd_per_m_output_tokens"]
    )  # fmt: skip
    alike = [
        row
        for row in found
        if row is not best
        and row["bound_usd_per_m_output_tokens"] <= best["usd_per_m_output_tokens"]
    ]
    unproven = ", ".join(str(row["domain_size"]) for row in alike)
    widths = ", ".join(
        f"{row['domain_size']}: {experts_words(row)}"
        + (f" over {row['domains_per_stage']} domains" if row["domains_per_stage"] > 1 else "")
        for row in found
    )
    return [
        f"Domains of {best['domain_size']} are the cheapest found, ${amount(best['usd_per_m_output_tokens'])} "
        f"per million output tokens; domains of {small['domain_size']} cost {ratio:.2f} times that.",
        f"Domains of {enough['domain_size']} are within {_CLOSE:.0%} of the cheapest: more than that "
        "buys little here."
        + (f" Not proven dearer than the cheapest: domains of {unproven}." if alike else ""),
        f"Expert parallelism of the best layout at each size: {widths}.",
        f"Network: waiting for links is {network_share(small):.0%} of a pass in domains of "
        f"{small['domain_size']}, {network_share(best):.0%} in domains of {best['domain_size']}.",
        f"Capacity: {small['sequences_per_chip']:.1f} sequences per chip in domains of "
        f"{small['domain_size']}, {best['sequences_per_chip']:.1f} in domains of "
        f"{best['domain_size']}.",
        f"Bandwidth: reading and multiplying routed experts takes {_experts_ms(small):.1f} ms of a "
        f"pass in domains of {small['domain_size']}, {_experts_ms(best):.1f} ms in domains of "
        f"{best['domain_size']}.",
    ]


def _experts_ms(row: Row) -> float:
    return float(row.get("time_routed_experts_s", 0.0)) * 1e3


def _systems(rows: Sequence[Row]) -> list[str]:
    """What each property brings, in the order in which they are exchanged."""
    found = solved(rows)
    said = []
    for before, row in pairwise(found):
        if row["gain"]:
            rate = row["output_tokens_per_s_per_gpu"] / before["output_tokens_per_s_per_gpu"]
            cost = row["usd_per_m_output_tokens"] / before["usd_per_m_output_tokens"]
            said.append(
                f"{row[_SYSTEM]}{'' if '+' in row[_SYSTEM] else ' itself'}: {GAINS[row['gain']]} bring {rate:.2f} times the tokens per chip, "
                f"at {cost:.2f} times the cost of a token."
            )
    first, last = found[0], found[-1]
    if first is not last:
        whole = last["output_tokens_per_s_per_gpu"] / first["output_tokens_per_s_per_gpu"]
        said.append(f"{first[_SYSTEM]} to {last[_SYSTEM]}: {whole:.1f} times the tokens per chip.")
    return said


def _floor(rows: Sequence[Row]) -> list[str]:
    found = sorted(solved(rows), key=lambda row: int(row[_CHIPS]))
    first, last = found[0], found[-1]
    return [
        f"Blackboard: reading every weight once takes {first['weights_s'] * 1e3:.2f} ms on "
        f"{first[_CHIPS]} chips, {last['weights_s'] * 1e3:.3f} ms on {last[_CHIPS]}; the weights are "
        f"{first['weights_share_of_domain']:.0%} and {last['weights_share_of_domain']:.1%} of their HBM."
    ]


def _measured(rows: Sequence[Row]) -> list[str]:
    said = []
    for row in solved(rows):
        asked = f"{row['cluster_name']}, {row['asked']}"
        plain = row.get("our_ratio_of_plain_layouts")
        alone = row.get("our_ratio_within_a_node")
        words = f"Measured, {asked}: {row['measured_ratio']:.2f} times the tokens per chip; here "
        if plain is not None:
            words += (
                f"{plain:.2f} times with layouts as they are run, each replica of the older system in "
                f"one node and {row['draft_tokens']} token drafted per pass, {row['acceptance']:.0%} "
                "accepted (assumed: what was drafted is not published). The cheapest layouts of both: "
            )
        words += f"{row['our_ratio']:.2f} times"
        if alone is not None:
            words += (
                f" where the older system's experts may span nodes, {alone:.2f} times where each "
                "replica stays in one"
            )
        said.append(f"{words}.")
    return said


STUDY = Study(
    name="scale-up",
    question="How large should a scale-up domain be, and what do larger ones bring?",
    default={"model": "deepseek-v3", "workload": "chat", "slo": {"ttft": 2.0, "tpot": 0.03}},
    fixed={"cluster": "nvl-72@8"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={**PARAMETERS, _SYSTEM: None, _MEASURED: None, _TPOT: 0.05},
    numbers={**NUMBERS, _TPOT: POSITIVE},
    answer=_answer,
    unheeded={
        _SYSTEM: ("slo.tpot", "cluster"),
        _CHIPS: ("slo.", "workload.", "cluster"),
        _MEASURED: ("slo.", "workload.", "cluster"),
    },
    shown={**SOLVED, "weights_s": "weights s", "our_ratio": "ratio", "measured_ratio": "measured"},
)

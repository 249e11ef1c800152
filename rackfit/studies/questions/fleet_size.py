"""``fleet-size``: units of each kind to buy for a rate, its peak and a loss, against speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import SIZED, Axes, Options, Own, Row, Study, asked, solved, varied
from rackfit.wording import counted
from solver.clock import Clock
from solver.plan.sizing.carried import MOST_CHIPS
from solver.plan.sizing.size import Sized, Wanted, size


def _axes(base: Mapping[str, Any]) -> Axes:
    """Three kinds and speeds; at the scenario's rate where it has one."""
    rate = base.get("rate")
    asked_for = {"mean_rate": [rate]} if isinstance(rate, int | float) else {}
    kinds = ["gb200-nvl72", "hgx-h200", "mi355x"]
    return {"cluster": kinds, "slo.tpot": [0.015, 0.025, 0.05], **asked_for}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """The fewest units of one kind; none where they would be more chips than are solved."""
    wanted = Wanted(float(own["mean_rate"]), float(own["peak"]), int(own["spare"]))
    (found,) = size(
        instance.scenario, [instance.scenario.cluster], wanted,
        clock=Clock(options.time_limit_s), gap=options.gap, seed=options.seed,
    )  # fmt: skip
    return {
        "units": found.count,
        "least_units": found.least,
        "chips_bought": _chips(found),
        "units_gap": found.gap,
        "headroom": found.headroom,
        "usd_per_hour": found.usd_per_hour,
        "usd_per_m_at_the_mean": found.usd_per_m_output_tokens,
        "assumed": "; ".join(found.assumed),
        "price_basis": found.provenance.get("money", ""),
    }


def _chips(found: Sized) -> int:
    return found.about * found.chips_per_unit


def _bought(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Kinds whose number was found, by speed."""
    found: dict[str, list[Row]] = {}
    for row in sorted(solved(rows), key=_tpot):
        if row["units"] is not None:
            found.setdefault(str(row["cluster"]), []).append(row)
    return found


def _too_few(number: int) -> str:
    return f" ({number} {'is' if number == 1 else 'are'} proven too few)" if number else ""


def _tpot(row: Row) -> float:
    return float(asked(row, "slo.tpot") or inf)


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(
            f"{kind}, {label}" if label else kind,
            [
                (1e3 * _tpot(row), row["usd_per_m_at_the_mean"])
                for row in own
                if isfinite(_tpot(row))
            ],
        )
        for label, alike in _alike(rows).items()
        for kind, own in _bought(alike).items()
    ]
    return Chart(
        "What a fleet for the peak costs, against speed", "TPOT target, ms",
        "$ per million output tokens at the mean rate", series,
    )  # fmt: skip


def _alike(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Solved rows by what is asked for besides kind and speed."""
    return varied(solved(rows), ("slo.tpot",), ("mean_rate", "peak", "spare", "model", "engine"))


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for label, alike in _alike(rows).items():
        said += [f"{label}: {line}" if label else line for line in _by_speed(alike)]
    return said


def _by_speed(rows: Sequence[Row]) -> list[str]:
    """What each kind takes at each speed."""
    said = []
    for at in sorted({_tpot(row) for row in solved(rows)}):
        here = [row for row in solved(rows) if _tpot(row) == at]
        found = sorted(
            (row for row in here if row["units"] is not None), key=lambda row: row["usd_per_hour"]
        )
        words = [
            f"{counted(row['units'], 'unit')} of {row['cluster']} at ${row['usd_per_m_at_the_mean']:.3f}"
            + _too_few(row["least_units"] - 1)
            for row in found
        ]
        words += [
            f"{row['cluster']} would need about {row['chips_bought']:,} chips, more than the "
            f"{MOST_CHIPS:,} that are solved"
            for row in here
            if row["units"] is None
        ]
        if words:
            speed = f"At {1e3 * at:g} ms per token" if isfinite(at) else "At any speed"
            said.append(f"{speed}: {'; '.join(words)}.")
    return said


STUDY = Study(
    name="fleet-size",
    question="How many racks or nodes must be bought, of which kind, at each speed?",
    default={
        "model": "deepseek-r1",
        "workload": {"input_tokens": 3000, "output_tokens": 2000},
        "slo": {"ttft": 2.0, "tpot": 0.025},
        "cluster": "gb200-nvl72",
    },
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={"mean_rate": 500.0, "peak": 3.0, "spare": 1},
    numbers=SIZED,
    answer=_answer,
    shown={
        "units": "units",
        "least_units": "proven least",
        "chips_bought": "chips",
        "usd_per_hour": "$/h",
        "usd_per_m_at_the_mean": "$/M at the mean",
        "headroom": "headroom",
    },
)

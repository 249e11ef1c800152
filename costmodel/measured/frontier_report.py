"""Optima beside the best measured runs: the file that ``python -m benchmarks.frontier`` writes, and its table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import exp, log, prod
from typing import Any

from topology.catalogue import data_dir

FILE = "frontier.csv"
HEADING = "## Optima beside the best measured runs"
#: what follows in the report
NEXT = "## Published deployments"
#: groups with a factor above this are listed one by one
LISTED = 1.3
FREEDOMS = ("model_error", "batch", "balance", "widths", "apart", "idle_chips")
_WORDS = ("model error", "batch", "balance", "widths", "prefill and decode apart", "idle chips")


@dataclass(frozen=True)
class Split:
    """One group's best measured run, and the factors from it to the optimum at its TPOT.

    ``output_tokens_per_s``: measured, per chip. Each factor is the rate with one freedom more over that without.
    """

    run: str
    model: str
    chip: str
    engine: str
    precision: str
    mode: str
    input_tokens: float
    output_tokens: float
    tpot_ms: float
    output_tokens_per_s: float
    model_error: float
    batch: float
    balance: float
    widths: float
    apart: float
    idle_chips: float

    @property
    def factors(self) -> tuple[float, ...]:
        """In the order in which freedoms are given."""
        return tuple(float(getattr(self, name)) for name in FREEDOMS)

    @property
    def whole(self) -> float:
        """The optimum over the measured run."""
        return prod(self.factors)


def read_splits() -> list[Split]:
    """What was written so far; empty where there is no file."""
    path = data_dir("measured") / FILE
    if not path.is_file():
        return []
    numbers = {field.name for field in fields(Split) if field.type == "float"}
    with path.open(encoding="utf-8", newline="") as text:
        rows: list[dict[str, Any]] = list(csv.DictReader(text))
    for row in rows:
        row |= {name: float(row[name]) for name in numbers}
    return [Split(**row) for row in rows]


def frontier_lines(splits: Sequence[Split]) -> list[str]:
    """The section of the accuracy report; nothing without groups."""
    if not splits:
        return []
    head = "| " + " | ".join(("", *_WORDS, "optimum over measured")) + " |"
    rule = "|---" * (len(_WORDS) + 2) + "|"
    high = [one for one in splits if max(*one.factors, one.whole) > LISTED]
    lines = [
        "",
        HEADING,
        "",
        f"Of {len(splits)} groups of runs (model, system, precision, lengths) that with the most tokens/s per GPU, and what is",
        "promised at its TPOT with the constants of its engine and its KV precision. `python -m benchmarks.frontier` gives one",
        "freedom at a time, in the order of the columns; each factor is the rate after it over the rate before, and their",
        "product is the optimum over the measured run. Balance is how experts are loaded and placed; idle chips, what whole",
        "workers on whole domains lose. A factor below 1 loses. Where a group was measured at few batches and widths, the best",
        "run is far from what its chips can do. Geometric means:",
        "",
        head,
        rule,
        _line("all", splits),
    ]
    for mode in ("aggregated", "disaggregated"):
        some = [one for one in splits if one.mode == mode]
        if some:
            lines.append(_line(f"{mode} ({len(some)})", some))
    lines += ["", f"The {len(high)} groups with a factor above {LISTED:g}:", "", head, rule]
    for one in sorted(high, key=lambda one: -one.whole):
        name = (
            f"{one.model} {one.precision or 'own precision'}, {one.chip} {one.engine} {one.mode}, "
            f"{one.input_tokens:.0f} / {one.output_tokens:.0f}, {one.tpot_ms:.0f} ms"
        )
        lines.append(_line(name, [one]))
    return lines


def _line(name: str, splits: Sequence[Split]) -> str:
    means = [
        exp(sum(log(value) for value in column) / len(splits))
        for column in zip(*((*one.factors, one.whole) for one in splits), strict=True)
    ]
    return f"| {name} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |"

"""What a study is: a question, axes, a chart and words computed from its table. Solves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackfit.chart import Chart

#: one line of a study's table: axis values first, then what was found (see ``rackfit.studies.point``)
Row = dict[str, Any]
#: scenario keys such as ``slo.tpot`` with the values each one takes
Axes = dict[str, list[Any]]


@dataclass(frozen=True)
class Study:
    """One family of questions.

    ``default`` is the scenario asked about when none is given, ``fixed`` are keys that the study
    needs whatever the scenario says, ``axes`` gives the axes of a scenario (``--over`` replaces or
    adds some). ``chart`` and ``conclude`` read the finished rows and nothing else, so that figure
    and words cannot disagree with the table.
    """

    name: str
    question: str
    default: Mapping[str, Any]
    axes: Callable[[Mapping[str, Any]], Axes]
    chart: Callable[[Sequence[Row]], Chart]
    conclude: Callable[[Sequence[Row]], list[str]]
    fixed: Mapping[str, Any] = field(default_factory=dict)


def solved(rows: Sequence[Row]) -> list[Row]:
    """Rows that have an answer."""
    return [row for row in rows if not row["error"]]


#: an answer whose gap is wider than this settles nothing
OPEN_GAP = 0.05


def settled(rows: Sequence[Row]) -> list[Row]:
    """Solved rows proven close to optimal; every solved row where none is."""
    found = solved(rows)
    return [row for row in found if row["gap"] <= OPEN_GAP] or found


def cheapest(rows: Sequence[Row]) -> Row:
    """The solved row with the least dollars per million output tokens."""
    return min(solved(rows), key=lambda row: float(row["usd_per_m_output_tokens"]))

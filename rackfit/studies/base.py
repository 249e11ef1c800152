"""What a study is: a question, axes, a chart and words computed from its table. Solves nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart
from topology.errors import Problem
from topology.names import brief
from topology.quantity import figure

#: one line of a study's table: axis values first, then what was found (see ``rackfit.studies.point``)
Row = dict[str, Any]
#: scenario keys such as ``slo.tpot``, or a study's own parameters, with the values each one takes
Axes = dict[str, list[Any]]
#: values of a study's own parameters at one point
Own = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """What numbers a parameter of a study's own may be; ``above``: more than ``least``."""

    least: float
    most: float
    whole: bool = False
    above: bool = False

    def admits(self, value: object) -> bool:
        """Whether a value is such a number."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.least <= value <= self.most and not (self.above and value == self.least)

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        first = f"above {figure(self.least)}, up" if self.above else f"from {figure(self.least)}"
        return f"{kind} {first} to {figure(self.most)}"


#: shares of a whole, counts, and what is measured
SHARE, COUNT, POSITIVE = Number(0, 1), Number(1, 1_000_000, whole=True), Number(0, 1e18, above=True)
#: of what is sized: requests/s, their peak over the mean, units that may be lost
SIZED: Mapping[str, Number] = {
    "mean_rate": Number(1e-6, 1e9),
    "peak": Number(1, 1000),
    "spare": Number(0, 1000, whole=True),
}


@dataclass(frozen=True)
class Options:
    """How each point is searched: relative gap, seconds at most (``None``: until proven), seed."""

    gap: float = 0.02
    time_limit_s: float | None = 120.0
    seed: int = 0


#: asked about where no scenario is given: a large mixture of experts on one rack
ONE_RACK: Mapping[str, Any] = {
    "model": "deepseek-v3",
    "cluster": "gb200-nvl72",
    "workload": "chat",
    "slo": {"ttft": 2.0, "tpot": 0.03},
}

#: columns of the table that a terminal shows, with their titles
SOLVED = {
    "status": "status",
    "usd_per_m_output_tokens": "$/M output",
    "output_tokens_per_s_per_gpu": "tok/s/chip",
    "tpot_s": "TPOT s",
    "experts_on": "experts on",
    "tp": "tp",
    "pp": "pp",
    "batch": "batch",
}


def experts_words(row: Row) -> str:
    """How the experts of a row's largest generating replica lie."""
    lie = row.get("experts_on", f"EP {row['ep']}")
    return f"experts {lie}" if lie.startswith("cut") else str(lie)


@dataclass(frozen=True)
class Study:
    """One family of questions.

    ``default`` is the scenario asked about when none is given, ``fixed`` are keys that the study
    needs whatever the scenario says, ``axes`` gives the axes of a scenario, or several sets of axes
    whose points follow each other (``--over`` replaces or adds some). ``chart`` and ``conclude``
    read the finished rows and nothing else, so that figure and words cannot disagree with the table.

    ``parameters`` are keys of the study's own, with the values they have where no axis says
    otherwise, and ``numbers`` says which numbers they may be; ``answer`` makes the row of a point from its instance and these. A study without
    ``answer`` asks the solver. ``shown`` are the columns that a terminal prints. The page of a study
    that is ``explored`` has sliders over its points.
    """

    name: str
    question: str
    default: Mapping[str, Any]
    axes: Callable[[Mapping[str, Any]], Axes | Sequence[Axes]]
    chart: Callable[[Sequence[Row]], Chart | Sequence[Chart]]
    conclude: Callable[[Sequence[Row]], list[str]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    parameters: Own = field(default_factory=dict)
    numbers: Mapping[str, Number] = field(default_factory=dict)
    answer: Callable[[Instance, Own, Options], Row] | None = None
    shown: Mapping[str, str] = field(default_factory=lambda: SOLVED)
    unheeded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    explored: bool = False

    def figures(self, rows: Sequence[Row]) -> list[Chart]:
        """Every chart of a finished table."""
        drawn = self.chart(rows)
        charts = [drawn] if isinstance(drawn, Chart) else list(drawn)
        note = " ".join(basis_words(rows))
        return [replace(chart, note=note) for chart in charts]

    def problems(self, over: Axes) -> list[Problem]:
        """What is wrong with values for the study's own parameters, and with values that are no numbers for any key."""
        found = []
        for key, values in over.items():
            number, usual = self.numbers.get(key), self.parameters.get(key)
            for value in values:
                if value is None and usual is None:
                    continue
                if isinstance(value, float) and not isfinite(value):
                    found.append(Problem(f"--over {key}", f"expected a finite number, got {value}"))
                    continue
                if number is not None and not number.admits(value):
                    found.append(Problem(f"--over {key}", f"expected {number}, got {brief(value)}"))
                if isinstance(usual, bool) and not isinstance(value, bool):
                    message = f"expected true or false, got {brief(value)}"
                    found.append(Problem(f"--over {key}", message))
        return found

    def blocks(self, base: Mapping[str, Any], over: Axes) -> list[Axes]:
        """Sets of axes of a scenario, with ``over`` in place.

        An axis given replaces the one of its name; a new one joins the sets with an axis of the same
        first part (``board.intensity`` those with ``board.batch``), else all of them. A set with an
        axis without values is left out. The study's own axes are those of the scenario with what ``over`` gives one value:
        chips that are lost are chips of the cluster that is asked about.
        """
        said = {key: values[0] for key, values in over.items() if len(values) == 1}
        found = self.axes({**base, **{key: said[key] for key in base.keys() & said.keys()}})
        blocks = [dict(found)] if isinstance(found, dict) else [dict(block) for block in found]
        for key, values in over.items():
            family = key.split(".")[0]
            homes = [block for block in blocks if key in block]
            homes = homes or [
                block for block in blocks if any(own.split(".")[0] == family for own in block)
            ]
            for block in homes or blocks:
                if not any(key.startswith(self.unheeded.get(own, ())) for own in block):
                    block[key] = values
        return [block for block in blocks if all(block.values())]


def basis_words(rows: Sequence[Row]) -> list[str]:
    """What the figures of a table assume, and whether its prices can be compared, one sentence each."""
    found = solved(rows)
    assumed = dict.fromkeys(
        phrase for row in found for phrase in str(row.get("assumed") or "").split("; ") if phrase
    )
    said = [f"Assumed: {'; '.join(_together(list(assumed)))}."] if assumed else []
    bases = dict.fromkeys(str(row["price_basis"]) for row in found if row.get("price_basis"))
    if len(bases) > 1:
        said.append(f"Prices do not rest on one basis: {'; '.join(bases)}.")
    return said


def _together(phrases: Sequence[str]) -> list[str]:
    """Phrases such as ``price of h20`` with those of one figure joined: ``price of h20, trn2``."""
    names: dict[str, list[str]] = {}
    for phrase in phrases:
        figure, _, name = phrase.partition(" of ")
        own = names.setdefault(figure, [])
        own += [one for one in name.split(", ") if one and one not in own]
    return [f"{figure} of {', '.join(own)}" if own else figure for figure, own in names.items()]


def solved(rows: Sequence[Row]) -> list[Row]:
    """Rows that have an answer."""
    return [row for row in rows if not row["error"]]


#: an answer whose gap is wider than this settles nothing
OPEN_GAP = 0.05


def settled(rows: Sequence[Row]) -> list[Row]:
    """Solved rows proven close to optimal; every solved row where none is."""
    found = solved(rows)
    return [row for row in found if row["gap"] <= OPEN_GAP] or found


def varied(
    rows: Sequence[Row], besides: Collection[str], also: Collection[str] = ()
) -> dict[str, list[Row]]:
    """Rows by what they were asked besides an axis: a label such as ``slo.tpot 0.02``, empty where all are alike.

    ``also``: columns without a dot in their names that are axes.
    """
    keys = [
        key
        for key in dict.fromkeys(key for row in rows for key in row if "." in key or key in also)
        if key not in besides and len({repr(row.get(key)) for row in rows}) > 1
    ]
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(f"{key} {row.get(key)}" for key in keys), []).append(row)
    return found


def cheapest(rows: Sequence[Row]) -> Row:
    """The solved row with the least dollars per million output tokens."""
    return min(solved(rows), key=lambda row: float(row["usd_per_m_output_tokens"]))


def asked_column(key: str) -> str:
    """The column with the number of an axis whose values were written as text."""
    return f"{key.replace('.', '_')}_asked"


def asked(row: Row, key: str) -> Any:
    """The number of a row on an axis, however it was written; ``None``: it has none."""
    value = row.get(key)
    return row.get(asked_column(key)) if isinstance(value, str) else value


def along(rows: Sequence[Row], key: str) -> list[Row]:
    """Solved rows that have a number on an axis, in its order."""
    found = [row for row in solved(rows) if asked(row, key) is not None]
    return sorted(found, key=lambda row: float(asked(row, key)))

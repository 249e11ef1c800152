"""What a chart shows: series of numbers with their labels. ``rackfit.figures.drawing`` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from topology.quantity import figure


@dataclass(frozen=True)
class Series:
    """One line, or one colour of bars: ``(x, y)`` pairs; x is a number, or a label for bars."""

    name: str
    points: Sequence[tuple[float | str, float]]
    #: what a line chart draws of it
    look: Literal["both", "line", "dots"] = "both"
    #: more words about each point, beside its numbers
    about: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """A chart of some series. ``log_x``, ``log_y``: logarithmic where all numbers are positive; ``note`` stands under the title.

    ``names``: every series of several charts that share their colours, in one order for all of them.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    kind: Literal["line", "bar"] = "line"
    log_x: bool = False
    log_y: bool = False
    note: str = ""
    names: Sequence[str] = ()

    @property
    def values(self) -> list[tuple[str, float | str, float, str]]:
        """Series, x, y and words of every point: the chart as a table."""
        return [
            (series.name, x, y, series.about[place] if series.about else "")
            for series in self.series
            for place, (x, y) in enumerate(series.points)
        ]

    @property
    def with_logarithms(self) -> Chart:
        """The same, with logarithmic axes only where every number has a logarithm."""
        log_x = self.log_x and all(float(x) > 0 for _, x, _, _ in self.values)
        log_y = self.log_y and all(y > 0 for _, _, y, _ in self.values)
        return replace(self, log_x=log_x, log_y=log_y)

    @property
    def description(self) -> str:
        """The chart in words, for who cannot see it."""
        heights = [y for _, _, y, _ in self.values]
        span = f", from {short(min(heights))} to {short(max(heights))}" if heights else ""
        drawn = "; ".join(series.name for series in self.series)
        return f"{self.title}: {self.y_label} against {self.x_label}{span}. Shown: {drawn}."


def short(value: float) -> str:
    """A number of an axis: whole numbers in full, others to three digits."""
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    return figure(value, 3) if abs(value) >= 1 else f"{value:.3g}"


def digits(value: float, most: int) -> str:
    """A number of so many digits beside others, between commas; a large one has no power of ten."""
    return figure(value, most).replace(",", "") if abs(value) >= 1 else f"{value:.{most}g}"

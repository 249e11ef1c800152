"""Line and bar charts as SVG text, in light and dark, without script or outside file.

Reads numbers and labels only; every label is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rackfit.figures.chart_text import apart, brief, covered, cut, lines_of, parts, short
from rackfit.quoting import markup

_HEIGHT, _BOTTOM = 400, 64
#: about how wide a letter is: in the body, in the title
_LETTER, _HEAD = 6.6, 8.7
#: colours told apart by the colour-blind (Okabe and Ito), as CSS classes c0 to c6, and markers
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#a6468a", "#b8860b", "#3d9fd6", "#555555")
_DARK = ("#56b4e9", "#ff8c42", "#2fd0a0", "#e59cc9", "#f0e442", "#9ad0f5", "#bbbbbb")
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 4", "1 4", "12 4")


@dataclass(frozen=True)
class Frame:
    """Width of a figure, where its plot begins and ends, where title and keys begin, SVG units."""

    width: int
    left: int
    right: int
    text: int


BROAD = Frame(width=760, left=74, right=736, text=74)
#: for telephones, where letters stay as large
NARROW = Frame(width=360, left=62, right=344, text=4)


@dataclass(frozen=True)
class Series:
    """One line, or one colour of bars: ``(x, y)`` pairs; x is a number, or a label for bars."""

    name: str
    points: Sequence[tuple[float | str, float]]
    #: what a line chart draws of it
    look: Literal["both", "line", "dots"] = "both"


@dataclass(frozen=True)
class Chart:
    """A chart of some series. ``log_x`` and ``log_y`` need positive numbers; ``note`` stands under the title."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    kind: Literal["line", "bar"] = "line"
    log_x: bool = False
    log_y: bool = False
    frame: Frame = BROAD
    note: str = ""

    def svg(self, standalone: bool = False, look: str = "") -> str:
        """The chart as SVG; ``standalone`` carries its own style, else the page's applies."""
        style = f"<style>{chart_style()}</style>" if standalone else ""
        drawn = self._bars() if self.kind == "bar" else self._lines()
        height = _HEIGHT + 20 * math.ceil(len(self.series) / self._keys_beside())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart{look}" '
            f'viewBox="0 0 {self.frame.width} {height}" '
            f'role="img" aria-label="{markup(self.title)}">{style}'
            f'<rect class="back" width="{self.frame.width}" height="{height}"/>'
            f"{self._head()}{drawn}{self._labels()}{self._keys()}</svg>"
        )

    def svgs(self) -> str:
        """The chart for a page, and again for narrow screens where it can be read there.

        One of them is shown; a chart of many bars is drawn once, and scrolls.
        """
        narrow = replace(self, frame=NARROW)
        if self.kind == "bar" and not narrow._bars_fit():
            return self.svg()
        return self.svg(look=" broad") + narrow.svg(look=" narrow")

    @property
    def _head_lines(self) -> list[tuple[str, str]]:
        """Lines above the plot: the class and the words of each."""
        room = self.frame.width - self.frame.text
        title = lines_of(self.title, int(room / _HEAD))
        note = lines_of(self.note, int(room / _LETTER)) if self.note else []
        return [("head", line) for line in title] + [("note", line) for line in note]

    @property
    def _top(self) -> int:
        return 26 + 18 * max(1, len(self._head_lines))

    def _head(self) -> str:
        x = self.frame.text
        return "".join(
            f'<text class="{look}" x="{x}" y="{24 + 18 * row}">{markup(line)}</text>'
            for row, (look, line) in enumerate(self._head_lines)
        )

    def _bars_fit(self) -> bool:
        """Whether labels and figures of all bars can be read."""
        labels = {str(x) for s in self.series for x, _ in s.points}
        step = (self.frame.right - self.frame.left) / max(1, len(labels))
        letters = int(step / 6.5)
        figures = max((len(brief(y)) for s in self.series for _, y in s.points), default=0)
        return figures * _LETTER < step / max(1, len(self.series)) and all(
            len(lines_of(label, letters)) <= 2
            and all(len(part.strip()) <= letters for part in parts(label))
            for label in labels
        )

    def _lines(self) -> str:
        xs = [float(x) for s in self.series for x, _ in s.points]
        ys = [y for s in self.series for _, y in s.points]
        across = _Axis(xs, self.log_x, self.frame.left + 10, self.frame.right - 10, zero=False)
        up = _Axis(ys, self.log_y, _HEIGHT - _BOTTOM, self._top, zero=not self.log_y)
        few = len(set(xs)) <= 10 and all(float(f"{x:.3g}") == x for x in xs)
        ticks = sorted(set(xs)) if few else across.ticks()
        marks = apart([(across.place(x), short(x)) for x in ticks])
        drawn = [self._y_grid(up), self._x_ticks(marks)]
        hidden = covered(
            (round(across.place(float(x))), round(up.place(y)))
            for s in self.series if s.look == "dots" for x, y in s.points
        )  # fmt: skip
        for index, series in enumerate(self.series):
            places = sorted((float(x), y) for x, y in series.points)
            path = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in places)
            look = f'class="line c{index % 7}" stroke-dasharray="{_DASHES[index % 7]}"'
            if series.look != "dots":
                drawn.append(f'<polyline {look} points="{path}"/>')
            for x, y in places if series.look != "line" else ():
                about = markup(f"{series.name}: {short(x)}, {y:.4g}")
                size = 4 + (3 * next(hidden) if series.look == "dots" else 0)
                drawn.append(
                    f'<circle class="dot c{index % 7}" cx="{across.place(x):.1f}" '
                    f'cy="{up.place(y):.1f}" r="{size}"><title>{about}</title></circle>'
                )
        return "".join(drawn)

    def _bars(self) -> str:
        labels = list(dict.fromkeys(str(x) for s in self.series for x, _ in s.points))
        up = _Axis(
            [y for s in self.series for _, y in s.points], self.log_y, _HEIGHT - _BOTTOM,
            self._top, zero=not self.log_y,
        )  # fmt: skip
        step = (self.frame.right - self.frame.left) / max(1, len(labels))
        wide = min(60.0, 0.8 * step / max(1, len(self.series)))
        ticks = [(self.frame.left + (i + 0.5) * step, label) for i, label in enumerate(labels)]
        drawn = [self._y_grid(up), self._x_ticks(ticks, step)]
        foot = up.place(0.0) if up.low < 0 else float(_HEIGHT - _BOTTOM)
        for index, series in enumerate(self.series):
            for label, y in series.points:
                middle = self.frame.left + (labels.index(str(label)) + 0.5) * step
                x = middle + (index - len(self.series) / 2) * wide
                end = up.place(y)
                top, tall = min(end, foot), abs(end - foot)
                about = markup(f"{series.name} {label}: {y:.4g}")
                drawn.append(
                    f'<rect class="bar c{index % 7}" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" '
                    f'height="{tall:.1f}"><title>{about}</title></rect>'
                    f'<text class="tick" text-anchor="middle" x="{x + wide / 2:.1f}" '
                    f'y="{end - 4 if y >= 0 else end + 13:.1f}">{brief(y)}</text>'
                )
        return "".join(drawn)

    def _y_grid(self, up: _Axis) -> str:
        return "".join(
            f'<line class="grid" x1="{self.frame.left}" x2="{self.frame.right}" y1="{up.place(y):.1f}" '
            f'y2="{up.place(y):.1f}"/><text class="tick" text-anchor="end" x="{self.frame.left - 8}" '
            f'y="{up.place(y) + 4:.1f}">{short(y)}</text>'
            for y in up.ticks()
        )

    def _x_ticks(self, ticks: Sequence[tuple[float, str]], step: float = 60.0) -> str:
        drawn = []
        letters = max(4, int(step / 6.5))
        for x, label in ticks:
            y = _HEIGHT - _BOTTOM + 18
            for row, text in enumerate(lines_of(label, letters)[:2]):
                drawn.append(
                    f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{y + 13 * row}">'
                    f"{markup(text)}</text>"
                )
        return "".join(drawn)

    def _labels(self) -> str:
        middle, tall = (self._top + _HEIGHT - _BOTTOM) / 2, _HEIGHT - _BOTTOM - self._top
        across = lines_of(self.x_label, int((self.frame.width - 8) / _LETTER))[:2] or [""]
        up = cut(self.y_label, int((tall + 60) / _LETTER))
        # under the plot, or over the whole width where it is longer than that
        centre = (self.frame.left + self.frame.right) / 2
        if len(across[0]) * _LETTER > 2 * (self.frame.width - centre):
            centre = self.frame.width / 2
        drawn = [
            f'<text class="name" text-anchor="middle" x="{centre}" '
            f'y="{_HEIGHT - 14 + 14 * (row + 1 - len(across))}">{markup(line)}</text>'
            for row, line in enumerate(across)
        ]
        aside = 12 if self.frame is NARROW else 18
        drawn.append(
            f'<text class="name" text-anchor="middle" transform="translate({aside} {middle}) '
            f'rotate(-90)">{markup(up)}</text>'
        )
        return "".join(drawn)

    def _keys(self) -> str:
        drawn: list[str] = []
        if len(self.series) == 1 and self.kind == "bar":
            return ""  # one colour needs no key
        beside = self._keys_beside()
        start = self.frame.text
        wide = (self.frame.width - start) // beside
        letters = int((wide - 32) / _LETTER)
        for index, series in enumerate(self.series):
            x, y = start + (index % beside) * wide, _HEIGHT + 6 + 20 * (index // beside)
            mark = (
                f'<line class="line c{index % 7}" stroke-dasharray="{_DASHES[index % 7]}" '
                f'x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}"/>'
            )
            if series.look == "dots":
                mark = f'<circle class="dot c{index % 7}" cx="{x + 13}" cy="{y - 4}" r="4"/>'
            if self.kind == "bar":
                look = f'class="key c{index % 7}"'
                mark = f'<rect {look} x="{x}" y="{y - 10}" width="26" height="11"/>'
            drawn.append(
                f'{mark}<text class="tick" x="{x + 32}" y="{y}">{markup(cut(series.name, letters))}</text>'
            )
        return "".join(drawn)

    def _keys_beside(self) -> int:
        """Keys that fit beside each other."""
        longest = max((len(series.name) for series in self.series), default=0)
        if self.frame is NARROW:
            return 2 if longest <= 20 else 1
        return 3 if longest <= 28 else 2 if longest <= 44 else 1


class _Axis:
    """Numbers to places on one axis, linear or logarithmic."""

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float, zero: bool):
        self.log, self.start, self.end = log, start, end
        low, high = min(values, default=0.0), max(values, default=1.0)
        if log and low <= 0:
            raise ValueError("a logarithmic axis needs positive numbers")
        if zero:
            low, high = min(0.0, low * 1.2), max(0.0, high) * 1.08
        self.low, self.high = low, high if high > low else low + (abs(low) or 1.0)

    def place(self, value: float) -> float:
        """Where a number stands, in SVG units."""
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers inside the axis."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = [step * 10.0**power for power in powers for step in (1, 2, 5)]
            return [tick for tick in every if self.low <= tick <= self.high]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def chart_style() -> str:
    """CSS of every chart; a page includes it once."""
    rules = (
        "svg.chart{font:12px system-ui,sans-serif;max-width:100%;height:auto}"
        ".chart .back{fill:#fff}.chart text{fill:#222}.chart .head{font-size:15px;font-weight:600}"
        ".chart .note{font-size:12px}"
        ".chart .grid{stroke:#ddd}.chart .line{fill:none;stroke-width:2.2}"
        ".chart.narrow{display:none}@media screen and (max-width:640px){.chart.broad{display:none}"
        ".chart.narrow{display:block;width:100%;max-width:480px}}"
    )
    for index, colour in enumerate(_LIGHT):
        rules += f".line.c{index}{{stroke:{colour}}}.dot.c{index},.bar.c{index},.key.c{index}{{fill:{colour}}}"
    dark = ".chart .back{fill:#16181c}.chart text{fill:#e6e6e6}.chart .grid{stroke:#3a3d44}"
    for index, colour in enumerate(_DARK):
        dark += f".line.c{index}{{stroke:{colour}}}.dot.c{index},.bar.c{index},.key.c{index}{{fill:{colour}}}"
    return f"{rules}@media (prefers-color-scheme:dark){{{dark}}}"

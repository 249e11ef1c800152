"""Charts: marks stand where their numbers say, labels are escaped."""

from __future__ import annotations

import re
from typing import Literal
from xml.etree import ElementTree

import pytest

from rackfit.figures.chart import Chart, Series

BAD = "<b>\"'&"


def dots(chart: Chart) -> list[tuple[float, float]]:
    found = re.findall(r'<circle[^>]*cx="([\d.]+)" cy="([\d.]+)"', chart.svg())
    return [(float(x), float(y)) for x, y in found]


def test_equal_ratios_are_equal_distances_on_a_log_axis() -> None:
    series = [Series("a", [(1, 1.0), (10, 10.0), (100, 100.0)])]
    places = dots(Chart("t", "x", "y", series, log_x=True, log_y=True))
    for axis in (0, 1):
        first, second, third = (place[axis] for place in places)
        assert third - second == pytest.approx(second - first, abs=0.2)


def test_lines_start_at_zero_and_larger_is_higher() -> None:
    low, high = dots(Chart("t", "x", "y", [Series("a", [(0, 0.0), (1, 5.0)])]))
    assert low[1] == 336.0
    assert high[1] < low[1]


def test_log_axes_refuse_what_has_no_logarithm() -> None:
    with pytest.raises(ValueError, match="needs positive numbers"):
        Chart("t", "x", "y", [Series("a", [(0, 1.0)])], log_x=True).svg()


def test_bars_are_as_high_as_their_numbers() -> None:
    text = Chart("t", "x", "y", [Series("a", [("p", 2.0), ("q", 4.0)])], kind="bar").svg()
    small, large = (float(h) for h in re.findall(r'class="bar c0"[^>]*height="([\d.]+)"', text))
    assert large == pytest.approx(2 * small, abs=0.2)


@pytest.mark.parametrize("kind", ["line", "bar"])
def test_hostile_labels_stay_text(kind: Literal["line", "bar"]) -> None:
    points = [(BAD if kind == "bar" else 1.0, 1.0)]
    chart = Chart(BAD, BAD, BAD, [Series(BAD, points), Series("b", points)], kind=kind)
    text = chart.svg(standalone=True)
    assert "<b>" not in text
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == BAD


def test_one_value_alone_can_be_drawn() -> None:
    assert len(dots(Chart("t", "x", "y", [Series("a", [(5, 3.0)])], log_x=True, log_y=True))) == 1


def test_negative_bars_hang_below_zero() -> None:
    text = Chart("t", "x", "y", [Series("a", [("p", -2.0), ("q", 4.0)])], kind="bar").svg()
    bars = re.findall(r'class="bar c0"[^>]*y="([\d.]+)"[^>]*height="([\d.]+)"', text)
    (below, short), (above, tall) = ((float(y), float(h)) for y, h in bars)
    assert tall == pytest.approx(2 * short, abs=0.2)
    assert above + tall == pytest.approx(below, abs=0.2)  # both stand on the line of zero


def test_crowded_ticks_are_thinned() -> None:
    points = [(float(x), 1.0) for x in (0, 1, 2, 4, 100)]
    text = Chart("t", "x", "y", [Series("a", points)]).svg()
    shown = re.findall(r'text-anchor="middle" x="[\d.]+" y="\d+">([^<]+)</text>', text)
    assert shown[0] == "0"
    assert "100" in shown
    assert "1" not in shown


def test_long_labels_break_between_words() -> None:
    bars = [(label, 1.0) for label in ("price of a chip-hour", "b", "c", "d", "e", "f", "g")]
    text = Chart("t", "x", "y", [Series("a", bars)], kind="bar").svg()
    assert ">price of a</text>" in text
    assert ">chip-hour</text>" in text

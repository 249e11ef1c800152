"""Charts: marks stand where their numbers say, words are whole, and text stays text."""

from __future__ import annotations

import json
import re
from typing import Literal
from xml.etree import ElementTree

import pytest

from rackfit.figures.chart import Chart, Series
from rackfit.figures.drawing import chart_spec, chart_svg, theme
from rackfit.figures.live import bundle_script, figure, specs_of

BAD = "<b>\"'&</script><script>alert(1)</script>"


def dots(chart: Chart) -> list[tuple[float, float]]:
    """Places of the points in the drawn figure, in their order."""
    found = []
    for node in ElementTree.fromstring(chart_svg(chart)).iter():
        if node.attrib.get("aria-roledescription") == "point":
            x, y = re.findall(r"-?[\d.]+", node.attrib["transform"])
            found.append((float(x), float(y)))
    return found


def bars(chart: Chart) -> list[tuple[float, float]]:
    """Where each drawn bar begins and ends across."""
    found = []
    for node in ElementTree.fromstring(chart_svg(chart)).iter():
        if node.attrib.get("aria-roledescription") == "bar":
            start, wide = re.match(r"M(-?[\d.]+),-?[\d.]+h(-?[\d.]+)", node.attrib["d"]).groups()  # type: ignore[union-attr]
            found.append((float(start), float(start) + float(wide)))
    return found


def test_equal_ratios_are_equal_distances_on_a_log_axis() -> None:
    series = [Series("a", [(1, 1.0), (10, 10.0), (100, 100.0)])]
    places = dots(Chart("t", "x", "y", series, log_x=True, log_y=True))
    for axis in (0, 1):
        first, second, third = (place[axis] for place in places)
        assert third - second == pytest.approx(second - first, abs=0.2)


def test_every_decade_of_a_log_axis_has_its_number() -> None:
    points = [(float(x), float(x)) for x in range(70, 12_000, 170)]
    svg = chart_svg(Chart("t", "x", "y", [Series("a", points)], log_x=True, log_y=True))
    drawn = re.findall(r">([\d,]+)</text>", svg)
    for label in ("100", "1,000", "10,000"):
        assert drawn.count(label) == 2  # across and up


def test_lines_start_at_zero_and_larger_is_higher() -> None:
    low, high = dots(Chart("t", "x", "y", [Series("a", [(0, 0.0), (1, 5.0)])]))
    assert low[1] == 320.0
    assert high[1] < low[1]


@pytest.mark.parametrize("least", [1.0, 0.0, -2.0])
def test_an_axis_is_logarithmic_where_every_number_has_a_logarithm(least: float) -> None:
    """A study of prices whose output cost less than its searches leave open had no page."""
    series = [Series("a", [(1, least), (10, 5.0)])]
    spec = chart_spec(Chart("t", "x", "y", series, log_x=True, log_y=True))
    (across,) = {one["encoding"]["x"]["scale"]["type"] for one in spec["layer"]}
    (up,) = {one["encoding"]["y"]["scale"].get("type") for one in spec["layer"]}
    assert across == "log"
    assert (up == "log") == (least > 0)


def test_bars_are_as_long_as_their_numbers() -> None:
    chart = Chart("t", "x", "y", [Series("a", [("p", 2.0), ("q", 4.0)])], kind="bar")
    small, large = (end - start for start, end in bars(chart))
    assert large == pytest.approx(2 * small, abs=0.2)


def test_negative_bars_go_the_other_way() -> None:
    chart = Chart("t", "x", "y", [Series("a", [("p", -2.0), ("q", 4.0)])], kind="bar")
    (left, zero), (same, right) = bars(chart)
    assert zero == pytest.approx(same, abs=0.2)  # both stand on the line of zero
    assert right - same == pytest.approx(2 * (zero - left), abs=0.2)


def test_one_value_alone_can_be_drawn() -> None:
    assert len(dots(Chart("t", "x", "y", [Series("a", [(5, 3.0)])], log_x=True, log_y=True))) == 1


@pytest.mark.parametrize("kind", ["line", "bar"])
def test_hostile_labels_stay_text(kind: Literal["line", "bar"]) -> None:
    points = [(BAD if kind == "bar" else 1.0, 1.0)]
    chart = Chart(BAD, BAD, BAD, [Series(BAD, points), Series("b", points)], kind=kind, note=BAD)
    svg = chart_svg(chart)
    assert "<b>" not in svg
    assert "<script" not in svg
    assert BAD in ElementTree.fromstring(svg).find(".//*[@aria-label]").attrib["aria-label"]  # type: ignore[union-attr]
    page = figure(chart)
    assert page.count("<script") == page.count("</script>") == 1
    ((_, spec),) = specs_of(page)
    assert spec["usermeta"]["title"] == BAD
    assert spec["datasets"]["rows"][0]["series"] == BAD


def test_every_word_of_a_bars_label_is_drawn() -> None:
    label = (
        "cluster gb200-nvl72@4, tpot 0.0125, model qwen3-235b-a22b-instruct-fp8, input_tokens 12000"
    )
    svg = chart_svg(Chart("t", "x", "y", [Series("a", [(label, 1.0), ("b", 2.0)])], kind="bar"))
    drawn = [text for node in ElementTree.fromstring(svg).iter() for text in node.itertext()]
    assert label.replace(" ", "") in "".join(drawn).replace(" ", "")
    assert "…" not in svg


def test_the_values_are_a_table_and_the_figure_has_words() -> None:
    chart = Chart("cost", "speed", "dollars", [Series("a & b", [(1, 0.123456), (2, 4.0)])])
    page = figure(chart)
    assert "<td>a &amp; b</td><td>1</td><td>0.123456</td>" in page
    ((_, spec),) = specs_of(page)
    assert spec["description"] == "cost: dollars against speed, from 0.123 to 4. Shown: a & b."
    assert [row["words"] for row in spec["datasets"]["rows"]] == ["a & b: 1, 0.1235", "a & b: 2, 4"]


def test_points_say_their_numbers_and_the_legend_chooses() -> None:
    spec = chart_spec(
        Chart("t", "speed", "dollars", [Series("a", [(1, 1.0)]), Series("b", [(2, 2.0)])])
    )
    (chosen,) = spec["params"]
    assert chosen["bind"] == "legend"
    assert chosen["select"] == {"type": "point", "fields": ["series"]}
    assert {"filter": {"param": "chosen"}} in spec["transform"]
    titles = [tip["title"] for tip in spec["layer"][-1]["encoding"]["tooltip"]]
    assert titles == ["series", "speed", "dollars"]


def test_both_schemes_have_as_many_colours_and_no_outside_file() -> None:
    light, dark = theme(), theme(dark=True)
    assert len(set(light["range"]["category"])) == len(set(dark["range"]["category"])) == 10
    assert light["background"] != dark["background"]
    assert "http" not in json.dumps([light, dark])


def test_nothing_in_the_bundle_ends_its_script() -> None:
    text = bundle_script()
    assert "window.vegaEmbed" in text
    assert not re.search(r"</script|<!--", text, re.IGNORECASE)


def _key(chart: Chart) -> list[dict[str, str]]:
    """The symbols of the key of a drawn chart."""
    found: list[dict[str, str]] = []
    for group in ElementTree.fromstring(chart_svg(chart)).iter():
        if "role-legend-symbol" in group.attrib.get("class", ""):
            found += [node.attrib for node in group if node.tag.endswith("path")]
    return found


def test_a_key_shows_lines_as_lines_and_dots_whole() -> None:
    """Dashes of lines were drawn round the dots, and a line alone was a triangle in the key."""
    a, b = [(0, 1.0), (1, 2.0)], [(0, 2.0), (1, 3.0)]
    for symbol in _key(Chart("t", "x", "y", [Series("a", a), Series("b", b)])):
        assert "stroke-dasharray" not in symbol
    for symbol in _key(Chart("t", "x", "y", [Series("a", a, "line"), Series("b", b, "line")])):
        assert re.fullmatch(r"M-[\d.]+,0L[\d.]+,0", symbol["d"])
    dot, line = _key(Chart("t", "x", "y", [Series("a", a, "dots"), Series("b", b, "line")]))
    assert "A" in dot["d"]
    assert "A" not in line["d"]
    across, up = (
        [float(x) for x in re.findall(r"-?[\d.]+", line["d"])[side::2]] for side in (0, 1)
    )
    assert max(across) - min(across) > 5 * (max(up) - min(up))


def test_each_line_keeps_its_dashes_beside_dots() -> None:
    points = [(0, 1.0), (1, 2.0)]
    root = ElementTree.fromstring(
        chart_svg(Chart("t", "x", "y", [Series("a", points), Series("b", points)]))
    )
    lines = [
        node.attrib
        for node in root.iter()
        if node.attrib.get("aria-roledescription") == "line mark"
    ]
    assert [line.get("stroke-dasharray") for line in lines] == ["1,0", "7,4"]

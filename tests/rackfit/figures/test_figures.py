"""Figures as files: SVG that stands alone, PNG where the extra is there, one clear message where not."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.figures.chart import Chart, Series
from rackfit.figures.drawing import chart_svg
from rackfit.figures.files import figures_of, write_figures
from rackfit.figures.live import bundle_script, figure
from rackfit.report.page import page

LINES = Chart("A & B: cost", "x", "y", [Series("a", [(1, 1.0), (2, 4.0)])])
BARS = Chart("bars", "x", "y", [Series("a", [(f"system {n}", 1.0) for n in range(20)])], "bar")
RACK = (
    '<svg class="chart" viewBox="0 0 9 9" role="img" aria-label="rack 0"><rect class="back"/></svg>'
)


def test_a_page_carries_what_draws_it_once_and_asks_for_nothing() -> None:
    text = page("t", [figure(LINES), figure(BARS)])
    assert text.count("window.vegaEmbed=") == 1
    assert len(text) <= 3_000_000
    assert not re.search(
        r"<(script|img|link|iframe)[^>]* (src|href)=(?!\"data:)", text.replace(bundle_script(), "")
    )
    assert "vegaEmbed" not in page("t", ["<p>no chart</p>"])


def test_every_figure_of_a_page_stands_alone_once(tmp_path: Path) -> None:
    text = page("t", [figure(LINES), RACK, figure(BARS), figure(BARS)])
    found = figures_of(text, ".back{fill:#fff}")
    assert list(found) == ["a-b-cost", "rack-0", "bars", "bars-2"]
    assert [path.name for path in write_figures(found, tmp_path / "svg", None)] == [
        "a-b-cost.svg", "rack-0.svg", "bars.svg", "bars-2.svg",
    ]  # fmt: skip
    for path in (tmp_path / "svg").iterdir():
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.attrib["viewBox"]
    assert ".back{fill" in found["rack-0"]
    assert "A &amp; B: cost" in found["a-b-cost"]


def test_a_hostile_label_is_no_path(tmp_path: Path) -> None:
    bad = Chart("../../<x>/é", "x", "y", [Series("a", [(1, 1.0)])])
    (written,) = write_figures(figures_of(figure(bad), ""), tmp_path, None)
    assert written.parent == tmp_path
    assert written.name == "x.svg"


def test_png_is_twice_as_wide_as_the_drawing(tmp_path: Path) -> None:
    svg = chart_svg(LINES)
    (written,) = write_figures({"a": svg}, None, tmp_path)
    start = written.read_bytes()[:24]
    assert start[:8] == b"\x89PNG\r\n\x1a\n"
    root = ElementTree.fromstring(svg)
    wide, tall = float(root.attrib["width"]), float(root.attrib["height"])
    assert struct.unpack(">II", start[16:]) == (round(2 * wide), round(2 * tall))


def test_without_the_extra_a_page_says_so_and_shows_the_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    text = page("t", [figure(LINES)])
    assert "pip install &#x27;rackfit[charts]&#x27;" in text
    assert "<td>a</td><td>2</td><td>4</td>" in text
    assert "<script" not in text


def test_an_answer_is_found_without_loading_charts(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("{model: llama-3.1-8b, cluster: hgx-h100, workload: chat}")
    program = (
        "import sys; from rackfit.cli.app import build_app; from typer.testing import CliRunner;"
        "done = CliRunner().invoke(build_app(), ['solve', 's.yaml', '--gap', '0.9']);"
        "sys.exit(done.exit_code or 'altair' in sys.modules or 'vl_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ["study", "compare", "--fresh", "--png"],
        ["report", "no-such-layout.json", "--png"],
        ["report", "no-such-layout.json", "--svg"],
        ["validate", "no-such.csv", "--plot"],
    ],
)
def test_without_the_extra_nothing_is_computed(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setattr("rackfit.studies.run.study", lambda *a, **k: pytest.fail("computed"))
    done = CliRunner().invoke(build_app(), [*command, str(tmp_path / "a.svg")])
    assert "rackfit[charts]" in str(done.exception)
    assert not (tmp_path / "a.svg").exists()

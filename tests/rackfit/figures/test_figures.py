"""Figures as files: SVG that stands alone, PNG where the extra is there, one clear message where not."""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.figures.chart import Chart, Series, chart_style
from rackfit.figures.files import figures_of, write_figures
from rackfit.report.page import page

LINES = Chart("A & B: cost", "x", "y", [Series("a", [(1, 1.0), (2, 4.0)])])
BARS = Chart("bars", "x", "y", [Series("a", [(f"system {n}", 1.0) for n in range(20)])], "bar")
HAS_PNG = importlib.util.find_spec("resvg_py") is not None


def test_a_page_draws_lines_twice_and_many_bars_once() -> None:
    assert LINES.svgs().count("<svg ") == 2
    assert re.findall(r'class="(chart[^"]*)" viewBox="0 0 (\d+)', LINES.svgs()) == [
        ("chart broad", "760"), ("chart narrow", "360"),
    ]  # fmt: skip
    assert BARS.svgs() == BARS.svg()
    few = Chart("t", "x", "y", [Series("a", [("gb200-nvl72", 1.0), ("vr-nvl72", 2.0)])], "bar")
    assert few.svgs().count("<svg ") == 2


def test_every_figure_of_a_page_stands_alone_once(tmp_path: Path) -> None:
    text = page("t", [LINES.svgs(), BARS.svgs(), BARS.svgs()])
    found = figures_of(text, chart_style())
    assert list(found) == ["a-b-cost", "bars", "bars-2"]
    assert [path.name for path in write_figures(found, tmp_path / "svg", None)] == [
        "a-b-cost.svg", "bars.svg", "bars-2.svg",
    ]  # fmt: skip
    for path in (tmp_path / "svg").iterdir():
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.attrib["viewBox"].startswith("0 0 760 ")
        assert root.find("{http://www.w3.org/2000/svg}style") is not None


def test_a_hostile_label_is_no_path(tmp_path: Path) -> None:
    bad = Chart("../../<x>/é", "x", "y", [Series("a", [(1, 1.0)])])
    (written,) = write_figures(figures_of(bad.svg(), ""), tmp_path, None)
    assert written.parent == tmp_path
    assert written.name == "x.svg"


@pytest.mark.skipif(not HAS_PNG, reason="needs the extra: rackfit[png]")
def test_png_is_as_wide_as_stated(tmp_path: Path) -> None:
    (written,) = write_figures({"a": LINES.svg(standalone=True)}, None, tmp_path)
    start = written.read_bytes()[:24]
    assert start[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", start[16:]) == (1520, 840)


@pytest.mark.parametrize(
    "command", [["study", "compare", "--fresh"], ["report", "no-such-layout.json"]]
)
def test_without_the_extra_nothing_is_computed(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr("rackfit.studies.run.study", lambda *a, **k: pytest.fail("computed"))
    done = CliRunner().invoke(build_app(), [*command, "--png", str(tmp_path / "png")])
    assert "rackfit[png]" in str(done.exception)
    assert not (tmp_path / "png").exists()

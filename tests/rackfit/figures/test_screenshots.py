"""Pages as a browser shows them: wide and narrow, light and dark, with nothing logged or fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import Browser

from rackfit.api import solve
from rackfit.report.report import report_page
from rackfit.studies.base import Options, Row
from rackfit.studies.registry import find_study, studies
from rackfit.studies.run import default_cache, study

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine"),
]
#: axes of the study that has none of its own
GRID = {"cluster": ["gb200-nvl72", "vr-nvl72"], "slo.tpot": [0.02, 0.05]}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as shown:
        yield shown


def check(browser: Browser, page: Path) -> None:
    """Every width and scheme; pictures are left beside the page for a person to look at."""
    pictures = {}
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            view = browser.show(page, width, scheme)
            assert view.logged == []
            assert [url for url in view.requested if not url.startswith(("file:", "data:"))] == []
            assert view.content_width_px <= width
            assert view.outside == []
            pictures[width, scheme] = view.png
            page.with_name(f"{page.stem}-{width}-{scheme}.png").write_bytes(view.png)
    assert pictures[1280, "light"] != pictures[1280, "dark"]


@pytest.mark.parametrize("name", sorted(studies()))
def test_every_study_on_its_default_scenario(name: str, browser: Browser, tmp_path: Path) -> None:
    over = GRID if name == "grid" else None
    options = Options(time_limit_s=60.0)
    result = study(name, over=over, cache=default_cache(), options=options, jobs=2)
    assert [row for row in result.rows if not row["error"]]
    result.write(tmp_path)
    check(browser, tmp_path / f"{name}.html")


def test_report(browser: Browser, tmp_path: Path) -> None:
    result = solve("deepseek-v3-gb200-nvl72")
    page = tmp_path / "report.html"
    page.write_text(
        report_page(result.instance, result.layout, result.evaluation, result.as_dict())
    )
    check(browser, page)


def test_report_of_a_dense_model_with_a_failed_chip(browser: Browser, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    data = {"model": "llama-3.1-8b", "cluster": "hgx-h100@2", "workload": "chat", "failed": "r1g3"}
    scenario.write_text(yaml.safe_dump(data | {"slo": {"ttft": 2.0, "tpot": 0.03}}))
    result = solve(str(scenario))
    page = tmp_path / "report.html"
    page.write_text(
        report_page(result.instance, result.layout, result.evaluation, result.as_dict())
    )
    check(browser, page)


def test_the_browser_would_see_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    """A page with each fault: the checks above are not blind."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body><div style='width:2000px'>wide</div>"
        "<div class='wide'>no way in</div><svg class='chart' role='img' viewBox='0 0 100 40' width='100' height='40'>"
        "<text class='tick' x='5' y='20'>one upon</text><text class='tick' x='6' y='20'>another</text>"
        "</svg><script>console.error('fault')</script><img src='http://127.0.0.1:9/x.png'></body>"
    )
    view = browser.show(page, 390, "light")
    assert view.content_width_px > 390
    assert any("fault" in text for text in view.logged)
    assert "http://127.0.0.1:9/x.png" in view.requested
    assert any(text.startswith("texts on each other") for text in view.outside)
    assert any(text.startswith("DIV") for text in view.outside)
    assert any(text.startswith("not reached by keyboard") for text in view.outside)
    assert "figure without a label" in view.outside


def test_a_hostile_name_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    bad = "<img src=x onerror=console.error(1)>\"'&</title><script>console.error(2)</script>"
    row: Row = {
        "cluster": bad, "model_name": bad, "cluster_name": bad, "status": "optimal", "error": "",
        "usd_per_m_output_tokens": 1.0, "bound_usd_per_m_output_tokens": 1.0, "gap": 0.0,
        "output_tokens_per_s_per_gpu": 1.0, "bottleneck": bad,
    }  # fmt: skip
    from rackfit.studies.run import StudyResult

    StudyResult(find_study("compare"), {}, {"cluster": [bad]}, (row,), 0).write(tmp_path)
    view = browser.show(tmp_path / "compare.html", 1280, "light")
    assert view.logged == []
    assert [url for url in view.requested if not url.startswith(("file:", "data:"))] == []
    assert view.content_width_px <= 1280

"""Pages as a browser shows them: wide and narrow, light and dark, with nothing logged or fetched."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import Browser, browsing

from rackfit.api import solve
from rackfit.report.report import report_page
from rackfit.studies.base import Options, Row
from rackfit.studies.registry import find_study, studies
from rackfit.studies.run import StudyResult, default_cache, study

pytestmark = pytest.mark.slow
#: axes of the study that has none of its own
GRID = {"cluster": ["gb200-nvl72", "vr-nvl72"], "slo.tpot": [0.02, 0.05]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from browsing()


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
            assert view.faults == []
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


#: every solved place of the sliders, then one between each two
_MOVED = """
(() => {
  const box = document.querySelector('.explore'), found = box.querySelector('.found'), shown = [];
  const slider = box.querySelector('input'), chosen = box.querySelector('select');
  for (let i = 0; i < chosen.options.length; i++) for (let at = 0; at <= +slider.max; at += 5) {
    chosen.selectedIndex = i;
    slider.value = at;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    const values = Object.fromEntries([...found.querySelectorAll('dd')].map(e => [e.dataset.key, e.dataset.value]));
    shown.push([found.dataset.solved, values, found.textContent]);
  }
  return shown;
})()
"""


def explored(tmp_path: Path) -> StudyResult:
    """A study of two clusters at three targets, with one point that has no answer."""
    rows: list[Row] = []
    for cluster in ("a", "b"):
        for target in (0.01, 0.03, 0.1):
            cost = 0.1 / target**0.5 * (1.1 if cluster == "b" else 1.0)
            row: Row = {
                "cluster": cluster, "slo.tpot": target, "status": "optimal", "error": "",
                "model_name": "m", "cluster_name": cluster, "prefill_chips": 2, "chips_used": 8,
                "chips_total": 9, "usd_per_m_output_tokens": cost, "tpot_s": target, "gap": 1e-3,
                "bound_usd_per_m_output_tokens": cost / 1.001,
            }  # fmt: skip
            rows.append(row)
    rows[0] = {
        "cluster": "a", "slo.tpot": 0.01, "status": "infeasible", "error": "TPOT is too tight",
    }  # fmt: skip
    axes = {"cluster": ["a", "b"], "slo.tpot": [0.01, 0.03, 0.1]}
    result = StudyResult(find_study("frontier"), {}, axes, tuple(rows), 0)
    result.write(tmp_path)
    return result


def test_sliders_show_the_values_of_the_csv(browser: Browser, tmp_path: Path) -> None:
    explored(tmp_path)
    with (tmp_path / "frontier.csv").open() as file:
        table = list(csv.DictReader(file))
    view = browser.show(tmp_path / "frontier.html", 1280, "light", picture=False, script=_MOVED)
    solved_places = [shown for shown in view.answer if shown[0] == "yes"]
    between = [text for state, _, text in view.answer if state == "no"]
    assert len(solved_places) == len(table) == 6
    for (_, values, _), line in zip(solved_places, table, strict=True):
        for key, value in values.items():
            if key in ("status", "error"):
                assert value == line[key]
            else:
                assert float(value) == float(line[key])
    assert len(between) == 4
    assert all(text.startswith("Not solved here") for text in between)
    assert "TPOT is too tight" in between[0]
    check(browser, tmp_path / "frontier.html")


def test_the_legend_chooses_and_points_say_their_numbers(browser: Browser, tmp_path: Path) -> None:
    explored(tmp_path)
    dots = "document.querySelectorAll('.plot .mark-symbol.role-mark path').length"
    page = tmp_path / "frontier.html"
    before, after, keys, words = browser.click_and_point(page, dots)
    assert (before, after, keys) == (5, 2, 2)
    assert "target: ms per output token" in words


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
    StudyResult(find_study("compare"), {}, {"cluster": [bad]}, (row,), 0).write(tmp_path)
    view = browser.show(tmp_path / "compare.html", 1280, "light")
    assert view.logged == []
    assert [url for url in view.requested if not url.startswith(("file:", "data:"))] == []
    assert view.content_width_px <= 1280

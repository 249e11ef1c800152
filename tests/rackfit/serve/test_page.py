"""The page of the server: it carries all it needs, and in a browser its answers are those of the API."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from serving import Client, started

from rackfit.serve.explore import explore_page
from topology.catalogue import catalogue_names
from topology.load import cluster_names

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
#: waits for the answer, then does with it what a planner does
_PLANNED = """
new Promise(done => {
  const wait = wanted => new Promise(go => {
    const look = setInterval(() => {
      if (document.documentElement.dataset.state === wanted) { clearInterval(look); go(); }
    }, 50);
  });
  (async () => {
    const $ = id => document.getElementById(id), saved = [];
    await wait('answered');
    URL.createObjectURL = blob => { saved.push(blob.text()); return 'data:,'; };
    $('keep').click();
    $('save').click();
    document.querySelector('.chips button').click();
    const chip = $('chip').textContent, first = $('answer').textContent;
    document.documentElement.dataset.state = '';
    $('tpot').value = -2;
    $('tpot').dispatchEvent(new Event('input', {bubbles: true}));
    await wait('answered');
    $('keep').click();
    const rows = [...$('kept').rows].map(row => [...row.cells].map(cell => cell.textContent));
    const unnamed = [...document.querySelectorAll('button, input, select')].filter(e =>
      e.tabIndex < 0 || !(e.textContent.trim() || e.labels?.length)).length;
    done({first, chip, rows, unnamed, saved: await saved[0], hash: location.hash});
  })();
})
"""


def test_it_offers_the_catalogue_and_asks_for_nothing_outside() -> None:
    text = explore_page()
    for name in (*catalogue_names("models", (".json",)), *cluster_names()):
        assert f"<option>{name}</option>" in text
    assert not re.search(r"https?://", text)
    assert not re.search(r'<(?:script|img|link|iframe)[^>]* (?:src|href)="(?!data:)', text)
    assert "innerHTML" not in text


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    yield from started("--time-limit", "300")


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="NO CHROMIUM: apt-get install chromium")
def test_a_planner_finds_moves_compares_and_saves(client: Client, tmp_path: Path) -> None:
    assert PROGRAM is not None
    asked = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
    address = f"{client.address}/#model=llama-3.1-8b&cluster=hgx-h100&ttft=0.3&tpot=-1.5"
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        view = browser.show(address, 1280, "light", picture=False, script=_PLANNED)
        narrow = browser.show(address, 390, "dark", picture=False)
    assert view.logged == narrow.logged == []
    assert view.outside == narrow.outside == []
    assert narrow.content_width_px <= 390
    assert {url for url in view.requested if not url.startswith(("data:", client.address))} == set()
    found = view.answer
    costs = []
    for tpot in (0.032, 0.01):
        _, told = client.ask(
            "solve", scenario={**asked, "slo": {"ttft": 2.0, "tpot": tpot}}, gap=0.02
        )
        costs.append(told["evaluation"]["usd_per_m_output_tokens"])
    assert [row[5] for row in found["rows"][1:]] == [f"{cost:.4f}" for cost in costs]
    assert f"${costs[0]:.4f} per million output tokens" in found["first"]
    assert found["chip"].startswith("r0g0: ")
    assert found["unnamed"] == 0
    assert "tpot=-2" in found["hash"]
    (tmp_path / "layout.json").write_text(found["saved"])
    from rackfit.documents.result import read_result

    instance, _, _ = read_result(tmp_path / "layout.json")
    assert instance.model.name == "llama-3.1-8b"

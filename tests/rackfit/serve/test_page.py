"""The page of the server: what a planner does with it, by keyboard, at two widths and in two schemes.

axe-core (Deque Systems, MPL-2.0) looks for what a person cannot see, read or reach; it comes with the package
axe-playwright-python and is no part of Rackfit.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import Browser, View, browsing, faults, look
from serving import Client, started

from costmodel.evaluate import evaluate
from rackfit.documents.result import read_result
from rackfit.exporters.export import export_layout
from rackfit.serve.explore import explore_page
from topology.catalogue import catalogue_names, data_dir
from topology.load import cluster_names

QUESTION = "model=llama-3.1-8b&cluster=hgx-h100&ttft=0.3&tpot=-1.5&worth=0.3&runs=vllm"
LAUNCH = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 8 --max-num-seqs 64"
VIEWS = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]


def test_it_offers_the_catalogue_and_asks_for_nothing_outside() -> None:
    text = explore_page()
    for name in (*catalogue_names("models", (".json",)), *cluster_names()):
        assert f"<option>{name}</option>" in text
    assert not re.search(r"https?://", text)
    assert not re.search(r'<(?:script|img|link|iframe)[^>]* (?:src|href)="(?!data:)', text)
    assert "innerHTML" not in text
    assert text.count("</script>") == 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from browsing()


@pytest.fixture(scope="module")
def client(browser: Browser) -> Iterator[Client]:
    """A server; none is started where there is no browser."""
    yield from started("--time-limit", "300")


def until(shown: Any, key: str, *states: str) -> None:
    """Wait until the page says that a task is done."""
    selectors = [f'html[data-{key}="{state}"]' for state in states or ("yes",)]
    shown.wait_for_selector(", ".join(selectors), state="attached")


def reach(shown: Any, name: str) -> None:
    """Go to a control by the tabulator alone; the one that has the focus shows it."""
    for _ in range(60):
        at, seen = shown.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.id, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()"
        )
        assert seen or not at, f"{at} does not show its focus"
        if at == name:
            return
        shown.keyboard.press("Tab")
    raise AssertionError(f"{name} is not reached")


def press(shown: Any, name: str, key: str = "Enter") -> None:
    reach(shown, name)
    shown.keyboard.press(key)


def saved(shown: Any, name: str, folder: Path) -> Path:
    """The file that a button gives."""
    with shown.expect_download() as given:
        press(shown, name, "Space")
    path = folder / str(given.value.suggested_filename)
    given.value.save_as(path)
    return path


def check(shown: Any, view: View, client: Client) -> None:
    look(shown, view, picture=True)
    assert view.logged == []
    assert {
        url for url in view.requested if not url.startswith(("data:", "blob:", client.address))
    } == set()
    assert view.outside == []
    assert view.content_width_px <= view.width_px
    assert faults(shown) == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(*VIEWS[0],), *(pytest.param(*one, marks=pytest.mark.slow) for one in VIEWS[1:])],
)
def test_the_five_tasks_of_a_planner_by_keyboard(
    browser: Browser, client: Client, tmp_path: Path, width: int, scheme: str
) -> None:
    with browser.opened(f"{client.address}/#{QUESTION}", width, scheme) as (shown, view):
        # the cheapest fleet
        until(shown, "state", "answered")
        cheapest = shown.inner_text("#answer strong")
        press(shown, "keep")
        instance, layout, document = read_result(saved(shown, "save", tmp_path))
        cost = evaluate(instance, layout).usd_per_m_output_tokens
        assert cheapest == f"${cost:.4f} per million output tokens"
        assert document["certificate"]["gap"] <= 0.01
        assert document["instance"]["scenario"]["prices"]["chip_price_factor"] == 2.0
        rests = document["evaluation"]["provenance"]
        for name in ("times", "money"):
            assert f"{name} {rests[name]}" in shown.inner_text("#answer .note")
        # its files
        archive = saved(shown, "export", tmp_path)
        until(shown, "exported")
        expected = export_layout(instance, layout, "vllm").files
        with tarfile.open(archive) as tape:
            assert {
                name: tape.extractfile(name).read().decode() for name in tape.getnames()
            } == expected  # type: ignore[union-attr]
            assert all(one.mode == 0o755 for one in tape if one.name.endswith(".sh"))
        # what runs today
        reach(shown, "launch")
        shown.keyboard.insert_text(LAUNCH)
        press(shown, "price")
        until(shown, "today")
        status, told = client.ask(
            "running",
            engine="vllm",
            launch=LAUNCH,
            time_limit_s=60.0,
            scenario=document["instance"]["scenario"],
        )
        assert status == 200
        assert [one.inner_text() for one in shown.locator("#today li").all()] == told["words"]
        # two answers compared: the one that was kept, and today's
        press(shown, "keep-today")
        until(shown, "compared")
        rows = [
            [cell.inner_text() for cell in row.locator("td").all()]
            for row in shown.locator("#kept tr").all()[1:]
        ]
        now = told["evaluation"]["usd_per_m_output_tokens"]
        assert [row[7] for row in rows] == [f"{cost:.4f}", f"{now:.4f}"]
        assert rows[1][-1] == f"{100 * (now / cost - 1):.1f}%"
        assert f"{now:.4f}" in shown.inner_text("#words")
        # a chip, by the arrows
        shown.locator(".chips button").first.focus()
        shown.keyboard.press("ArrowRight")
        shown.keyboard.press("Enter")
        assert shown.inner_text("#chip").startswith("r0g1: ")
        # another TPOT
        shown.evaluate("document.documentElement.dataset.state = ''")
        press(shown, "tpot", "Home")
        until(shown, "state", "answered", "infeasible")
        assert "tpot=-2.5" in shown.url
        check(shown, view, client)
        (tmp_path / f"page-{width}-{scheme}.png").write_bytes(view.png)


@pytest.mark.slow
def test_the_address_restores_the_page(browser: Browser, client: Client) -> None:
    with browser.opened(f"{client.address}/#{QUESTION}", 1280, "light") as (shown, _):
        until(shown, "state", "answered")
        shown.click("#keep")
        shown.fill("#launch", LAUNCH)
        shown.click("#price")
        until(shown, "today")
        shown.click("#keep-today")
        until(shown, "compared")
        before = [shown.inner_text(name) for name in ("#answer", "#kept", "#words")]
        address = shown.url
    with browser.opened(address, 1280, "light") as (shown, _):
        until(shown, "state", "answered")
        until(shown, "compared")
        assert [shown.inner_text(name) for name in ("#answer", "#kept", "#words")] == before
        assert shown.input_value("#launch") == LAUNCH


def test_own_files_are_asked_about_and_named_where_an_address_lacks_them(
    browser: Browser, client: Client, tmp_path: Path
) -> None:
    """A model, a cluster of six GPUs and traffic; then the same address without them, and with them again."""
    names = ("own.json", "six.yaml", "own-traffic.yaml", "notes.txt", "my model.json")
    own = [tmp_path / name for name in names]
    own[0].write_text((data_dir("models") / "llama-3.1-8b.json").read_text())
    spec = yaml.safe_load((data_dir("clusters") / "hgx-h100.yaml").read_text())
    own[1].write_text(yaml.safe_dump({**spec, "name": "six", "failed": ["r0g0", "r0g1"]}))
    own[2].write_text((data_dir("traffic") / "chat-poisson.yaml").read_text())
    own[3].write_text("<b>no file of these kinds</b>")
    own[4].write_text(own[0].read_text())
    with browser.opened(f"{client.address}/#{QUESTION}", 390, "light") as (shown, view):
        until(shown, "state", "answered")
        shown.evaluate("document.documentElement.dataset.state = ''")
        shown.set_input_files("#own", [str(path) for path in own])
        until(shown, "state", "answered")
        assert shown.input_value("#model") == "own.json"
        assert shown.input_value("#cluster") == "six.yaml"
        assert " on 6 of 8 chips;" in shown.inner_text("#answer")
        told = shown.inner_text("#owned")
        assert "own-traffic.yaml: choose it as cluster, workload, traffic above." in told
        for refused in own[3:]:
            assert f"{refused.name}: expected a name of letters, digits and . _ -" in told
        assert "own-traffic.yaml" in shown.locator("#traffic option").all_inner_texts()
        answer, address = shown.inner_text("#answer"), shown.url
        shown.click("#export")
        until(shown, "exported")
        check(shown, view, client)
    with browser.opened(address, 390, "dark") as (shown, view):
        until(shown, "state", "missing")
        assert "model: the address names own.json" in shown.inner_text("#answer")
        assert "cluster: the address names six.yaml" in shown.inner_text("#answer")
        shown.set_input_files("#own", [str(path) for path in own[:2]])
        until(shown, "state", "answered")
        assert shown.inner_text("#answer") == answer
        assert shown.url == address
        check(shown, view, client)


@pytest.mark.slow
def test_what_is_wrong_is_said_on_the_page(browser: Browser, client: Client) -> None:
    """Nothing that fits, commands that are none, a target that cannot say the layout."""
    with browser.opened(f"{client.address}/#{QUESTION}&model=deepseek-v3", 390, "dark") as (
        shown,
        view,
    ):
        until(shown, "state", "infeasible")
        assert "HBM" in shown.inner_text("#answer")
        assert shown.is_disabled("#export")
        shown.fill("#launch", "<img src=x onerror=alert(1)>")
        shown.click("#price")
        until(shown, "today", "no")
        assert "holds no vllm serve command" in shown.inner_text("#today")
        check(shown, view, client)


def test_a_rate_that_is_none_is_told_not_passed_over(browser: Browser, client: Client) -> None:
    with browser.opened(f"{client.address}/#{QUESTION}", 1280, "light") as (shown, _):
        until(shown, "state", "answered")
        shown.evaluate("document.documentElement.dataset.state = ''")
        shown.fill("#rate", "-5")
        until(shown, "state", "bad_input")
        assert "scenario.rate: must be above 0, got -5" in shown.inner_text("#answer")

"""A headless Chromium by Playwright: shows a page, and says what it logged and asked for.

Needs the browser of the system (``apt-get install chromium``); Playwright brings none here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_WAIT_MS = 600_000.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


def browsing() -> Iterator[Browser]:
    """A browser for the tests of a module; they are skipped, and say how to get one, where it cannot be had."""
    pytest.importorskip("playwright", reason="NO PLAYWRIGHT: pip install 'rackfit[dev]'")
    if PROGRAM is None:
        pytest.skip("NO CHROMIUM: apt-get install chromium")
    try:
        browser = Browser(PROGRAM)
    except Exception as error:
        pytest.skip(f"NO CHROMIUM THAT STARTS: apt-get install chromium; {str(error)[:300]}")
    with browser:
        yield browser


@dataclass
class View:
    """One page at one width and in one scheme."""

    width_px: int
    content_width_px: float = 0.0
    logged: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    title: str = ""
    answer: Any = None
    png: bytes = b""
    faults: list[tuple[str, str]] = field(default_factory=list)


class Browser:
    """``with Browser("/usr/bin/chromium") as browser: browser.show(path, 390, "dark")``."""

    def __init__(self, program: str):
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        options = ["--disable-dev-shm-usage", "--disable-gpu"]
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=program, args=options, chromium_sandbox=False, timeout=_WAIT_MS
            )
        except BaseException:
            self._playwright.stop()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    @contextmanager
    def opened(self, page: Path | str, width_px: int, scheme: str) -> Iterator[tuple[Any, View]]:
        """A page that is shown, and what it has logged and asked for so far; a file without any network."""
        context = self._browser.new_context(
            viewport={"width": width_px, "height": 900}, color_scheme=scheme, accept_downloads=True,
            offline=not isinstance(page, str),
        )  # fmt: skip
        context.set_default_timeout(_WAIT_MS)
        shown, view = context.new_page(), View(width_px)
        shown.on("console", lambda message: view.logged.append(message.text))
        shown.on("pageerror", lambda error: view.logged.append(str(error)))
        shown.on("request", lambda request: view.requested.append(request.url))
        try:
            shown.goto(page if isinstance(page, str) else page.as_uri())
            if shown.locator("figure.live").count():  # all charts are there
                shown.wait_for_selector("html[data-drawn]", state="attached")
            yield shown, view
        finally:
            context.close()

    def show(
        self,
        page: Path | str,
        width_px: int,
        scheme: str,
        *,
        picture: bool = True,
        script: str = "",
    ) -> View:
        """The page as seen ``width_px`` wide in a ``light`` or ``dark`` scheme, whole height.

        Without ``picture`` nothing is drawn, which takes most of the time. ``script`` is an expression
        evaluated in the page; what it gives is ``answer``.
        """
        with self.opened(page, width_px, scheme) as (shown, view):
            view.answer = shown.evaluate(script) if script else None
            view.faults = faults(shown)
            look(shown, view, picture=picture)
        return view

    def click_and_point(self, page: Path | str, count: str) -> tuple[int, int, int, str]:
        """Clicks the first key of the first legend, then points at the first point.

        Returns ``count`` (an expression) before and after, the keys that are left, and the tooltip's words.
        """
        with self.opened(page, 1280, "light") as (shown, _):
            before = shown.evaluate(count)
            shown.locator(".role-legend-symbol path").first.click(force=True)
            shown.wait_for_function(f"{count} !== {before}")
            after = shown.evaluate(count)
            keys = shown.locator(".role-legend-symbol path").count()
            shown.locator(".mark-symbol.role-mark path").first.hover(force=True)
            words = shown.locator("#vg-tooltip-element.visible")
            words.wait_for()
            return before, after, keys, words.text_content()


def look(shown: Any, view: View, *, picture: bool) -> None:
    """Fill in what is seen of a page now."""
    view.content_width_px = shown.evaluate("document.documentElement.scrollWidth")
    # what sticks out and is not inside a box that scrolls by itself
    view.outside = shown.evaluate(_OUTSIDE)
    view.title = shown.title()
    if picture:
        view.png = shown.screenshot(full_page=True)


def faults(shown: Any) -> list[tuple[str, str]]:
    """What axe finds that is serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(shown).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


_OUTSIDE = """
(() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const element of document.body.querySelectorAll('*')) {
    if (element.closest('.wide') && !element.matches('.wide')) continue;
    if (element.closest('.plot svg')) continue;
    const box = element.getBoundingClientRect();
    if (box.width > 0 && box.right > wide + 1) found.push(element.tagName + ' ' + box.right);
  }
  for (const box of document.querySelectorAll('.wide'))
    if (box.tabIndex !== 0 || !box.getAttribute('aria-label')) found.push('not reached by keyboard: ' + box.textContent.slice(0, 40));
  for (const svg of document.querySelectorAll('svg.chart, .plot svg')) {
    if (svg.getClientRects().length === 0) continue;
    if (svg.hasAttribute('role') && !svg.getAttribute('aria-label')) found.push('figure without a label');
    const frame = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')].filter(text =>
      +getComputedStyle(text).opacity > 0 && text.getAttribute('opacity') !== '0');
    for (const text of texts) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.top < frame.top - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
        found.push('text cut off: ' + text.textContent);
    }
    const ticks = texts.filter(text => svg.closest('.plot') || text.classList.contains('tick') || text.classList.contains('name') || text.classList.contains('head'));
    for (let i = 0; i < ticks.length; i++) for (let j = i + 1; j < ticks.length; j++) {
      const a = ticks[i].getBoundingClientRect(), b = ticks[j].getBoundingClientRect();
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.35 * Math.min(a.height, b.height))
        found.push('texts on each other: ' + ticks[i].textContent + ' | ' + ticks[j].textContent);
    }
  }
  return found;
})()
"""

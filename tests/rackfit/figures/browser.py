"""A headless Chromium on the DevTools pipe: shows a page, and says what it logged and asked for.

Needs nothing beyond the browser. Messages are JSON, ended by a NUL, on file descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

_WAIT_S = 60.0


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


class Browser:
    """``with Browser("/usr/bin/chromium", folder) as browser: browser.show(path, 390, "dark")``."""

    def __init__(self, program: str, profile: Path):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}",
            "--no-first-run", "--disable-background-networking", "about:blank",
        ]  # fmt: skip

        def on_3_and_4() -> None:
            low, high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            command, preexec_fn=on_3_and_4, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=_WAIT_S)
        os.close(self._out)
        os.close(self._in)

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
        target, session, view = self._open(page, width_px, scheme)
        view.answer = self._evaluate(session, script) if script else None
        self._collect(view)
        view.content_width_px = self._evaluate(session, "document.documentElement.scrollWidth")
        # what sticks out and is not inside a box that scrolls by itself
        view.outside = self._evaluate(session, _OUTSIDE)
        view.title = self._evaluate(session, "document.title")
        if picture:
            shot = self._ask("Page.captureScreenshot", session, captureBeyondViewport=True)
            view.png = base64.b64decode(shot["data"])
        self._ask("Target.closeTarget", targetId=target)
        return view

    def click_and_point(self, page: Path | str, count: str) -> tuple[int, int, int, str]:
        """Clicks the first key of the first legend, then points at the first point.

        Returns ``count`` (an expression) before and after, the keys that are left, and the tooltip's words.
        """
        target, session, _ = self._open(page, 1280, "light")
        before = self._evaluate(session, count)
        self._mouse(session, ".role-legend-symbol path", ("mousePressed", "mouseReleased"))
        self._wait(session, f"{count} !== {before}")
        after = self._evaluate(session, count)
        keys = self._evaluate(
            session, "document.querySelectorAll('.role-legend-symbol path').length"
        )
        self._mouse(session, ".mark-symbol.role-mark path", ("mouseMoved",))
        words = "document.querySelector('#vg-tooltip-element.visible')?.textContent ?? ''"
        self._wait(session, words)
        said = self._evaluate(session, words)
        self._ask("Target.closeTarget", targetId=target)
        return before, after, keys, said

    def _mouse(self, session: str, selector: str, kinds: tuple[str, ...]) -> None:
        x, y = self._evaluate(
            session,
            f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}});"
            "const box = e.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()",
        )
        for kind in kinds:
            pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self._ask("Input.dispatchMouseEvent", session, type=kind, x=x, y=y, **pressed)

    def _open(self, page: Path | str, width_px: int, scheme: str) -> tuple[str, str, View]:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        view = View(width_px)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable", session)
        size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", session, **size)
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", session, features=media)
        self._events.clear()
        self._ask("Page.navigate", session, url=page if isinstance(page, str) else page.as_uri())
        self._until("Page.loadEventFired")
        self._wait(session, _DRAWN)
        return target, session, view

    def _wait(self, session: str, expression: str) -> None:
        """Until an expression is true; ``RuntimeError`` where it does not become so."""
        deadline = time.monotonic() + _WAIT_S
        while not self._evaluate(session, expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the page never reached: {expression}")
            time.sleep(0.05)

    def _collect(self, view: View) -> None:
        for event in self._events:
            params = event.get("params", {})
            if event["method"] == "Network.requestWillBeSent":
                view.requested.append(params["request"]["url"])
            elif event["method"] == "Log.entryAdded":
                view.logged.append(params["entry"]["text"])
            elif event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                view.logged.append(json.dumps(params)[:500])

    def _evaluate(self, session: str, expression: str) -> Any:
        options = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self._ask("Runtime.evaluate", session, **options)["result"]["value"]

    def _ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def _until(self, method: str) -> None:
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._read())

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _WAIT_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("the browser does not answer")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


#: all charts are there, where the page has any
_DRAWN = "!document.querySelector('figure.live') || !!document.documentElement.dataset.drawn"
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

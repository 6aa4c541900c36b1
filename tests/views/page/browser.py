"""A real browser for the tests of the page: the machine's Chromium, driven from Python."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 60
"""How long to wait for what must come: no promise of the page, only an end for a test that fails."""


def browser_path() -> str:
    """The program; without one the test is skipped, or fails where a browser is required (.ci/run)."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no browser here ({', '.join(NAMES)}): `make browser` installs one"
        if os.environ.get("PAGE_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def running() -> Iterator[Any]:
    """A browser that is closed again."""
    program = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Page:
    """A page that is open; what goes wrong in it, and what it asks of the network, is kept."""

    def __init__(
        self,
        browser: Any,
        file: Path,
        width: int = 1500,
        height: int = 950,
        hash_: str = "",
        is_moving: bool = False,
    ) -> None:
        """Open a file. Nothing slides or fades in unless asked, so that a slow machine measures no halfway state."""
        motion = "no-preference" if is_moving else "reduce"
        self.page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion=motion)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.resolve().as_uri() + hash_)
        self.page.wait_for_selector("html[data-ready]", timeout=PATIENCE_S * 1000)

    def ask(self, code: str) -> Any:
        return self.page.evaluate(code)

    def until(self, code: str) -> None:
        """Wait for something to hold (the page's policy lets no other code look for it)."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.ask(code):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never: {code}")

    @property
    def selected(self) -> int:
        return self.ask("torchglass.selected")

    def marked(self) -> dict[str, Any]:
        """What each pane marks as selected: the item of the row and of the box, the line of the code, the event."""
        return self.ask(MARKED)

    def close(self) -> None:
        self.page.close()


MARKED = """() => {
  const row = document.querySelector('.steps .row.selected'), box = document.querySelector('.sheet .selected');
  const line = document.querySelector('.code .line.selected'), title = document.querySelector('.details header .dim');
  const number = (element, name) => element ? Number(element.getAttribute(name)) : null;
  return { row: number(row, 'data-item'), box: number(box, 'data-item'), line: number(line, 'data-line'),
           event: Number(title.textContent.slice(1)), hash: location.hash };
}"""

"""Shows the progress of long work on a terminal: nothing in a pipe, nothing for quick work, nothing afterwards."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from torchglass.events.spelling import clean
from torchglass.views.text.style import is_terminal

if TYPE_CHECKING:
    from torchglass._trace import Trace

PATIENCE = 1.0
"""Seconds of work that need no bar."""
PAUSE = 0.2
"""Seconds between two looks."""
LENGTH = 30
ERASE = "\r\x1b[K"


class Bar:
    """A progress bar: ``with Bar("reading run.trace") as bar: bar(0.4)``. Without a number it counts seconds."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label = clean(label)
        if stream is None:
            self._stream = sys.stderr
        else:
            self._stream = stream
        self._done: float | None = None
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, done: float) -> None:
        """Set the progress, from 0 to 1. The bar never goes back."""
        self._done = max(done, self._done or 0.0)

    def __enter__(self) -> Bar:
        if is_terminal(self._stream):
            self._thread = threading.Thread(
                target=self._work, name="torchglass progress", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            if self._over.wait(PATIENCE):
                return
            while not self._over.wait(PAUSE):
                self._write(ERASE + self.line(os.get_terminal_size(self._stream.fileno()).columns))
            self._write(ERASE)
        except (OSError, ValueError):  # the terminal is gone
            return

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def line(self, width: int) -> str:
        """Return the current line. Its last column stays free, or the terminal would begin a new line."""
        if self._done is None:
            state = f"{time.monotonic() - self._began:.0f} s"
        else:
            full = int(LENGTH * self._done)
            state = f"[{'#' * full}{'.' * (LENGTH - full)}] {self._done:4.0%}"
        return f"{self._label} {state}"[-max(width - 1, 0) :]


def add_bundle(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the bundle."""
    parser.add_argument(
        "bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()"
    )


def loaded(bundle: str | Path) -> Trace:
    """Return the trace of a bundle. Show a bar while it is read."""
    from torchglass.recording import load_trace

    with Bar(f"reading {bundle}") as bar:
        return load_trace(Path(bundle), bar)

"""Long output on a terminal goes through a pager, as git's does: $PAGER, else less, which ends by itself if it fits."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from torchglass.views.text.style import is_terminal

LESS = "FRX"
"""End at once if it fits on one screen, let colours through, leave the screen as it is: what git gives to less."""


@contextmanager
def paged(wanted: bool = True) -> Generator[TextIO]:
    """Where to print to: a pager's input where there is a terminal and a pager, else stdout itself."""
    command = pager() if wanted and is_terminal(sys.stdout) else ""
    if not command:
        yield sys.stdout
        return
    import subprocess  # only here: whoever prints into a pipe or a file need not wait for it

    sys.stdout.flush()
    environment = {"LESS": LESS, "LV": "-c", **os.environ}
    encoding = sys.stdout.encoding or "utf-8"
    process: Any = subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, env=environment, encoding=encoding, errors="replace"
    )
    try:
        with suppress(BrokenPipeError, KeyboardInterrupt):  # the reader has seen enough
            yield process.stdin
    finally:
        _wait(process)


def pager() -> str:
    """The command; "" where none is wanted or found."""
    chosen = os.environ.get("PAGER")
    if chosen is None:
        return "less" if shutil.which("less") else ""
    try:
        words = shlex.split(chosen)
    except ValueError:
        return ""
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return ""
    return chosen


def _wait(process: Any) -> None:
    """Until it is left; Ctrl-C is the pager's own meanwhile."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)

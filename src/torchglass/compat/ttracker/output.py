"""Where Tensor Tracker's lines go: to the console, and through ``logger`` into one file a process and thread."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

from torchglass.compat.ttracker import settings
from torchglass.compat.ttracker.files import LineFiles
from torchglass.views.live import ttracker as lines
from torchglass.views.text.style import Page, wants_color, writable

logger = logging.getLogger("torchglass.ttracker")
logger.setLevel(logging.INFO)  # a handler that was added gets the lines, whatever the root's level
logger.propagate = False  # the console has them already

LONGEST_TAG = 100
_WRITTEN = "torchglass_written"
"""On a record: the handlers that have got its line already."""


class ThreadFilesHandler(logging.Handler):
    """Writes each line to the file of the process and thread that logs it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.files = LineFiles(folder)

    def is_plain(self) -> bool:
        """Whether lines may go straight to the file: nobody asked for another form or a choice among them."""
        return self.formatter is None and not self.filters and self.level <= logging.INFO

    def emit(self, record: logging.LogRecord) -> None:
        """One record, of this module's or of the user's own ``logger.info(…)``."""
        if self not in getattr(record, _WRITTEN, ()):
            self.files.write(self.format(record) + "\n")


def h4logger() -> ThreadFilesHandler:
    """A handler for ``logger`` that writes ``logs/<tag>/process_<pid>_thread_<tid>.log`` below the working directory.

    The tag is ``LTAG`` of the environment as it is now, made safe for a file name; without one, ``NOTAG``.
    Folder and file are made with a thread's first line, never before.
    """
    folder = Path("logs") / _safe(settings.tag())
    try:
        folder = folder.absolute()
    except OSError:  # the working directory is gone; the first line will tell
        pass
    return ThreadFilesHandler(folder)


def _safe(tag: str) -> str:
    return re.sub(r"[^\w.-]", "_", tag).lstrip(".")[:LONGEST_TAG] or "NOTAG"


def log2file(message: Any) -> None:
    """Print a message and send it through ``logger``; nothing with ``TORCHGLASS=0``."""
    if not settings.is_off():
        send(lines.message(str(message)))


def send(texts: list[str], style: str = "") -> None:
    """Print lines and log them; a style is for the console only."""
    if settings.console_is_on():
        _print(texts, style)
    if logger.handlers and logger.isEnabledFor(logging.INFO):
        _log(texts)


def _print(texts: list[str], style: str) -> None:
    stream = sys.stdout
    if stream is None:  # a program without a console
        return
    if style and wants_color(stream):
        page = Page(color=True)
        texts = [lines.painted(text, style, page) for text in texts]
    try:
        stream.write(writable("\n".join(texts) + "\n", stream))  # in one piece: threads share the console
    except (OSError, ValueError):  # closed, or nobody reads it any more: the program's next print will say so
        pass


def _log(texts: list[str]) -> None:
    """Past logging's machinery where nobody but our files listens: a record costs more than the call it tells of."""
    direct: list[ThreadFilesHandler] = []
    if not logger.filters:
        direct = [handler for handler in logger.handlers if type(handler) is ThreadFilesHandler and handler.is_plain()]
    text = "\n".join(texts) + "\n"
    for handler in direct:
        handler.files.write(text)
    if len(direct) < len(logger.handlers) or logger.propagate:
        for line in texts:
            extra = {_WRITTEN: direct}
            logger.handle(logger.makeRecord(logger.name, logging.INFO, "torchglass", 0, line, (), None, extra=extra))

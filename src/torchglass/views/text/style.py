"""Decides how wide the page is and whether it has colours and links, and lists the styles."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from torchglass.errors import UsageError, WrongType

# Widths in columns: the least that shows anything, and those where there is no terminal to ask.
NARROWEST = 40
WIDTH_IN_A_PIPE = 100
WIDTH_IN_A_NOTEBOOK = 120

STYLES = {
    "guide": "2",
    "name": "1",
    "class": "36",
    "input": "2",
    "output": "32",
    "place": "2",
    "time": "33",
    "fold": "1;35",
    "error": "1;31",
    "note": "33",
    "heading": "1",
    "dim": "2",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What lines are printed on, such as a terminal: its width, and whether it shows colours and links.

    (The HTML page is something else: ``views/page/``.)
    """

    width: int = WIDTH_IN_A_PIPE
    color: bool = False
    links: bool = False
    command: bool = False
    """Whether the torchglass command prints the page: then hints name options of the command, not
    of Python.
    """
    bundle: str = "RUN"
    """For the torchglass command: the bundle that the user gave, quoted for the shell."""

    def paint(self, style: str, text: str) -> str:
        """Return the text in one of STYLES, or unchanged if the page has no colour."""
        if self.color and text:
            return f"\x1b[{STYLES[style]}m{text}\x1b[0m"
        return text


def page_for(stream: TextIO | None, *, width: int | None = None, color: bool | None = None) -> Page:
    """Return the page for a stream, or for a string if the stream is None. Explicit settings win.

    A string has no colour by default.
    """
    _check(width, color)
    if color is None:
        colored = wants_color(stream)
    else:
        colored = color
    links = colored and is_terminal(stream)
    return Page(width_of_stream(stream) if width is None else width, colored, links)


def _check(width: object, color: object) -> None:
    if width is not None and (not isinstance(width, int) or isinstance(width, bool)):
        raise WrongType(f"width= takes a number of columns, not {type(width).__name__}")
    if width is not None and width < NARROWEST:
        raise UsageError(f"width={width} is too narrow to show anything: use {NARROWEST} or more")
    if color is not None and not isinstance(color, bool):
        raise WrongType(
            f"color= takes True, False or None (as the stream is), not {type(color).__name__}"
        )


def wants_color(stream: TextIO | None) -> bool:
    """Return whether to use colour.

    NO_COLOR and FORCE_COLOR decide first, then whether the stream is a terminal or a notebook.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) or (in_notebook() and stream is sys.stdout)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal that understands escapes."""
    if stream is None or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):  # closed, or something that only writes
        return False


def in_notebook() -> bool:
    """Return whether this runs in IPython's kernel, without importing IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and type(shell()).__name__ == "ZMQInteractiveShell"


def width_of_stream(stream: TextIO | None) -> int:
    """Return the width of a stream: $COLUMNS, or the width of the terminal, or a fixed one for pipes
    and notebooks.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) >= NARROWEST:
        return int(columns)
    if stream is not None and is_terminal(stream):
        try:
            return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns)
        except (OSError, ValueError, AttributeError):
            return 80
    if in_notebook() and stream is sys.stdout:
        return WIDTH_IN_A_NOTEBOOK
    return WIDTH_IN_A_PIPE


def writable(line: str, stream: TextIO) -> str:
    """Return a line with ``?`` for characters that the stream's encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.encode(encoding, "replace").decode(encoding)
    except LookupError:
        return line
    return line

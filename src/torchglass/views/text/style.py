"""How wide the page is, whether it has colours and links, and the few styles there are."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from torchglass.errors import UsageError, WrongType

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
    """What lines are written for: at most ``width`` columns, with or without colours and links."""

    width: int = WIDTH_IN_A_PIPE
    color: bool = False
    links: bool = False
    command: bool = False
    """Whether it is what the command prints on a terminal: options are spelt as its own."""

    def paint(self, style: str, text: str) -> str:
        """The text in one of STYLES; as it is on a page without colour."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.color and text else text


def page_for(stream: TextIO | None, *, width: int | None = None, color: bool | None = None) -> Page:
    """The page for a stream; None is text that is kept (no colour unless asked). What is given wins."""
    _check(width, color)
    colored = wants_color(stream) if color is None else color
    links = colored and is_terminal(stream)
    return Page(width_of_stream(stream) if width is None else width, colored, links)


def _check(width: object, color: object) -> None:
    if width is not None and (not isinstance(width, int) or isinstance(width, bool)):
        raise WrongType(f"width= takes a number of columns, not {type(width).__name__}")
    if width is not None and width < NARROWEST:
        raise UsageError(f"width={width} is too narrow to show anything: use {NARROWEST} or more")
    if color is not None and not isinstance(color, bool):
        raise WrongType(f"color= takes True, False or None (as the stream is), not {type(color).__name__}")


def wants_color(stream: TextIO | None) -> bool:
    """NO_COLOR and FORCE_COLOR first; else on a terminal that is not dumb, and in a notebook."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) or (in_notebook() and stream is sys.stdout)


def is_terminal(stream: TextIO | None) -> bool:
    """True on a terminal that understands escapes."""
    if stream is None or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):  # closed, or something that only writes
        return False


def in_notebook() -> bool:
    """True inside IPython's kernel; IPython is never imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return shell is not None and type(shell()).__name__ == "ZMQInteractiveShell"


def width_of_stream(stream: TextIO | None) -> int:
    """COLUMNS, the terminal's own width, or a fixed one for pipes and notebooks."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) >= NARROWEST:
        return int(told)
    if stream is not None and is_terminal(stream):
        try:
            return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns)
        except (OSError, ValueError, AttributeError):
            return 80
    return WIDTH_IN_A_NOTEBOOK if in_notebook() and stream is sys.stdout else WIDTH_IN_A_PIPE


def writable(line: str, stream: TextIO) -> str:
    """The line as the stream's encoding can hold it: ``?`` for what it cannot, never an error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.encode(encoding, "replace").decode(encoding)
    except LookupError:
        return line
    return line

"""Show a kept trace: as a tree, as code with its ops, as an annotated listing, as a table …

Each view has options of its own; one that the view does not know is an error that names those it does.

examples:
  torchglass show run.trace
  torchglass show run.trace code --only module=encoder.*
  torchglass show run.trace listing --path model.py
  torchglass show run.trace tree --depth 2
  torchglass show run.trace --hide transformers --only function=softmax

On a terminal long output goes through $PAGER, or less; --no-pager prints it at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TextIO

from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, given
from torchglass.errors import UsageError
from torchglass.views import VIEWS
from torchglass.views.text.style import is_terminal


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the view, and where lines go; then the options of all views, each with the views that have it."""
    add_bundle(parser)
    parser.add_argument("named", metavar="VIEW", nargs="?", choices=VIEWS, help=f"one of {', '.join(VIEWS)}")
    parser.add_argument(
        "--view", choices=VIEWS, help="the same; default: tree, or failure where a call failed and ended the program"
    )
    parser.add_argument("--width", type=int, metavar="N", help="columns; default: the terminal's")
    parser.add_argument("--color", action=argparse.BooleanOptionalAction, default=None, help="default: on a terminal")
    parser.add_argument("--no-pager", action="store_true", help="print at once, also what is longer than the screen")
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Load and print."""
    if None not in (options.named, options.view) and options.named != options.view:
        raise UsageError(f"two views are asked for, {options.named} and --view {options.view}: leave one out")
    options.view = options.view or options.named
    chosen = given(options, options.view or "tree")
    # A process that only shows makes no garbage: looking for some takes a third of the time of a large trace.
    was_on = gc.isenabled()
    gc.disable()
    try:
        print_view(loaded(options.bundle), options, chosen)
    finally:
        if was_on:
            gc.enable()
    return 0


def print_view(trace: Any, options: argparse.Namespace, chosen: dict[str, Any]) -> None:
    """Print it, on a terminal through a pager; what is long says how to see less or more of it."""
    from torchglass.api import view_lines
    from torchglass.views.text.style import is_terminal, page_for, writable

    page = page_for(sys.stdout, width=options.width, color=options.color)
    page = replace(page, command=is_terminal(sys.stdout))
    lines = view_lines(trace, options.view, page, chosen)
    first = list(islice(lines, 1))  # all that may go wrong does so before the pager takes the screen
    with paged(not options.no_pager) as stream:
        for line in chain(first, lines):
            print(writable(line, sys.stdout), file=stream)


# ---------------------------------------------------------------- pager

# Long output on a terminal goes through a pager, as git's does: $PAGER, else less, which ends by itself if it fits.

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

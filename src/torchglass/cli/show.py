"""Show a trace: as a tree, as code with its ops, as an annotated listing, as a table …

Each option says which views have it. An option that the view does not have is an error.

examples:
  torchglass show run.trace
  torchglass show run.trace code --only module=encoder.*
  torchglass show run.trace listing --path model.py
  torchglass show run.trace tree --depth 2
  torchglass show run.trace first-bad            where the first NaN came from
  torchglass show run.trace --hide transformers --only function=softmax
  torchglass show run.trace table --json         the rows, for other programs

On a terminal, long output goes through $PAGER or less; --no-pager prints it directly.
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

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, chosen_options, completions, shown_names, view_name
from torchglass.errors import UsageError
from torchglass.events.spelling import clean
from torchglass.views.text.style import is_terminal

MAX_BUNDLE_NAME = 30
"""How many characters the name of a bundle in a hint may have. For a longer one the hint says ``RUN``."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, the view, how to print it, and the options of all views."""
    add_bundle(parser)
    view: Any = parser.add_argument(
        "named",
        metavar="VIEW",
        nargs="?",
        help=f"one of {shown_names()}; default: tree, or failure if the program failed",
    )
    view.completer = completions
    parser.add_argument("--view", help=argparse.SUPPRESS)  # the spelling of earlier versions
    parser.add_argument(
        "--width", type=int, metavar="N", help="width in columns; default: the terminal's"
    )
    parser.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="default: colors on a terminal",
    )
    parser.add_argument(
        "--no-pager",
        action="store_true",
        help="print directly, even if it is longer than the screen",
    )
    add_json(parser)
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Load the bundle and print the view."""
    if None not in (options.named, options.view) and options.named != options.view:
        raise UsageError(
            f"two views were given, {options.named} and --view {options.view}: leave one out"
        )
    options.view = options.named or options.view
    if options.view is not None:
        options.view = view_name(options.view)
    chosen = chosen_options(options)
    # Showing a trace makes no cycles of objects. To look for some takes a third of the time of a large trace.
    was_on = gc.isenabled()
    gc.disable()
    try:
        trace = loaded(options.bundle)
        if options.json:
            print_json("show", trace.to_dict(options.view, **chosen))
        else:
            print_view(trace, options, chosen)
    finally:
        if was_on:
            gc.enable()
    return 0


def print_view(trace: Any, options: argparse.Namespace, chosen: dict[str, Any]) -> None:
    """Print a view. On a terminal it goes through a pager."""
    from torchglass.views.render import view_lines
    from torchglass.views.text.style import is_terminal, page_for, writable

    page = page_for(sys.stdout, width=options.width, color=options.color)
    # Hints below a view are commands to copy. They name the bundle unless it would break the line.
    bundle = shlex.quote(clean(options.bundle))
    if len(bundle) > MAX_BUNDLE_NAME:
        bundle = "RUN"
    page = replace(page, command=is_terminal(sys.stdout), bundle=bundle)
    lines = view_lines(trace, options.view, page, chosen)
    # All errors come with the first line, before the pager takes the screen.
    first = list(islice(lines, 1))
    with paged(not options.no_pager) as stream:
        for line in chain(first, lines):
            print(writable(line, sys.stdout), file=stream)


# ---------------------------------------------------------------- pager

# Long output on a terminal goes through $PAGER or less, as that of git does.

LESS = "FRX"
"""Options of less, as git sets them: end at once if the text fits on one screen, pass colours on, and leave the text
on the screen at the end."""


@contextmanager
def paged(wanted: bool = True) -> Generator[TextIO]:
    """Yield the stream to print to: the input of a pager if there is a terminal and a pager, else stdout."""
    command = ""
    if wanted and is_terminal(sys.stdout):
        command = pager()
    if not command:
        yield sys.stdout
        return
    import subprocess  # imported here, because printing to a pipe or a file does not need it

    sys.stdout.flush()
    environment = {"LESS": LESS, "LV": "-c", **os.environ}
    encoding = sys.stdout.encoding or "utf-8"
    process: Any = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.PIPE,
        env=environment,
        encoding=encoding,
        errors="replace",
    )
    try:
        with suppress(BrokenPipeError, KeyboardInterrupt):  # the reader has seen enough
            yield process.stdin
    finally:
        _wait(process)


def pager() -> str:
    """Return the command of the pager; "" if the user wants none or it is not installed."""
    chosen = os.environ.get("PAGER")
    if chosen is None:
        if shutil.which("less"):
            return "less"
        return ""
    try:
        words = shlex.split(chosen)
    except ValueError:
        return ""
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return ""
    return chosen


def _wait(process: Any) -> None:
    """Wait until the user leaves the pager. Until then Ctrl-C goes to the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)

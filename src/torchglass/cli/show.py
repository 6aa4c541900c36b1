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
import sys
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from torchglass.cli.pager import paged
from torchglass.cli.progress import Bar
from torchglass.cli.views import add_options, given
from torchglass.errors import UsageError
from torchglass.views import VIEWS


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the view, and where lines go; then the options of all views, each with the views that have it."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument("named", metavar="VIEW", nargs="?", choices=VIEWS, help=f"one of {', '.join(VIEWS)}")
    parser.add_argument(
        "--view", choices=VIEWS, help="the same; default: tree, or failure where an exception ended the program"
    )
    parser.add_argument("--width", type=int, metavar="N", help="columns; default: the terminal's")
    parser.add_argument("--color", action=argparse.BooleanOptionalAction, default=None, help="default: on a terminal")
    parser.add_argument("--no-pager", action="store_true", help="print at once, also what is longer than the screen")
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Load and print."""
    from torchglass.api import load
    from torchglass.store import watched

    if None not in (options.named, options.view) and options.named != options.view:
        raise UsageError(f"two views are asked for, {options.named} and --view {options.view}: leave one out")
    options.view = options.view or options.named
    chosen = given(options, options.view or "tree")
    # A process that only shows makes no garbage: looking for some takes a third of the time of a large trace.
    was_on = gc.isenabled()
    gc.disable()
    try:
        with Bar(f"reading {options.bundle}") as bar, watched(bar):
            trace = load(options.bundle)
        print_view(trace, options, chosen)
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

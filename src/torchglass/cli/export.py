"""Write a kept trace as a file to take along: the page, a picture of the data flow, a timeline …

The suffix of the file chooses what it is: .html (the page), .svg and .png (pictures), .dot (Graphviz),
.mmd (Mermaid), .perfetto.json (Perfetto and Chrome).

examples:
  torchglass export run.trace run.html
  torchglass export run.trace model.svg --depth 2
  torchglass export run.trace model.dot
  torchglass export run.trace model.mmd --no-functions
  torchglass export run.trace run.perfetto.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchglass.cli.progress import Bar

OPTIONS = ("depth", "functions", "fold", "inner")


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the file, and what a picture shows."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument("out", metavar="OUT", help="the file to write; its suffix says what it is")
    add_picture_options(parser)


def add_picture_options(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] - argparse has no public name for it
    """The options of the data flow."""
    parser.add_argument("--depth", type=int, metavar="N", help="levels that are opened; default: all")
    for name, text in (
        ("functions", "functions, not only modules (on by default)"),
        ("fold", "repeated layers and calls once (on by default)"),
        ("inner", "also what torch does inside its own layers and functions"),
    ):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None, help=text)


def run(options: argparse.Namespace) -> int:
    """Load, write, and say where."""
    from torchglass.api import export, load
    from torchglass.store import watched
    from torchglass.views.export import suffix_of

    suffix_of(Path(options.out))  # before a long trace is read for nothing
    with Bar(f"reading {options.bundle}") as bar, watched(bar):
        trace = load(options.bundle)
    export(trace, options.out, **picture_options(options))
    print(f"wrote {options.out}")
    return 0


def picture_options(options: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    asked = {name: getattr(options, name) for name in OPTIONS}
    return {name: value for name, value in asked.items() if value is not None}

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

from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, given


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the file, and what a picture shows."""
    add_bundle(parser)
    parser.add_argument("out", metavar="OUT", help="the file to write; its suffix says what it is")
    add_options(parser, ["graph"])


def run(options: argparse.Namespace) -> int:
    """Load, write, and say where."""
    from torchglass.api import export
    from torchglass.views.export import suffix_of

    suffix_of(Path(options.out))  # before a long trace is read for nothing
    export(loaded(options.bundle), options.out, **given(options, "graph", ["graph"]))
    print(f"wrote {options.out}")
    return 0

"""Export a trace: the page, a picture of the data flow, a timeline …

The suffix of the file chooses the format: .html (the page), .svg and .png (pictures), .dot (Graphviz),
.mmd (Mermaid), .perfetto.json or .perfetto.json.gz (Perfetto and Chrome), .sqlite (all tables).

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

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, chosen_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, the file, and the options of a picture."""
    add_bundle(parser)
    parser.add_argument(
        "out", metavar="OUT", help="the file to write; its suffix chooses the format"
    )
    add_json(parser)
    add_options(parser, ["graph"])


def run(options: argparse.Namespace) -> int:
    """Load the bundle, write the file and print its name."""
    from torchglass.api import export
    from torchglass.views.export import suffix_of

    suffix_of(Path(options.out))  # check this before reading a long trace
    export(loaded(options.bundle), options.out, **chosen_options(options, ["graph"]))
    if options.json:
        print_json("export", {"written": str(options.out)})
    else:
        print(f"wrote {options.out}")
    return 0

"""Show the data flow of a kept trace: which step made what another one takes.

Prints it as text, or with --out writes a picture's file: the suffix chooses what it is (torchglass export --help
lists them). Given the text file of CallTracer.save_trace it draws that call trace as a top-down graph instead:
repeated layers are one box (layers x 12), and the last part of each path is left out, unless told otherwise; there
--out takes png, svg or pdf, or dot for Graphviz's own text, which needs no program `dot`.

examples:
  torchglass graph run.trace --depth 2
  torchglass graph run.trace --out model.dot --no-functions
  torchglass graph forward.txt                          writes forward.png
  torchglass graph forward.txt --out net.svg --no-prune-leaves
  torchglass graph forward.txt --out net.dot --squash-name --save-json net.json
"""

from __future__ import annotations

import argparse

from torchglass.cli import export
from torchglass.compat.torchspy import trace_to_graph


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of both: a bundle is a folder, a call trace is a file."""
    export.add_picture_options(parser.add_argument_group("of a bundle"))
    trace_to_graph.configure(parser)


def run(options: argparse.Namespace) -> int:
    """Draw a call trace, or show the data flow of a bundle."""
    if options.call_trace is None or not options.call_trace.is_dir():
        return trace_to_graph.run(options)
    if options.out is not None:
        options.bundle = options.call_trace
        return export.run(options)
    from torchglass.api import load, show

    show(load(options.call_trace), "graph", **export.picture_options(options))
    return 0

"""Show the data flow of a trace: which step made what another one takes.

Prints it as text. With --out it writes a picture; the suffix chooses the format (see torchglass export --help). Given
the text file of CallTracer.save_trace, it draws that call trace as a top-down graph instead: repeated layers are one
box (layers x 12), and the last part of each path is left out, unless you ask for them. For a call trace --out takes
png, svg, pdf, or dot (Graphviz's own text, which does not need the program `dot`).

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
from torchglass.cli.output import add_json, print_json
from torchglass.cli.views import add_options, chosen_options
from torchglass.compat.torchspy import trace_to_graph


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a bundle, which is a folder, and for a call trace, which is a file."""
    add_options(parser.add_argument_group("of a bundle"), ["graph"])
    trace_to_graph.configure(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Draw a call trace, or show the data flow of a bundle."""
    if options.call_trace is None or not options.call_trace.is_dir():
        written = trace_to_graph.draw(options, None if options.json else trace_to_graph.say)
        if options.json:
            print_json("graph", {"written": [str(path) for path in written]})
        return 0
    if options.out is not None:
        options.bundle = options.call_trace
        return export.run(options)
    from torchglass.api import load, show

    chosen = chosen_options(options, ["graph"])
    if options.json:
        print_json("graph", load(options.call_trace).to_dict("graph", **chosen))
    else:
        show(load(options.call_trace), "graph", **chosen)
    return 0

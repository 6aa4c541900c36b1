"""Open a kept trace in the browser: code, steps, data flow and tensors on one page.

The page is one file beside the bundle (run.trace becomes run.html); it needs no network and can be sent around.

examples:
  torchglass open run.trace
  torchglass open run.trace --no-browser
  torchglass open run.trace --path model.py
  torchglass open run.trace --out /tmp/look.html
"""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, given


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, where the page goes, and whether to show it."""
    add_bundle(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page (default: beside the bundle, .html)")
    parser.add_argument("--no-browser", action="store_true", help="only write the page")
    add_options(parser, ["graph"])


def run(options: argparse.Namespace) -> int:
    """Write the page, say where, and show it."""
    from torchglass.api import export

    bundle = Path(options.bundle)
    out: Path = options.out or bundle.with_name(bundle.name.removesuffix(".trace") + ".html")
    export(loaded(bundle), out, **given(options, "graph", ["graph"]))
    print(f"wrote {out}")
    if not options.no_browser and not _shown(out):
        print("no browser could be opened here: open the file in one, on this machine or another")
    return 0


def _shown(page: Path) -> bool:
    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False

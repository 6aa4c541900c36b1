"""Open a trace in the browser: code, steps, data flow and tensors on one page.

The page is one file next to the bundle (run.html for run.trace). It needs no network, so you can send it to others.

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

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import add_bundle, loaded
from torchglass.cli.views import add_options, chosen_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, where the page goes, and whether to show it."""
    add_bundle(parser)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="the page (default: beside the bundle, .html)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="write the page, but do not open it"
    )
    add_json(parser)
    add_options(parser, ["graph"])


def run(options: argparse.Namespace) -> int:
    """Write the page, say where, and show it."""
    from torchglass.api import export

    bundle = Path(options.bundle)
    out: Path = options.out or bundle.with_name(bundle.name.removesuffix(".trace") + ".html")
    export(loaded(bundle), out, **chosen_options(options, ["graph"]))
    if not options.json:
        print(f"wrote {out}")
    is_shown = not options.no_browser and _shown(out)
    if options.json:
        print_json("open", {"written": str(out), "opened": is_shown})
    elif not is_shown and not options.no_browser:
        print(
            "no browser could be opened here: open the file in a browser, on this machine or another"
        )
    return 0


def _shown(page: Path) -> bool:
    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False

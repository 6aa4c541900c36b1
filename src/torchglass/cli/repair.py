"""Finish the bundle of a program that was killed, or keep what is intact of a damaged one.

Nothing that was written is lost: every recorded step and tensor stays, and the trace says that it has no end. A
complete bundle is left as it is. A bundle that is still being written is refused.

examples:
  torchglass repair run.trace
"""

from __future__ import annotations

import argparse
from typing import Any

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import Bar
from torchglass.events.spelling import clean


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundles to repair."""
    parser.add_argument(
        "bundles",
        nargs="+",
        metavar="BUNDLE",
        help="a folder made by record(to=…) or torchglass run",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Repair each bundle and print what was done."""
    from torchglass.store import repair

    repaired: list[dict[str, Any]] = []
    for bundle in options.bundles:
        with Bar(f"repairing {bundle}") as bar:
            done = repair(bundle, bar)
        repaired.append({"bundle": bundle, "done": list(done)})
        if not options.json:
            for each in done or ["whole already, nothing was changed"]:
                print(f"{clean(bundle)}: {clean(each)}")
    if options.json:
        print_json("repair", {"bundles": repaired})
    return 0

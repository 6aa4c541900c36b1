"""Finish a bundle that a kill left, or keep what is sound of one that was damaged.

Nothing that was written is lost: steps and tensors that the program had handed over are there afterwards, and the
trace says that it has no end. A bundle that is whole is left as it is, one that is still being written is refused.

examples:
  torchglass repair run.trace
"""

from __future__ import annotations

import argparse

from torchglass.cli.progress import Bar
from torchglass.events.spelling import clean


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundles to repair."""
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="a folder made by record(to=…) or torchglass run")


def run(options: argparse.Namespace) -> int:
    """Repair each, and say what was done."""
    from torchglass.store import repair

    for bundle in options.bundles:
        with Bar(f"repairing {bundle}") as bar:
            done = repair(bundle, bar)
        for each in done or ["whole already, nothing was changed"]:
            print(f"{clean(bundle)}: {clean(each)}")
    return 0

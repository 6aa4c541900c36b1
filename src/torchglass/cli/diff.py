"""Find where two recorded runs first really differ, and why.

The programs need to share only their numbers: a port, a refactoring, another attention, another dtype. Record both with
`torchglass run --ops --values stats+sketch`. Without ops, functions and modules are compared; without fingerprints,
only what ran. The exit status is 0 if both agree up to rounding, and 1 if they do not.

examples:
  torchglass diff reference.trace port.trace
  torchglass diff reference.trace port.trace --again reference2.trace     ignore noise from run to run
  torchglass diff reference.trace port.trace --html diff.html           both codes side by side, in a browser
  torchglass diff before.trace after.trace --json | jq .first
  torchglass run --against reference.trace port.py                       record and compare in one go
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import loaded


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the two bundles, and how to print."""
    parser.add_argument(
        "reference", metavar="A", type=Path, help="the run that is right, or the earlier one"
    )
    parser.add_argument("other", metavar="B", type=Path, help="the run to compare with it")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="A2",
        action="append",
        default=[],
        help="a second run of A: differences between A and A2 are taken for noise; repeatable",
    )
    parser.add_argument(
        "--other-again",
        type=Path,
        metavar="B2",
        action="append",
        default=[],
        help="a second run of B, likewise; repeatable",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write a page: both codes side by side"
    )
    add_json(parser)
    parser.add_argument(
        "--width", type=int, metavar="N", help="width in columns; default: the terminal's"
    )
    parser.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="default: colors on a terminal",
    )


def run(options: argparse.Namespace) -> int:
    """Load both bundles, compare them and print the result."""
    again = [loaded(path) for path in options.again]
    other_again = [loaded(path) for path in options.other_again]
    reference = loaded(options.reference)
    other = loaded(options.other)
    found = reference.diff(other, again=again, other_again=other_again)
    if options.html is not None:
        write_page(reference, other, found, options.html)
    print_diff(found, options.json, options.width, options.color)
    if found.equal:
        return 0
    return 1


def write_page(reference: Any, other: Any, found: Any, path: Path) -> None:
    """Write the page of two runs."""
    from torchglass.views.export import write
    from torchglass.views.page.html import diff_page

    write(path, diff_page(reference, other, found).encode("utf-8", "replace"))


def print_diff(
    found: Any, as_json: bool = False, width: int | None = None, color: bool | None = None
) -> None:
    """Print a diff to stdout."""
    from torchglass.answers.diff import diff_lines
    from torchglass.views.text.style import page_for, writable

    if as_json:
        print_json("diff", found.to_dict())
        return
    for line in diff_lines(found, page_for(sys.stdout, width=width, color=color)):
        print(writable(line, sys.stdout))

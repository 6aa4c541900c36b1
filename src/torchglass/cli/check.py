"""Report what looks wrong in a recorded program: silent bugs, with the evidence and the fix.

Exits with 1 if there is a bug, so you can use it in CI. Likely problems are printed too; --all adds hints.
`torchglass explain NAME` says what a finding means. To silence one: a comment `# torchglass: ignore[NAME]` on its
line, --ignore NAME, or in pyproject.toml

    [tool.torchglass]
    ignore = ["NAME"]

examples:
  torchglass check run.trace
  torchglass check --json run.trace
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from torchglass.answers.finding import BUG, ERROR, HINT, Finding, finding_lines
from torchglass.answers.findings.check import Report, check
from torchglass.answers.findings.registry import known_names
from torchglass.answers.findings.text import counted
from torchglass.cli.output import add_json, print_json
from torchglass.cli.progress import Bar, add_bundle, loaded
from torchglass.cli.settings import ignored_names
from torchglass.errors import UsageError, closest
from torchglass.views.text.style import Page, page_for, writable

FOUND = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle and what to report."""
    add_bundle(parser)
    parser.add_argument(
        "--all", action="store_true", help="show hints too: true, but seldom worth a change"
    )
    add_json(parser)
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="NAME", help="do not report this finding"
    )


def run(options: argparse.Namespace) -> int:
    """Print the findings. Return 1 if one of them is a bug."""
    names = [name for given in options.ignore for name in given.split(",")]
    _check_names(names)
    trace = loaded(options.bundle)
    with Bar("checking"):
        report = check(trace, {*names, *ignored_names()})
    shown = [each for each in report.findings if options.all or each.severity != HINT]
    if options.json:
        print_json("check", _as_json(report, shown))
    else:
        for line in _lines(report, shown, page_for(sys.stdout)):
            print(writable(line, sys.stdout))
    if any(each.severity in (ERROR, BUG) for each in report.findings):
        return FOUND
    return 0


def _check_names(names: list[str]) -> None:
    known = known_names()
    for name in names:
        if name.replace("_", "-") not in known:
            raise UsageError(f"no finding {name!r}; {closest(name, known)}")


def _as_json(report: Report, shown: list[Finding]) -> dict[str, object]:
    return {
        "findings": [each.to_dict() for each in shown],
        "silenced": len(report.silenced),
        "not_judged": list(report.missing),
    }


def _lines(report: Report, shown: list[Finding], page: Page) -> Iterator[str]:
    for each in shown:
        yield from finding_lines(each, page)
        yield f"  {page.paint('dim', f'torchglass explain {each.kind}')}"
        yield ""
    yield counted(
        report.findings, report.silenced, are_hints_shown=len(shown) == len(report.findings)
    )
    for text in report.missing:
        yield f"not judged: {text}"

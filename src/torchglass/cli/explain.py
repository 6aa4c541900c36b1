"""Explain a finding: what it means and when to ignore it; without a name, list all.

examples:
  torchglass explain broadcast
"""

from __future__ import annotations

import argparse

from torchglass.answers.findings.registry import DETECTORS, explanation, name_of, summary_of
from torchglass.cli.output import add_json, print_json
from torchglass.errors import NotRecorded, closest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the name of the finding."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="as printed by torchglass check")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    chosen = list(DETECTORS)
    if options.name is not None:
        wanted = options.name.replace("_", "-")
        chosen = [detector for detector in DETECTORS if name_of(detector) == wanted]
        if not chosen:
            raise NotRecorded(
                f"no finding {options.name!r}; {closest(wanted, set(map(name_of, DETECTORS)))}"
            )
    if options.json:
        findings = [
            {"name": name_of(each), "summary": summary_of(each), "explanation": explanation(each)}
            for each in chosen
        ]
        print_json("explain", {"findings": findings})
    elif options.name is None:
        for detector in chosen:
            print(f"{name_of(detector):<24} {summary_of(detector)}")
    else:
        print(explanation(chosen[0]))
    return 0

"""Show a kept trace: as a tree, as code with its ops, as an annotated listing, as a table …

Each view has options of its own; one that the view does not know is an error that names those it does.

examples:
  torchglass show run.trace
  torchglass show run.trace --view code --only module=encoder.*
  torchglass show run.trace --view listing --path model.py
  torchglass show run.trace --view tree --depth 2 --color | less -R
"""

from __future__ import annotations

import argparse
import gc
from typing import Any

from torchglass.cli.progress import Bar
from torchglass.errors import UsageError, closest
from torchglass.events.selection import Selection, select

CRITERIA = ("module", "function", "op", "variable", "kind")
OPTIONS: dict[str, dict[str, str]] = {
    "shapes": {"calls": "bool"},
    "counts": {"calls": "bool"},
    "order": {"calls": "str"},
    "steps": {"code": "str"},
    "frames": {"code": "str"},
    "hide": {"code": "tuple[str, ...]"},
    "depth": {"code": "int | None", "table": "int | None", "tree": "int | None"},
    "times": {"code": "bool", "listing": "bool", "table": "bool", "tree": "bool", "variables": "bool"},
    "inner": {"code": "bool", "tree": "bool"},
    "fold": {"code": "bool", "table": "bool", "tree": "bool", "variables": "bool"},
    "succinct": {"code": "bool"},
    "path": {"listing": "str | tuple[str, ...] | None"},
    "functions": {"listing": "str", "tree": "bool"},
    "by": {"listing": "str | None", "variables": "str"},
    "style": {"listing": "str"},
    "names": {"variables": "tuple[str, ...] | str"},
}
"""The options of all views: by name, the views that have it and its type there.

Written down here (a test compares it with the views), so that a command imports only the view that it shows.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the view, and where lines go; then the options of all views, each with the views that have it."""
    from torchglass.api import VIEWS

    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument("--view", choices=VIEWS, default="tree", help="what to show; default: tree")
    parser.add_argument(
        "--only",
        action="append",
        metavar="KEY=PATTERN",
        help=f"only what matches: {', '.join(CRITERIA)}; may be given more than once",
    )
    parser.add_argument("--width", type=int, metavar="N", help="columns; default: the terminal's")
    parser.add_argument("--color", action=argparse.BooleanOptionalAction, default=None, help="default: on a terminal")
    for name, kinds in OPTIONS.items():
        _add_option(parser, name, set(kinds.values()), f"an option of {', '.join(kinds)}")


def run(options: argparse.Namespace) -> int:
    """Load and print."""
    from torchglass.api import load, show
    from torchglass.store import watched

    asked = {name: getattr(options, name) for name in OPTIONS}
    chosen = {name: value for name, value in asked.items() if value is not None}
    _check(options.view, chosen)
    if options.only:
        chosen["only"] = selection(options.only)
    # A process that only shows makes no garbage: looking for some takes a third of the time of a large trace.
    was_on = gc.isenabled()
    gc.disable()
    try:
        with Bar(f"reading {options.bundle}") as bar, watched(bar):
            trace = load(options.bundle)
        show(trace, options.view, width=options.width, color=options.color, **chosen)
    finally:
        if was_on:
            gc.enable()
    return 0


def view_options(view: str) -> dict[str, str]:
    """The options of a view that can be given in a command, with their types as written."""
    return {name: kinds[view] for name, kinds in OPTIONS.items() if view in kinds}


def _add_option(parser: argparse.ArgumentParser, name: str, kinds: set[str], text: str) -> None:
    flag, kind = "--" + name.replace("_", "-"), min(kinds - {"bool"}, default="bool")
    if kind == "bool":
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    elif kind.startswith("int"):
        parser.add_argument(flag, type=int, metavar="N", help=text)
    elif kind.startswith("tuple"):
        parser.add_argument(flag, type=_names, metavar="A,B", help=text)
    else:
        parser.add_argument(flag, metavar="WORD", help=text)
    if "bool" in kinds and kind != "bool":  # a word in one view, a switch in another
        no = "--no-" + name.replace("_", "-")
        parser.add_argument(no, dest=name, action="store_false", default=None, help="switch that off")


def _check(view: str, chosen: dict[str, Any]) -> None:
    """Refuse a word for what is a switch in this view, and the other way round; the rest the view checks itself."""
    kinds = view_options(view)
    for name, value in chosen.items():
        flag = name.replace("_", "-")
        if kinds.get(name) == "bool" and not isinstance(value, bool):
            raise UsageError(f"--{flag} takes no word in the view {view!r}: --no-{flag} switches it off")
        if name in kinds and kinds[name] != "bool" and isinstance(value, bool):
            raise UsageError(f"--no-{flag} is no option of the view {view!r}, in which --{flag} takes a word")


def _names(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each)


def selection(given: list[str]) -> Selection:
    """``module=encoder.*`` and the like, as ``select(…)`` takes them."""
    criteria: dict[str, Any] = {}
    for text in given:
        key, equals, pattern = text.partition("=")
        if key not in CRITERIA:
            raise UsageError(f"--only takes KEY=PATTERN, not {text!r}; {closest(key, CRITERIA)}")
        if not equals:
            raise UsageError(f"--only takes KEY=PATTERN, and {text!r} is the key alone: as --only '{key}=*'")
        criteria[key] = (*criteria.get(key, ()), pattern)
    return select(**criteria)

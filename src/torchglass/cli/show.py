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
import importlib
from typing import Any

from torchglass.cli.progress import Bar
from torchglass.errors import UsageError, closest
from torchglass.events.selection import Selection, select
from torchglass.views import VIEWS
from torchglass.views.options import NAMES, NUMBER, SELECTION, SWITCH, Option, options_of

CRITERIA = ("module", "function", "op", "variable", "kind")


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle, the view, and where lines go; then the options of all views, each with the views that have it."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument(
        "--view", choices=VIEWS, help="what to show; default: tree, or failure where an exception ended the program"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="KEY=PATTERN",
        help=f"only what matches: {', '.join(CRITERIA)}; may be given more than once",
    )
    parser.add_argument("--width", type=int, metavar="N", help="columns; default: the terminal's")
    parser.add_argument("--color", action=argparse.BooleanOptionalAction, default=None, help="default: on a terminal")
    for name, by_view in view_options().items():
        _add_option(parser, name, by_view)


def view_options() -> dict[str, dict[str, Option]]:
    """The options of all views, as their own classes have them: by name, then by view."""
    found: dict[str, dict[str, Option]] = {}
    for view in VIEWS:
        options = importlib.import_module(f"torchglass.views.{view}").Options
        for option in options_of(options):
            if option.kind != SELECTION:  # --only, which is spelt in its own way
                found.setdefault(option.name, {})[view] = option
    return found


def run(options: argparse.Namespace) -> int:
    """Load and print."""
    from torchglass.api import load, show
    from torchglass.store import watched

    known = view_options()
    asked = {name: getattr(options, name) for name in known}
    chosen = {name: value for name, value in asked.items() if value is not None}
    _check(options.view or "tree", chosen, known)
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


def _add_option(parser: argparse.ArgumentParser, name: str, by_view: dict[str, Option]) -> None:
    """One flag for all views that have such an option; what it means, and where, is in the help."""
    flag, kinds, text = "--" + name.replace("_", "-"), {option.kind for option in by_view.values()}, _help(by_view)
    kind = min(kinds - {SWITCH}, default=SWITCH)
    if kind == SWITCH:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    elif kind == NUMBER:
        parser.add_argument(flag, type=int, metavar="N", help=text)
    elif kind == NAMES:
        parser.add_argument(flag, type=_names, metavar="A,B", help=text)
    else:
        parser.add_argument(flag, metavar="WORD", help=text)
    if SWITCH in kinds and kind != SWITCH:  # a word in one view, a switch in another
        no = "--no-" + name.replace("_", "-")
        parser.add_argument(no, dest=name, action="store_false", default=None, help="switch that off")


def _help(by_view: dict[str, Option]) -> str:
    """``tree, code: levels below the outermost one``: each meaning once, with the views that it holds for."""
    meanings: dict[str, list[str]] = {}
    for view, option in by_view.items():
        choices = f" ({', '.join(option.choices)})" if option.choices else ""
        usual = " (on by default)" if option.default is True else ""
        meanings.setdefault(option.meaning + choices + usual, []).append(view)
    text = "; ".join(f"{', '.join(views)}: {meaning}" for meaning, views in meanings.items())
    return text.replace("%", "%%")


def _check(view: str, chosen: dict[str, Any], known: dict[str, dict[str, Option]]) -> None:
    """Refuse a word for what is a switch in this view, and the other way round; the rest the view checks itself."""
    for name, value in chosen.items():
        option, flag = known[name].get(view), name.replace("_", "-")
        if option is not None and option.kind == SWITCH and not isinstance(value, bool):
            raise UsageError(f"--{flag} takes no word in the view {view!r}: --no-{flag} switches it off")
        if option is not None and option.kind != SWITCH and isinstance(value, bool):
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

"""The options of views as arguments of a command: names, meanings and choices are those of the views' own classes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from torchglass.errors import UsageError, closest
from torchglass.events.selection import Selection, select
from torchglass.views import VIEWS
from torchglass.views.options import NAMES, NUMBER, OPTIONS, SELECTION, SWITCH, Option, options_of

CRITERIA = ("module", "function", "op", "variable", "kind")


def add_options(parser: argparse._ActionsContainer, views: Sequence[str] = VIEWS) -> None:  # pyright: ignore[reportPrivateUsage] - argparse has no public name for it
    """The options of these views, each with the views that have it, if not all do."""
    parser.add_argument(
        "--only",
        action="append",
        metavar="KEY=PATTERN",
        help=f"only what fits, as function=softmax or module=encoder.*; keys are {', '.join(CRITERIA)}; may be given "
        "more than once",
    )
    for name, by_view in view_options(views).items():
        _add_option(parser, name, by_view, len(views))


def view_options(views: Sequence[str] = VIEWS) -> dict[str, dict[str, Option]]:
    """The options of views, as their own classes have them: by name, then by view."""
    found: dict[str, dict[str, Option]] = {}
    for view in views:
        for name, option in options_of(OPTIONS[view]).items():
            if option.kind != SELECTION:  # --only, which is spelt in its own way
                found.setdefault(name, {})[view] = option
    return found


def given(options: argparse.Namespace, view: str, views: Sequence[str] = VIEWS) -> dict[str, Any]:
    """What was given, as ``show()`` takes it."""
    known = view_options(views)
    asked = {name: getattr(options, name) for name in known}
    chosen = {name: value for name, value in asked.items() if value is not None}
    _check(view, chosen, known)
    if options.only:
        chosen["only"] = selection(options.only)
    return chosen


def _add_option(parser: argparse._ActionsContainer, name: str, by_view: dict[str, Option], views: int) -> None:  # pyright: ignore[reportPrivateUsage] - as above
    """One flag for all views that have such an option; what it means, and where, is in the help."""
    flag, kinds = "--" + name.replace("_", "-"), {option.kind for option in by_view.values()}
    kind, text = min(kinds - {SWITCH}, default=SWITCH), _help(by_view, views)
    choices = {option.choices for option in by_view.values()}
    if kind == SWITCH:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    elif kind == NUMBER:
        parser.add_argument(flag, type=int, metavar="N", help=text)
    elif kind == NAMES:
        parser.add_argument(flag, type=_names, metavar="A,B", help=text)
    else:
        parser.add_argument(flag, metavar="|".join(choices.pop()) if len(choices) == 1 else "WORD", help=text)
    if SWITCH in kinds and kind != SWITCH:  # a word in one view, a switch in another
        no = "--no-" + name.replace("_", "-")
        parser.add_argument(no, dest=name, action="store_false", default=None, help="switch that off")


def _help(by_view: dict[str, Option], views: int) -> str:
    """``tree, code: levels below the outermost one``: each meaning once, with the views that it holds for."""
    meanings: dict[str, list[str]] = {}
    for view, option in by_view.items():
        choices = f" ({', '.join(option.choices)}" if option.choices else ""
        choices += f"; default {option.default})" if choices and option.default else ")" if choices else ""
        usual = " (on by default)" if option.default is True else ""
        meanings.setdefault(option.meaning + choices + usual, []).append(view)
    if len(meanings) == 1 and len(by_view) == views:
        return next(iter(meanings)).replace("%", "%%")
    ordered = sorted(meanings.items(), key=lambda each: len(each[1]) >= views - 2)
    text = "; ".join(f"{_of(names, views)}: {meaning}" for meaning, names in ordered)
    return text.replace("%", "%%")


def _of(names: Sequence[str], views: int) -> str:
    """Which views, where most of them are meant by those that are not."""
    return ", ".join(names) if len(names) < views - 2 else "other views"


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


def selection(given: list[str], option: str = "--only") -> Selection:
    """``module=encoder.*`` and the like, as ``select(…)`` takes them."""
    criteria: dict[str, Any] = {}
    for text in given:
        key, equals, pattern = text.partition("=")
        if key not in CRITERIA:
            raise UsageError(f"{option} takes KEY=PATTERN, not {text!r}; {closest(key, CRITERIA)}")
        if not equals:
            raise UsageError(f"{option} takes KEY=PATTERN, and {text!r} is the key alone: as {option} '{key}=*'")
        criteria[key] = (*criteria.get(key, ()), pattern)
    return select(**criteria)

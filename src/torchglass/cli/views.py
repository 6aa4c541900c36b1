"""Makes the arguments of a command from the options of views.

Names, meanings and choices of the options are in their classes (``views/options.py``). Several views may have an
option of one name, with another meaning each. The command has one flag for it, and its help says which view does what.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from torchglass.errors import UnknownView, UsageError, closest
from torchglass.events.selection import Selection, select
from torchglass.views import VIEWS
from torchglass.views.options import (
    NAMES,
    NUMBER,
    OPTIONS,
    SELECTION,
    SWITCH,
    TEXT,
    Option,
    options_of,
)

CRITERIA = ("module", "function", "op", "variable", "kind")
"""The keys of ``--only KEY=PATTERN``."""
MAX_VIEWS_NAMED_APART = 2
"""If all views but this many give an option one meaning, the help says "other views" for them."""


def view_name(text: str) -> str:
    """Return the name of a view in Python, ``first_bad``, for its name on the command line, ``first-bad``."""
    name = text.replace("-", "_")
    if name not in VIEWS:
        raise UnknownView(f"no view {text!r}; {_dashed(closest(name, VIEWS))}")
    return name


def _dashed(text: str) -> str:
    return text.replace("_", "-")


def shown_names() -> str:
    """Return the names of all views, as they are written on the command line."""
    return ", ".join(map(_dashed, VIEWS))


def completions(**_: object) -> list[str]:
    """Return the names of views that the shell offers when it completes a command."""
    return list(map(_dashed, VIEWS))


def add_options(parser: argparse._ActionsContainer, views: Sequence[str] = VIEWS) -> None:  # pyright: ignore[reportPrivateUsage] - argparse has no public name for it
    """Add the options of these views. The help of an option that not all of them have names those that do."""
    parser.add_argument(
        "--only",
        action="append",
        metavar="KEY=PATTERN",
        help="show only what matches, such as function=softmax or module=encoder.*; "
        f"the keys are {', '.join(CRITERIA)}; repeatable",
    )
    for name, by_view in view_options(views).items():
        _add_option(parser, name, by_view, len(views))


def view_options(views: Sequence[str] = VIEWS) -> dict[str, dict[str, Option]]:
    """Return the options of views, by the name of the option and then by view."""
    by_name: dict[str, dict[str, Option]] = {}
    for view in views:
        for name, option in options_of(OPTIONS[view]).items():
            if option.kind != SELECTION:  # --only is spelt differently
                by_name.setdefault(name, {})[view] = option
    return by_name


def chosen_options(options: argparse.Namespace, views: Sequence[str] = VIEWS) -> dict[str, Any]:
    """Return the options that the user gave, as ``show()`` takes them."""
    chosen: dict[str, Any] = {}
    for name in view_options(views):
        value = getattr(options, name)
        if value is not None:
            chosen[name] = value
    if options.only:
        chosen["only"] = selection(options.only)
    return chosen


def _add_option(
    parser: argparse._ActionsContainer,  # pyright: ignore[reportPrivateUsage] - as above
    name: str,
    by_view: dict[str, Option],
    views: int,
) -> None:
    """Add one flag for all views that have an option of this name.

    ``views`` is the number of all views of the command.
    """
    flag = "--" + _dashed(name)
    (kind,) = {option.kind for option in by_view.values()}  # the same in every view
    text = _help(by_view, views)
    if kind == SWITCH:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    elif kind == NUMBER:
        parser.add_argument(flag, type=int, metavar="N", help=text)
    elif kind == TEXT:
        parser.add_argument(flag, metavar="CONDITION", help=text)
    elif kind == NAMES:
        parser.add_argument(flag, type=_names, metavar="A,B", help=text)
    else:
        choices = {option.choices for option in by_view.values()}
        metavar = "WORD"
        if len(choices) == 1:
            metavar = "|".join(choices.pop())
        parser.add_argument(flag, metavar=metavar, help=text)


def _help(by_view: dict[str, Option], views: int) -> str:
    """Return each meaning of an option once, after its views: ``tree, code: levels below the outermost one``."""
    views_by_meaning: dict[str, list[str]] = {}
    for view, option in by_view.items():
        meaning = option.meaning + _choices(option)
        if option.default is True:
            meaning += " (on by default)"
        views_by_meaning.setdefault(meaning, []).append(_dashed(view))
    if len(views_by_meaning) == 1 and len(by_view) == views:
        (text,) = views_by_meaning
        return text.replace("%", "%%")
    parts: list[str] = []
    last: list[str] = []
    for meaning, names in views_by_meaning.items():
        if len(names) < views - MAX_VIEWS_NAMED_APART:
            parts.append(f"{', '.join(names)}: {meaning}")
        else:
            last.append(f"other views: {meaning}")
    return "; ".join([*parts, *last]).replace("%", "%%")


def _choices(option: Option) -> str:
    """Return `` (begin, end; default begin)`` for an option that takes one of a few words."""
    if not option.choices:
        return ""
    words = ", ".join(option.choices)
    if option.default:
        return f" ({words}; default {option.default})"
    return f" ({words})"


def _names(text: str) -> tuple[str, ...]:
    """Return the names in ``a,b``."""
    return tuple(name for name in text.split(",") if name)


def selection(texts: list[str], option: str = "--only") -> Selection:
    """Return the selection for texts such as ``module=encoder.*``. ``option`` is the flag to name in errors."""
    criteria: dict[str, Any] = {}
    for text in texts:
        key, equals, pattern = text.partition("=")
        if key not in CRITERIA:
            raise UsageError(f"{option} takes KEY=PATTERN, not {text!r}; {closest(key, CRITERIA)}")
        if not equals:
            raise UsageError(
                f"{option} takes KEY=PATTERN, but {text!r} has no pattern: write {option} '{key}=*'"
            )
        criteria[key] = (*criteria.get(key, ()), pattern)
    return select(**criteria)

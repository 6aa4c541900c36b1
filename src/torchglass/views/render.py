"""Finds a view by its name and writes it: how the block ended, the view itself, what the recorder had to say."""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from torchglass.errors import NotRecorded, UnknownOption, UnknownView, closest
from torchglass.events.selection import Selection, base_name, fits_path, in_package, is_installed, module_parts, select
from torchglass.events.spelling import clean
from torchglass.views import VIEWS
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.options import OPTIONS, ViewOptions
from torchglass.views.row import COUNT, NOTE, REMARK, Cell
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import wrapped

NOTHING = "Nothing was recorded: no module or torch function ran inside the block."
ADVICE = (
    "Call the model, or any torch code, inside `with record() as trace:`, on the same thread or on threads started"
    " there; TORCHGLASS=0 in the environment turns recording off."
)
FAILED_BEFORE = "Nothing was recorded: the program failed before any module or torch function ran."
UNFINISHED = "Nothing was written before the recording stopped, or it has only begun."
_STYLES = {COUNT: "dim", REMARK: "dim", NOTE: "note"}


def options_for(view: str, given: Mapping[str, Any]) -> Any:
    """The options of a view; an unknown view or option is an error that names those there are."""
    if view not in VIEWS:
        raise UnknownView(f"no view {view!r}; {closest(str(view), VIEWS)}")
    options = OPTIONS[view]
    known = [field.name for field in fields(options)]
    for name in given:
        if name not in known:
            raise UnknownOption(f"the view {view!r} has no option {name!r}; {closest(name, known)}")
    return options(**given)


def lines(trace: Recorded, view: str, options: Any, page: Page) -> Iterator[str]:
    """All lines of a view; ``options`` are its own. What is long ends with how to see less or more."""
    printed = 0
    for line in _all(trace, view, options, page):
        printed += 1
        yield line
    is_copy = getattr(options, "style", "") == "comments"  # a file of its own, with nothing before or behind it
    if len(trace) and not is_copy and (page.command or printed > LONG):
        yield from _sentence(Cell(REMARK, hint(view, options, page.command)), page)


def _all(trace: Recorded, view: str, options: Any, page: Page) -> Iterator[str]:
    shown = importlib.import_module(f"torchglass.views.{view}")
    check(trace, options)
    if getattr(options, "style", "") == "comments":
        yield from shown.copy(trace, options)
        return
    if view != "failure":
        yield from _how_it_ended(trace, page)
    if not len(trace) and view != "variables":
        for each in _why_nothing(trace):
            yield from textwrap.wrap(each, page.width)
    else:
        sheet = shown.sheet(trace, options)
        yield from getattr(shown, "lines", draw)(sheet.rows, page)  # where it has no way of its own
        for cell in sheet.below:
            yield from _sentence(cell, page)
    for note in trace.notes:
        yield from _sentence(Cell(NOTE, f"note: {note}"), page)


def _how_it_ended(trace: Recorded, page: Page) -> Iterator[str]:
    """Of a trace that an exception left: the error, before everything else."""
    if not trace.left_by:
        return
    failure = importlib.import_module("torchglass.views.failure")
    row = failure.error_row(trace)
    if row is not None:
        yield from failure.error_lines(row, page)
        yield from draw(failure.raised_rows(trace, trace.failure())[-1:], page)
        yield page.paint("dim", "how it came about: the view 'failure'")
        yield ""


def _why_nothing(trace: Recorded) -> tuple[str, ...]:
    if not trace.complete:
        return (UNFINISHED,)
    return (FAILED_BEFORE,) if trace.left_by else (NOTHING, ADVICE)


def _sentence(cell: Cell, page: Page) -> Iterator[str]:
    style, text = _STYLES.get(cell.kind), cell.text
    if page.command and cell.kind == COUNT:
        text = _OPTION.sub(lambda found: f"({_spelt(found['name'], found['value'] == 'True', command=True)})", text)
    for line in wrapped(text, page.width):
        yield page.paint(style, line) if style else line


# ---------------------------------------------------------------- hints

# The last line of a long view: which options show less of it or more, and which view shows it in another way.

LONG = 60
"""Lines from which on a view says how to see less of it; on the terminal of the command it always does."""
_LESS: dict[str, tuple[tuple[str, object], ...]] = {
    "listing": (("path", "model.py"),),
    "variables": (("names", "loss"),),
    "calls": (("hide", "transformers"),),
}
_MORE = (("fold", False), ("inner", True))
_OPTION = re.compile(r"\((?P<name>[a-z]+)=(?P<value>True|False)\)")
"""What shows more of what is only counted."""


def hint(view: str, options: Any, command: bool) -> str:
    """``less: depth=1 · more: fold=False · another view: show(trace, "listing")``; "" where there is nothing to say."""
    if view == "failure":
        return ""
    parts = [
        f"{word}: {', '.join(_spelt(name, value, command) for name, value in found)}"
        for word, found in (("less", list(_less(view, options))), ("more", list(_more(options))))
        if found
    ]
    other = ("listing", "your lines with shapes") if view != "listing" else ("tree", "every call")
    parts.append(f"{other[1]}: " + (f"--view {other[0]}" if command else f"show(trace, {other[0]!r})"))
    return " · ".join(parts)


def _less(view: str, options: Any) -> Iterator[tuple[str, object]]:
    if any(each.name == "depth" for each in fields(options)):
        if options.depth is None or options.depth > 1:
            yield "depth", 1 if options.depth is None else options.depth - 1
        return
    yield from ((name, value) for name, value in _LESS.get(view, ()) if not getattr(options, name))


def _more(options: Any) -> Iterator[tuple[str, object]]:
    known = {each.name for each in fields(options)}
    yield from ((name, value) for name, value in _MORE if name in known and getattr(options, name) is not value)
    if getattr(options, "depth", None) is not None:
        yield "depth", options.depth + 1


def _spelt(name: str, value: object, command: bool) -> str:
    """As it is given to ``show()``, or to the command."""
    if not command:
        return f"{name}={value!r}"
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"


# ---------------------------------------------------------------- filters

# What is asked for and is not there: a pattern that nothing in the trace fits is an error with the near names.

MOST_NAMED = 20
HOW = {"op": ": record(ops=True) records them", "variable": ": record(variables=True) follows them"}


def check(trace: Recorded, options: ViewOptions) -> None:
    """Refuse patterns of ``only=``, ``path=`` and ``hide=`` that fit nothing in the trace."""
    only = options.only
    if not len(trace) or (only is None and not options.path and not options.hide):
        return
    samples = digest_of(trace).samples
    steps = {event.file for event in samples if event.file is not None}
    files = steps | {at.file for event in samples for at in event.stack}
    only = only or Selection()
    _each("path", options.path or only.path, files, fits_path, map(base_name, steps))
    _each("hide", options.hide or only.hide, files, in_package, map(_package, steps))
    modules = {event.module for event in samples if event.module is not None}
    _each("module", only.module, modules, lambda path, pattern: Selection(module=(pattern,)).fits_module(path), modules)
    for kind in ("function", "op", "variable"):
        events = [event for event in samples if event.kind == kind]
        for pattern in getattr(only, kind):
            wanted = select(**{kind: pattern})
            if not any(map(wanted.matches, events)):
                raise _nothing(kind, pattern, (event.name for event in events))


def _each(
    what: str, patterns: Iterable[str], words: Iterable[str], fits: Callable[[str, str], bool], names: Iterable[str]
) -> None:
    known = list(words)
    for pattern in patterns:
        if not any(fits(word, pattern) for word in known):
            raise _nothing(what, pattern, names)


def _nothing(what: str, pattern: str, names: Iterable[str]) -> NotRecorded:
    known = sorted({clean(name) for name in names if name})
    hint = closest(pattern, known) + ("" if known else HOW.get(what, ""))
    if len(known) > MOST_NAMED:
        near = hint.partition("there are: ")[0]
        hint = f"{near}there are {len(known)}, as {', '.join(known[:MOST_NAMED])} …"
    return NotRecorded(f"{what}={pattern!r}: nothing in the trace fits; {hint}")


def _package(file: str) -> str:
    """The name by which ``hide=`` finds a file: its package, or of the program's own files its name."""
    parts = module_parts(file)
    return parts[0] if is_installed(file) else parts[-1]

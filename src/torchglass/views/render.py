"""Writes a view, found by its name: how the block ended, the view itself, hints, and the recorder's notes.

Patterns of ``only=``, ``path=`` and ``hide=`` that match nothing in the trace are errors, raised before the first line.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from torchglass.answers.failure import error_of
from torchglass.errors import NotRecorded, UnknownOption, UnknownView, UsageError, closest
from torchglass.events.selection import (
    Selection,
    base_name,
    fits_path,
    in_package,
    is_installed,
    module_parts,
    select,
)
from torchglass.events.spelling import clean
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views import VIEWS
from torchglass.views.finding_marks import add_marks
from torchglass.views.options import OPTIONS, ViewOptions
from torchglass.views.row import COUNT, NOTE, REMARK, Cell
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import wrapped

EMPTY_TRACE = "Nothing was recorded: no module or torch function ran inside the block."
HOW_TO_RECORD = (
    "Call the model, or any torch code, inside `with record() as trace:`, on the same thread or on threads started"
    " there; TORCHGLASS=0 in the environment turns recording off."
)
FAILED_BEFORE = "Nothing was recorded: the program failed before any module or torch function ran."
UNFINISHED = "Nothing was written before the recording stopped, or it has only begun."
_STYLES = {COUNT: "dim", REMARK: "dim", NOTE: "note"}
"""By the kind of a cell below the rows, the style of its text."""


def options_for(view: str, given: Mapping[str, Any]) -> Any:
    """Return the options of a view; raise an error that lists those that exist if the view or an option is unknown."""
    if view not in VIEWS:
        raise UnknownView(f"no view {view!r}; {closest(str(view), VIEWS)}")
    options = OPTIONS[view]
    known = [field.name for field in fields(options)]
    for name in given:
        if name not in known:
            raise UnknownOption(f"the view {view!r} has no option {name!r}; {closest(name, known)}")
    return options(**given)


def default_view(trace: Recorded, given: Mapping[str, Any]) -> str:
    """Return the name of the default view: ``failure`` if a recorded call failed, otherwise ``tree``."""
    if trace.failure() is not None and not given:
        return "failure"
    return "tree"


def view_lines(
    trace: Recorded, view: str | None, page: Page, given: Mapping[str, Any]
) -> Iterator[str]:
    """Return the lines of a view. Errors in its name or options are raised at once, before the first line."""
    if view is None:
        name = default_view(trace, given)
    else:
        name = view
    return lines(trace, name, options_for(name, given), page)


def view_data(trace: Recorded, view: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a view shows as plain data: how the block ended, the rows, the notes (docs/json.md)."""
    if view is None:
        name = default_view(trace, given)
    else:
        name = view
    options = options_for(name, given)
    if getattr(options, "style", "") == "comments":
        raise UsageError("style='comments' gives a file and no rows: leave it out")
    check(trace, options)
    error = error_of(trace)
    shown = importlib.import_module(f"torchglass.views.{name}")
    sheet = shown.sheet(trace, options)
    if getattr(options, "findings", False):
        add_marks(trace, sheet)
    return {
        "view": name,
        "error": error,
        "rows": [row.to_dict() for row in sheet.rows],
        "below": [cell.to_dict() for cell in sheet.below],
        "notes": list(trace.notes),
    }


def lines(trace: Recorded, view: str, options: Any, page: Page) -> Iterator[str]:
    """Yield all lines of a view. Long output ends with a hint how to see less or more."""
    module = importlib.import_module(f"torchglass.views.{view}")
    check(trace, options)
    if getattr(options, "style", "") == "comments":
        # The copy of a source file, with nothing before or after it.
        yield from module.copy(trace, options)
        return
    printed = 0
    for line in _lines_without_hint(trace, view, options, page):
        printed += 1
        yield line
    if len(trace) and (page.command or printed > HINT_AFTER_LINES):
        bundle = ""
        if page.command:
            bundle = page.bundle
        yield from _sentence(Cell(REMARK, hint(view, options, bundle)), page)


def _lines_without_hint(trace: Recorded, view: str, options: Any, page: Page) -> Iterator[str]:
    module = importlib.import_module(f"torchglass.views.{view}")
    if view != "failure":
        yield from _how_it_ended(trace, page)
    if not len(trace) and view != "variables":
        for sentence in _why_empty(trace):
            yield from textwrap.wrap(sentence, page.width)
    else:
        sheet = module.sheet(trace, options)
        if getattr(options, "findings", False):
            add_marks(trace, sheet)
        draw_rows = getattr(module, "lines", draw)
        yield from draw_rows(sheet.rows, page)
        for cell in sheet.below:
            yield from _sentence(cell, page)
    for note in trace.notes:
        yield from _sentence(Cell(NOTE, f"note: {note}"), page)


def _how_it_ended(trace: Recorded, page: Page) -> Iterator[str]:
    """Yield the error and where it was raised, if an exception ended the block."""
    if not trace.left_by:
        return
    failure = importlib.import_module("torchglass.views.failure")
    row = failure.error_row(trace)
    if row is not None:
        yield from failure.error_lines(row, page)
        yield from draw(failure.raised_rows(trace, trace.failure())[-1:], page)
        yield page.paint("dim", "how it came about: the view 'failure'")
        yield ""


def _why_empty(trace: Recorded) -> tuple[str, ...]:
    """Return sentences that say why a trace has no events."""
    if not trace.complete:
        return (UNFINISHED,)
    if trace.left_by:
        return (FAILED_BEFORE,)
    return (EMPTY_TRACE, HOW_TO_RECORD)


def _sentence(cell: Cell, page: Page) -> Iterator[str]:
    """Yield the lines of a sentence below the rows. The command spells options as flags."""
    style = _STYLES.get(cell.kind)
    text = cell.text
    if page.command and cell.kind == COUNT:
        text = _OPTION.sub(
            lambda match: f"({_spelling(match['name'], match['value'] == 'True', command=True)})",
            text,
        )
    for line in wrapped(text, page.width):
        if style:
            yield page.paint(style, line)
        else:
            yield line


# ---------------------------------------------------------------- hints: how to see less or more

HINT_AFTER_LINES = 60
"""A view with more lines ends with a hint, since it does not fit a screen. In the command every view does."""
_LESS: dict[str, tuple[tuple[str, object], ...]] = {
    "listing": (("path", "model.py"),),
    "variables": (("names", "loss"),),
    "calls": (("hide", "transformers"),),
}
_MORE = (("fold", False), ("inner", True))
_OPTION = re.compile(r"\((?P<name>[a-z]+)=(?P<value>True|False)\)")
"""An option in a summary, which would show what the summary only counts."""


def hint(view: str, options: Any, bundle: str = "") -> str:
    """Return a hint: ``less: depth=1 · more: fold=False · your lines with shapes: show(trace, 'listing')``.

    With the name of a bundle it is written for the command. Some views have no hint: "".
    """
    if view in ("failure", "first_bad"):
        return ""
    is_command = bool(bundle)
    parts: list[str] = []
    for word, chosen in (("less", _less(view, options)), ("more", _more(options))):
        spelled = [_spelling(name, value, is_command) for name, value in chosen]
        if spelled:
            parts.append(f"{word}: {', '.join(spelled)}")
    other = "listing"
    about_other = "your lines with shapes"
    if view == "listing":
        other = "tree"
        about_other = "every call"
    if is_command:
        parts.append(f"{about_other}: torchglass show {bundle} {other}")
    else:
        parts.append(f"{about_other}: show(trace, {other!r})")
    return " · ".join(parts)


def _less(view: str, options: Any) -> Iterator[tuple[str, object]]:
    """Yield options, with values, that show less of a view."""
    if any(each.name == "depth" for each in fields(options)):
        if options.depth is None:
            yield "depth", 1
        elif options.depth > 1:
            yield "depth", options.depth - 1
        return
    for name, value in _LESS.get(view, ()):
        if not getattr(options, name):
            yield name, value


def _more(options: Any) -> Iterator[tuple[str, object]]:
    """Yield options, with values, that show more of a view."""
    known = {each.name for each in fields(options)}
    for name, value in _MORE:
        if name in known and getattr(options, name) is not value:
            yield name, value
    if getattr(options, "depth", None) is not None:
        yield "depth", options.depth + 1


def _spelling(name: str, value: object, command: bool) -> str:
    """Return an option as it is written in a call of ``show()``, or for the command."""
    if not command:
        return f"{name}={value!r}"
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        if value:
            return f"--{flag}"
        return f"--no-{flag}"
    return f"--{flag} {value}"


# ---------------------------------------------------------------- patterns that match nothing

MAX_NAMES_LISTED = 20
"""Names that an error lists; more would fill the terminal."""
HOW_TO_GET = {
    "op": ": record(ops=True) records them",
    "variable": ": record(variables=True) follows them",
}
"""By kind, what an error says if the trace has no events of that kind."""


def check(trace: Recorded, options: ViewOptions) -> None:
    """Raise an error if a pattern of ``only=``, ``path=`` or ``hide=`` matches nothing in the trace."""
    only = options.only
    if not len(trace) or (only is None and not options.path and not options.hide):
        return
    samples = program_of(trace).distinct.samples
    steps = {event.file for event in samples if event.file is not None}
    files = steps | {at.file for event in samples for at in event.stack}
    only = only or Selection()
    _check_patterns("path", options.path or only.path, files, fits_path, map(base_name, steps))
    _check_patterns("hide", options.hide or only.hide, files, in_package, map(_package, steps))
    modules = {event.module for event in samples if event.module is not None}
    _check_patterns(
        "module",
        only.module,
        modules,
        lambda path, pattern: Selection(module=(pattern,)).fits_module(path, is_call=False),
        modules,
    )
    for kind in ("function", "op", "variable"):
        events = [event for event in samples if event.kind == kind]
        for pattern in getattr(only, kind):
            selection = select(**{kind: pattern})
            if not any(map(selection.matches, events)):
                raise _no_match(kind, pattern, (event.name for event in events))


def _check_patterns(
    option: str,
    patterns: Iterable[str],
    words: Iterable[str],
    matches: Callable[[str, str], bool],
    names: Iterable[str],
) -> None:
    """Raise an error if a pattern matches none of the words. The error lists the nearest of ``names``."""
    known = list(words)
    for pattern in patterns:
        if not any(matches(word, pattern) for word in known):
            raise _no_match(option, pattern, names)


def _no_match(option: str, pattern: str, names: Iterable[str]) -> NotRecorded:
    known = sorted({clean(name) for name in names if name})
    advice = closest(pattern, known)
    if not known:
        advice += HOW_TO_GET.get(option, "")
    if len(known) > MAX_NAMES_LISTED:
        nearest = advice.partition("choose from: ")[0]
        advice = f"{nearest}there are {len(known)}, as {', '.join(known[:MAX_NAMES_LISTED])} …"
    return NotRecorded(f"{option}={pattern!r}: nothing in the trace fits; {advice}")


def _package(file: str) -> str:
    """Return the name with which ``hide=`` selects a file: its package, or the file's name if it is the program's."""
    parts = module_parts(file)
    if is_installed(file):
        return parts[0]
    return parts[-1]

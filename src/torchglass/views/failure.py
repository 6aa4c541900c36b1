"""The failure view: the failing call, what does not fit, its inputs, and where they came from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from torchglass.answers.failure import (
    MOST_INPUTS,
    Failure,
    both_broadcast,
    error_of,
    failure_of,
    mismatch_text,
    raised_frames,
    written,
)
from torchglass.answers.mismatch import Mismatch
from torchglass.events.types import Event, Location
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds  # kinds of rows and cells
from torchglass.views.options import FailureOptions
from torchglass.views.row import Cell, Cells, Row, Sheet
from torchglass.views.text.cells import BINARY, RowLabels, event_cells, shape_words
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut, plural, width_of, wrapped

MAX_CALLS_ON_PATH = 20
"""Calls on the path to the failing one that are shown: of a longer path, both ends."""
INPUT = "input"
"""A row of an input of the failing call."""
MADE = "made"
"""A row of a call that led to an input."""
MISMATCH = "mismatch"
RAISED = "raised"
THE_REST = (
    "all that happened: show(trace, 'tree'), or 'code', 'listing' … (torchglass show RUN tree)"
)
ENDED_WELL = "No exception left the block: there is no failure to tell of."
NOT_IN_A_CALL = "no recorded call failed: it was raised by other code"


def sheet(trace: Recorded, options: FailureOptions | None = None) -> Sheet:
    """Return the rows of the failure; only a sentence if the block ended well."""
    chosen = options or FailureOptions()
    failure = failure_of(trace, chosen.back, chosen.only)
    if failure is None:
        return Sheet(below=[Cell(kinds.HEADING, ENDED_WELL)])
    return Sheet(list(_rows(failure)), [Cell(kinds.REMARK, THE_REST)])


def error_row(trace: Recorded) -> Row | None:
    """Return the row of the error; None if the block ended well."""
    error = error_of(trace)
    if error is None:
        return None
    return _error_row(error, trace.failure())


def raised_rows(trace: Recorded, event: Event | None = None) -> list[Row]:
    """Return the lines of the program from the failing call to where the exception was raised."""
    return _raised_rows(raised_frames(trace, event))


def _rows(failure: Failure) -> Iterator[Row]:
    yield _error_row(failure.error, failure.event)
    if failure.event is None:
        yield _heading(NOT_IN_A_CALL + _thread_words(failure.thread_of))
        yield from _raised_rows(failure.raised)
    else:
        yield from _call_rows(failure, failure.event)
    yield _heading(f"the last {plural(len(failure.last), 'event')}")
    for event in failure.last:
        yield _event_row(event, 0)


def _call_rows(failure: Failure, event: Event) -> Iterator[Row]:
    """Yield the failing call: where it is, what does not fit, and its inputs."""
    yield _heading("path to the failing call" + _thread_words(event))
    for depth, each in enumerate(_shortened(failure.path)):
        yield _event_row(each, depth, kinds.PATH)
    if failure.raised:
        yield _heading("where it was raised")
        yield from _raised_rows(failure.raised)
    if failure.mismatches:
        yield _heading("what does not fit")
        yield from map(_mismatch_row, failure.mismatches)
    yield _heading("its inputs")
    yield from _input_rows(failure, event)


def _input_rows(failure: Failure, event: Event) -> Iterator[Row]:
    """Yield each input, and below it the last calls that led to it. For a parameter that is the line that made it."""
    for each in failure.inputs:
        yield Row(0, INPUT, (Cell(kinds.NAME, each.name), Cell(kinds.GIVES, each.words)), event.id)
        for maker in each.made_by:
            if each.value.type == "Parameter" and maker.location is not None:
                yield _line_row(maker, maker.location)
            else:
                yield _maker_row(maker)
    more = len(event.inputs) - MOST_INPUTS
    if more > 0:
        yield Row(0, INPUT, (Cell(kinds.COUNT, f"and {more} more"),))
    if not failure.inputs:
        text = "no tensors"
        if event.args:
            text += f": {clean(event.args)}"
        yield Row(0, INPUT, (Cell(kinds.COUNT, text),))
        if failure.none_from is not None:
            yield _maker_row(failure.none_from, returned_none=True)


# ---------------------------------------------------------------- rows


def _error_row(error: str, event: Event | None) -> Row:
    number = -1
    if event is not None:
        number = event.id
    return Row(0, kinds.ERROR, (Cell(kinds.ERROR, f"✗ {clean(error)}"),), number)


def _raised_rows(frames: Sequence[Location]) -> list[Row]:
    rows: list[Row] = []
    for at in frames:
        text = Cell(kinds.EXPRESSION, clean(at.source or at.function))
        rows.append(Row(0, RAISED, (text, Cell(kinds.PLACE, at=at)), indent=2))
    return rows


def _thread_words(event: Event | None) -> str:
    if event is None or event.thread in ("MainThread", ""):
        return ""
    return f" in {clean(event.thread)}"


def _shortened(path: Sequence[Event]) -> Sequence[Event]:
    """Return both ends of a very long path."""
    if len(path) <= MAX_CALLS_ON_PATH:
        return path
    half = MAX_CALLS_ON_PATH // 2
    return (*path[:half], *path[-half:])


def _heading(text: str) -> Row:
    return Row(0, kinds.HEADING, (Cell(kinds.HEADING, text),))


def _event_row(event: Event, depth: int, kind: str = kinds.EVENT) -> Row:
    if event.kind == "module":
        name = event.module or event.root or event.name
    else:
        name = event.name
    return Row(depth, kind, event_cells(event, RowLabels(name, brief=True)), event.id, indent=2)


def _maker_row(event: Event, returned_none: bool = False) -> Row:
    """Return the row of a call that led to an input: the call as written, its inputs and outputs."""
    separator = ", "
    if event.operator in BINARY:
        separator = f" {event.operator} "
    gives = ", ".join(shape_words(event.outputs))
    if returned_none:
        gives = "None"
    remark = ""
    if both_broadcast(event):
        remark = "both were broadcast"
    cells: Cells = (
        Cell(kinds.EXPRESSION, written(event)),
        Cell(kinds.TAKES, separator.join(shape_words(event.inputs))),
        Cell(kinds.GIVES, gives),
        Cell(kinds.CLASS, remark),
    )
    place = ()
    if event.location is not None:
        place = (Cell(kinds.PLACE, at=event.location),)
    return Row(0, MADE, (*(cell for cell in cells if cell.text), *place), event.id)


def _line_row(event: Event, at: Location) -> Row:
    """Return the row of the whole line at which a parameter was made."""
    text = clean(at.source or event.code)
    return Row(0, MADE, (Cell(kinds.EXPRESSION, text), Cell(kinds.PLACE, at=at)), event.id)


def _mismatch_row(mismatch: Mismatch) -> Row:
    """Return a sentence about a mismatch, and the line where it came from."""
    cells: Cells = (Cell(kinds.REMARK, mismatch_text(mismatch)),)
    origin = mismatch.origin
    if origin is None:
        return Row(0, MISMATCH, cells)
    if origin.location is not None:
        cells = (*cells, Cell(kinds.PLACE, at=origin.location))
    return Row(0, MISMATCH, cells, origin.id)


# ---------------------------------------------------------------- text

_SECTIONS = {kinds.ERROR: kinds.ERROR, INPUT: INPUT, MADE: INPUT, MISMATCH: MISMATCH}


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield all lines of the failure."""
    for kind, section in groupby(rows, lambda row: _SECTIONS.get(row.kind, "")):
        if kind == kinds.ERROR:
            for row in section:
                yield from error_lines(row, page)
        elif kind == INPUT:
            yield from _input_lines(list(section), page)
        elif kind == MISMATCH:
            for row in section:
                yield from (f"  {line}" for line in wrapped(row.text(kinds.REMARK), page.width - 2))
        else:
            yield from draw(list(section), page)


def error_lines(row: Row, page: Page) -> Iterator[str]:
    """Yield the error, on as many lines as it needs."""
    for line in textwrap.wrap(row.text(kinds.ERROR), page.width, subsequent_indent="  ") or ["✗"]:
        yield page.paint("error", line)


def _input_lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of all inputs, and of the calls that led to them. The calls share their columns."""
    column = max((width_of(_name(row, page)) for row in rows if row.kind == INPUT), default=0)
    calls = [row for row in rows if row.kind == MADE]
    for row in calls:
        row.indent = 4
    # One line for each row.
    call_lines = iter(list(draw(calls, page)))
    for row in rows:
        if row.kind == MADE:
            yield next(call_lines)
        elif row.cell(kinds.NAME) is None:
            yield f"  {cut(row.text(kinds.COUNT), page.width - 2)}"
        else:
            name = _name(row, page)
            space = " " * (column - width_of(name))
            gives = cut(row.text(kinds.GIVES), page.width - column - 4)
            yield f"  {name}{space}  " + page.paint("output", gives)


def _name(row: Row, page: Page) -> str:
    return cut(row.text(kinds.NAME), page.width // 3)

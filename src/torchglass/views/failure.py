"""How a trace ended that an exception left: the failing call, what went into it and how that came to be."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Value
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded, visible_events
from torchglass.views.misfit import History, Misfit, Named, misfits
from torchglass.views.options import FailureOptions
from torchglass.views.row import Cell, Cells, Row, Sheet
from torchglass.views.stacks import is_constructor
from torchglass.views.text.cells import (
    BINARY,
    Said,
    assigned_to,
    class_word,
    event_cells,
    expression,
    shape_words,
)
from torchglass.views.text.layout import draw, shortened
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import stats_word
from torchglass.views.text.words import (
    clean,
    cut,
    one_line,
    place_word,
    plural,
    tensor_word,
    width_of,
    wrapped,
)

LAST = 10
STEPS_BACK = 2
MOST_INPUTS = 12
MOST_CALLS = 20
LONGEST_NAME = 32
MOST_MISFITS = 6
MOST_FRAMES = 8
INPUT, MADE, MISFIT, RAISED = "input", "made", "misfit", "raised"
THE_REST = "all that happened: show(trace, 'tree'), or 'code', 'listing' … (on the command line --view tree)"
ENDED_WELL = "No exception left the block: there is no failure to tell of."
NOT_IN_A_CALL = "no recorded call failed: it was raised by other code"
MEANT = ("SystemExit", "GeneratorExit")
"""Exceptions by which a program ends as it should."""


def sheet(trace: Recorded, options: FailureOptions | None = None) -> Sheet:
    """The rows of the story; a sentence when the block ended well."""
    event = trace.failure()
    if event is None:
        error = error_row(trace)
        if error is None:
            return Sheet(below=[Cell(kinds.HEADING, ENDED_WELL)])
        first = _first_event(trace, visible_events(list(trace.events()))) if trace.left_process else None
        rows = [error, _heading(NOT_IN_A_CALL + _thread_words(first)), *raised_rows(trace), *_last_rows(trace)]
        return Sheet(rows, [Cell(kinds.REMARK, THE_REST)])
    return Sheet(_Story(trace, event, options or FailureOptions()).rows(), [Cell(kinds.REMARK, THE_REST)])


def error_row(trace: Recorded) -> Row | None:
    """The error alone; None when the block ended well."""
    event = trace.failure()
    if event is None:
        text = trace.left_by[0].partition("\n")[0] if trace.left_by else ""
        if not text or text.partition(":")[0] in MEANT:
            return None
    else:
        text = event.error or "the call did not return"
    return Row(0, kinds.ERROR, (Cell(kinds.ERROR, f"✗ {clean(text)}"),), -1 if event is None else event.id)


class _Story:
    """One failure while it is told."""

    def __init__(self, trace: Recorded, event: Event, options: FailureOptions) -> None:
        self._trace, self._event = trace, event
        self._steps_back = STEPS_BACK if options.depth is None else options.depth
        self._only = options.only or Selection()
        self._path = _path(trace, event)
        self._history = History(trace, {each.id for each in self._path})
        self._inputs = [Named(self._name(at, value), value) for at, value in enumerate(event.inputs)]

    def rows(self) -> list[Row]:
        error = error_row(self._trace)
        assert error is not None
        found = misfits(self._event, self._inputs, self._history)[:MOST_MISFITS]
        return [
            error,
            _heading("path to the failing call" + _thread_words(self._event)),
            *[_row(each, depth, kinds.PATH) for depth, each in enumerate(_shortened(self._path))],
            *self._raised(),
            *([_heading("what does not fit"), *map(_misfit_row, found)] if found else []),
            _heading("its inputs"),
            *self._input_rows(),
            *_last_rows(self._trace, self._event, self._only),
        ]

    def _raised(self) -> list[Row]:
        """Where code of the program's own raised it, in the course of the failing call."""
        found = raised_rows(self._trace, self._event)
        return [_heading("where it was raised"), *found] if found else []

    # ------------------------------------------------------------ inputs

    def _name(self, at: int, value: Value) -> str:
        """As it was written for the call, or one around it; a parameter by its path."""
        for event in reversed(self._path):
            if len(event.operands) == len(event.inputs):
                for name, given in zip(event.operands, event.inputs, strict=True):
                    if given.id == value.id and name:
                        return shortened(one_line(name), LONGEST_NAME)
        return clean(self._history.parameter(value) or value.role) or f"input {at + 1}"

    def _input_rows(self) -> Iterator[Row]:
        """Each tensor, and below it the last calls that led to it; of parameters those that were made apart."""
        told: set[int] = set()
        for each in self._inputs[:MOST_INPUTS]:
            stats = "" if each.value.stats is None else stats_word(each.value.stats, each.value.dtype)
            cells = (
                Cell(kinds.NAME, each.name),
                Cell(kinds.GIVES, f"{tensor_word(each.value, device=True)} {stats}".rstrip()),
            )
            yield Row(0, INPUT, cells, self._event.id)
            if each.value.type == "Parameter":
                yield from self._made_at(each.value, told)
                continue
            for event in self._history.steps(each.value, self._steps_back):
                if event.id in told:
                    break
                told.add(event.id)
                yield _made_row(event)
        more = len(self._inputs) - MOST_INPUTS
        if more > 0:
            yield Row(0, INPUT, (Cell(kinds.COUNT, f"and {more} more"),))
        if not self._inputs:
            yield from self._no_tensors()

    def _made_at(self, value: Value, told: set[int]) -> Iterator[Row]:
        """Where the layer was made that a parameter belongs to; once for all of its parameters."""
        event = self._history.maker(value)
        if event is None or event.kind == "step" or event.location is None:
            return
        if event.location.line not in told:
            told.add(event.location.line)
            at = event.location
            yield Row(
                0, MADE, (Cell(kinds.EXPRESSION, clean(at.source or event.code)), Cell(kinds.PLACE, at=at)), event.id
            )

    def _no_tensors(self) -> Iterator[Row]:
        """What it was given instead, and for a ``None`` the call that gave it."""
        event = self._path[-1]
        yield Row(0, INPUT, (Cell(kinds.COUNT, "no tensors" + (f": {clean(event.args)}" if event.args else "")),))
        if "None" not in event.args:
            return
        names = {name.strip() for name in _arguments(event.code)}
        for earlier in reversed(list(self._trace.events())[: event.id]):
            if earlier.parent == event.parent and names.intersection(earlier.target):
                if earlier.result == "None" and not earlier.outputs:
                    yield _made_row(earlier, kinds.ORIGIN)
                return


def _last_rows(trace: Recorded, event: Event | None = None, only: Selection | None = None) -> list[Row]:
    """What the failing thread did last; what others did may be later or earlier, and has seldom to do with it."""
    visible = visible_events(list(trace.events()))
    first = event or _first_event(trace, visible)
    own = [each for each in visible if first and (each.process, each.thread) == (first.process, first.thread)]
    if event is None or not _in_constructor(event):  # workers of a DataLoader are forked while one is made
        own = [each for each in own if not _in_constructor(each)]
    last = [each for each in own if only is None or only.matches(each)][-LAST:]
    return [_heading(f"the last {plural(len(last), 'event')}"), *[_row(each, 0) for each in last]]


def _first_event(trace: Recorded, events: Sequence[Event]) -> Event | None:
    """Of the process that the exception left."""
    return next((each for each in events if trace.left_process in (0, each.process)), None)


def _thread_words(event: Event | None) -> str:
    return "" if event is None or event.thread in ("MainThread", "") else f" in {clean(event.thread)}"


def raised_rows(trace: Recorded, event: Event | None = None) -> list[Row]:
    """The lines of the user's that led to the place where the exception was raised, from the failing call on."""
    known = {(at.file, at.line) for at in event.stack} if event is not None else set[tuple[str, int]]()
    frames = [at for at in trace.raised_at if at.origin == "user" and (at.file, at.line) not in known]
    return [
        Row(0, RAISED, (Cell(kinds.EXPRESSION, clean(at.source or at.function)), Cell(kinds.PLACE, at=at)), indent=2)
        for at in frames[-MOST_FRAMES:]
    ]


def _path(trace: Recorded, event: Event) -> list[Event]:
    """The failing call and those around it, outermost first."""
    path = [event]
    while path[-1].parent is not None:
        path.append(trace.event(path[-1].parent))
    return path[::-1]


def _shortened(path: Sequence[Event]) -> Sequence[Event]:
    """Both ends of a very long path."""
    return path if len(path) <= MOST_CALLS else (*path[: MOST_CALLS // 2], *path[-MOST_CALLS // 2 :])


def _in_constructor(event: Event) -> bool:
    """Whether it was part of making an object: the weights of a layer."""
    return any(is_constructor(at.function) for at in event.stack)


def _arguments(code: str) -> list[str]:
    """The names between the outermost brackets of a call."""
    return code.partition("(")[2].rpartition(")")[0].split(",")


# ---------------------------------------------------------------- rows


def _heading(text: str) -> Row:
    return Row(0, kinds.HEADING, (Cell(kinds.HEADING, text),))


def _row(event: Event, depth: int, kind: str = "event") -> Row:
    name = event.module or event.root or event.name if event.kind == "module" else event.name
    return Row(depth, kind, event_cells(event, Said(name, brief=True)), event.id, indent=2)


def _made_row(event: Event, remark: str = "") -> Row:
    """As written, with what went in and came out."""
    takes, gives = shape_words(event.inputs), shape_words(event.outputs)
    cells: Cells = (
        Cell(kinds.EXPRESSION, _written(event)),
        Cell(kinds.TAKES, f" {event.operator} ".join(takes) if event.operator in BINARY else ", ".join(takes)),
        Cell(kinds.GIVES, "None" if remark else ", ".join(gives)),
        Cell(kinds.CLASS, "both were broadcast" if _both_broadcast(event) else ""),
    )
    place = (Cell(kinds.PLACE, at=event.location),) if event.location is not None else ()
    return Row(0, MADE, (*(cell for cell in cells if cell.text), *place), event.id)


def _written(event: Event) -> str:
    """The expression, also where torch made the call in it; a layer that another one called by its path."""
    if event.kind == "module" and not event.direct:
        return f"{clean(event.module or event.root or '')} {class_word(event.name, event.detail)}".strip()
    return expression(assigned_to(event), event.code, event.operator) if event.code else clean(event.name)


def _both_broadcast(event: Event) -> bool:
    """Whether the result of an operator has the shape of neither side: seldom what is meant."""
    if event.operator not in BINARY or event.operator in ("@", "@=") or not event.outputs:
        return False
    shape = event.outputs[0].shape
    return len(event.inputs) == 2 and all(each.shape != shape for each in event.inputs)


def _misfit_row(misfit: Misfit) -> Row:
    """A sentence, and the line where that was born."""
    born, place = misfit.born, ()
    text = misfit.text
    if born is not None and born.location is not None:
        text += f", {misfit.how} {_written(born)} at {place_word(born.location)}"
        place = (Cell(kinds.PLACE, at=born.location),)
    return Row(0, MISFIT, (Cell(kinds.REMARK, text), *place), -1 if born is None else born.id)


# ---------------------------------------------------------------- text

_SECTIONS = {kinds.ERROR: kinds.ERROR, INPUT: INPUT, MADE: INPUT, MISFIT: MISFIT}


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """All lines of the story."""
    for kind, section in groupby(rows, lambda row: _SECTIONS.get(row.kind, "")):
        if kind == kinds.ERROR:
            for row in section:
                yield from error_lines(row, page)
        elif kind == INPUT:
            yield from _inputs(list(section), page)
        elif kind == MISFIT:
            for row in section:
                yield from (f"  {line}" for line in wrapped(row.text(kinds.REMARK), page.width - 2))
        else:
            yield from draw(list(section), page)


def error_lines(row: Row, page: Page) -> Iterator[str]:
    """The error, on as many lines as it takes."""
    for line in textwrap.wrap(row.text(kinds.ERROR), page.width, subsequent_indent="  ") or ["✗"]:
        yield page.paint("error", line)


def _inputs(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Each input, and below it how it came to be, in columns that all of them share."""
    named = [row for row in rows if row.kind == INPUT]
    column = max((width_of(_name(row, page)) for row in named), default=0)
    made = iter([*draw([_indented(row) for row in rows if row.kind == MADE], page)])
    for row in rows:
        if row.kind == MADE:
            yield next(made)
        elif row.cell(kinds.NAME) is None:
            yield f"  {cut(row.text(kinds.COUNT), page.width - 2)}"
        else:
            name = _name(row, page)
            yield f"  {name}{' ' * (column - width_of(name))}  " + page.paint(
                "output", cut(row.text(kinds.GIVES), page.width - column - 4)
            )


def _name(row: Row, page: Page) -> str:
    return cut(row.text(kinds.NAME), page.width // 3)


def _indented(row: Row) -> Row:
    row.indent = 4
    return row

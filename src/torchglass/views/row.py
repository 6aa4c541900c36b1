"""What every view produces: rows of typed cells, each leading to its event, and the ``kinds`` of both."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchglass.events.spelling import clean
from torchglass.events.types import Location, location_dict

# ---------------------------------------------------------------- kinds of cells

FOLD = "fold"
"""Which calls a row stands for, and how often: ``blocks.0–11 × 12``."""
TIMES = "times"
"""How many iterations a loop had: ``× 938``."""
SAME = "same"
"""Where the same rows were already shown: ``as at train.py:224``."""
ROUNDS = "rounds"
"""In which iterations it happened, if not in all: ``in rounds 10, 20 … 50``."""
NAME = "name"
"""The path of a module, the name of a variable or mark."""
EXPRESSION = "expression"
"""The source text: ``q, k = split(x)``."""
CLASS = "class"
"""A module's class and settings, or how a value came about."""
TAKES, GIVES = "takes", "gives"
"""Shapes, or other values as text."""
STATISTICS = "statistics"
"""The statistics of tensors. ``mark`` is the part about numbers that are not finite."""
ERROR = "error"
COUNT = "count"
"""How many of something: ``3 calls each``, ``12 events inside``."""
TIME = "time"
PLACE = "place"
NOTE = "note"
"""A note of the recorder about the event."""
FINDING = "finding"
"""What looks wrong at this line."""
REMARK = "remark"
"""A remark of the view, such as why two rows differ."""
ORIGIN = "origin"
"""Where a value comes from."""
SOURCE = "source"
"""A line of the program. ``mark`` is the part of it that ran."""
HEADING = "heading"

# ---------------------------------------------------------------- kinds of rows

EVENT = "event"
THREAD = "thread"
"""The row before the rows of another thread."""
REPEAT = "repeat"
"""The row above rows that repeat together, which are indented by one level."""
LINE = "line"
"""A line of source."""
CALL = "call"
"""A call of a function of the program, or into one."""
LOOP = "loop"
"""The row of a loop, above the rows of its iterations."""
ROUND = "round"
"""The row above an iteration that is shown separately."""
PATH = "path"
"""A row that leads to another one. It names its file even if the file stays the same."""
VARIABLE = "variable"
"""The row above the changes of one variable."""
GAP = "gap"
"""The row of something that is left out."""
BLANK = "blank"


class Cell(NamedTuple):
    """One piece of text in a row, with its kind."""

    kind: str
    text: str = ""
    short: str | None = None
    """What remains of it on a narrow page; None: all of it, cut."""
    at: Location | None = None
    """The location of a place or source line."""
    mark: tuple[int, int] | None = None
    """The part of the text to highlight."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (docs/json.md)."""
        if self.at is None:
            return {"kind": self.kind, "text": self.text}
        text = self.text or f"{self.at.file}:{self.at.line}"
        return {"kind": self.kind, "text": text, "location": location_dict(self.at)}


Cells = tuple[Cell, ...]


def index_of(cells: Cells, kind: str) -> int | None:
    """Return the index of the first cell of a kind; None if there is none."""
    for index, cell in enumerate(cells):
        if cell.kind == kind:
            return index
    return None


def inserted_after(cells: Cells, kind: str, new: Cell) -> Cells:
    """Return the cells with a new one after the first of a kind; at the front if there is none."""
    index = index_of(cells, kind)
    if index is None:
        return (new, *cells)
    return (*cells[: index + 1], new, *cells[index + 1 :])


@dataclass(slots=True)
class Row:
    """One line of a view."""

    depth: int
    kind: str = EVENT
    cells: Cells = ()
    event: int = -1
    """The id of the (first) event that it stands for; -1 if none."""
    times: int = 1
    """How many in a row it stands for."""
    each: int = 1
    """The same, times that of the repeats it is in: how many events of the trace."""
    hidden: int = 0
    """Events in all of them that have no row."""
    below: Cells = ()
    """Notes and remarks, each on its own line."""
    indent: int = 0
    """Columns before it: below a heading."""
    subject: str = ""
    """Which function or module was called: two rows of one subject may have the same rows below."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (docs/json.md)."""
        return {
            "kind": self.kind,
            "depth": self.depth,
            "event": None if self.event < 0 else self.event,
            "times": self.times,
            "cells": [cell.to_dict() for cell in self.cells],
            "below": [cell.to_dict() for cell in self.below],
        }

    def cell(self, kind: str) -> Cell | None:
        """Return the first cell of that kind."""
        return next((cell for cell in self.cells if cell.kind == kind), None)

    @property
    def place(self) -> Location | None:
        """Where it was written."""
        found = self.cell(PLACE)
        if found is None:
            return None
        return found.at

    def text(self, kind: str) -> str:
        """Return the text of the first cell of that kind; "" if there is none."""
        found = self.cell(kind)
        if found is None:
            return ""
        return found.text


def repeat_row(depth: int, span: str, times: int, each: str) -> Row:
    """Return the row above others that repeat together: ``layers.0–23 × 24, 3 steps each:``."""
    often = Cell(FOLD, f"{clean(span)} × {times:,}".lstrip())
    return Row(depth, REPEAT, (often, Cell(COUNT, f", {each} each:")), times=times)


@dataclass(slots=True)
class Sheet:
    """The output of a view: rows, and sentences below them."""

    rows: list[Row] = field(default_factory=list[Row])
    below: list[Cell] = field(default_factory=list[Cell])
    """How many there were and why some have no row (COUNT), explanations (REMARK), what is amiss (NOTE, HEADING)."""


def has_heading(thread: str, threads: Collection[str]) -> bool:
    """Return whether rows of a thread begin with its name: they do not where only the main thread can be meant."""
    return len(threads) > 1 and thread != "MainThread"


# ---------------------------------------------------------------- rows that repeat other rows

MIN_REPEATED_ROWS = 5
"""From this many rows on, a repeated block is replaced by a reference."""


def without_repeated_rows(rows: Sequence[Row]) -> list[Row]:
    """Drop the rows below a call if an earlier call of the same function or module had the same rows below it.

    The later call refers to the earlier one: ``as at train.py:224``.
    """
    sizes, children = _nesting(rows)
    contents = _contents(rows, children)
    kept: list[Row] = []
    earliest: dict[tuple[str, int], Row] = {}
    """By subject and content, the first row with them."""
    at = 0
    while at < len(rows):
        row = rows[at]
        size = sizes[at]
        content = contents[at]
        kept.append(row)
        at += 1
        if not row.subject or size < MIN_REPEATED_ROWS:
            continue
        earlier = earliest.setdefault((row.subject, content), row)
        if earlier is not row and earlier.place is not None:
            reference = Cell(SAME, _as_at(earlier.place, row.place), at=earlier.place)
            row.cells = (*row.cells, reference)
            row.hidden += sum(each.each + each.hidden for each in rows[at : at + size])
            at += size
    return kept


def _nesting(rows: Sequence[Row]) -> tuple[list[int], list[list[int]]]:
    """Return for each row how many rows are below it at any depth, and the indices of those just below it."""
    sizes = [0] * len(rows)
    children = [list[int]() for _ in rows]
    open_rows: list[int] = []
    for at, row in enumerate(rows):
        while open_rows and (rows[open_rows[-1]].depth >= row.depth or row.kind == THREAD):
            last = open_rows.pop()
            sizes[last] = at - 1 - last
        if open_rows:
            children[open_rows[-1]].append(at)
        open_rows.append(at)
    for each in open_rows:
        sizes[each] = len(rows) - 1 - each
    return sizes, children


def _contents(rows: Sequence[Row], children: Sequence[Sequence[int]]) -> list[int]:
    """Return for each row a number that is equal for rows with the same rows below them."""
    numbers: dict[Hashable, int] = {}
    contents = [0] * len(rows)
    with_row = [0] * len(rows)
    """The same for a row together with what is below it."""
    for at in range(len(rows) - 1, -1, -1):
        row = rows[at]
        below = tuple(with_row[child] for child in children[at])
        contents[at] = numbers.setdefault(below, len(numbers))
        key = ((row.kind, row.cells, row.below), contents[at])
        with_row[at] = numbers.setdefault(key, len(numbers))
    return contents


def _as_at(at: Location, here: Location | None) -> str:
    if here is not None and here.file == at.file:
        file = ""
    else:
        file = clean(at.file.rpartition("/")[2])
    return f"as at {file}:{at.line}"

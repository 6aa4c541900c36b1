"""The listing as text: source lines with a count before and shapes behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from torchglass.views.listing.comments import copy
from torchglass.views.listing.view import BACKWARD
from torchglass.views.row import (
    BLANK,
    COUNT,
    ERROR,
    GAP,
    GIVES,
    HEADING,
    LINE,
    NAME,
    NOTE,
    PLACE,
    REMARK,
    SOURCE,
    TIME,
    Cell,
    Row,
    Sheet,
)  # fmt: skip
from torchglass.views.text.statistics import narrowed, painted
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, link, width_of, wrapped

__all__ = ["copy", "lines"]

NARROWEST = 8
TIME_WIDTH = 8


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """The lines of all files; each has columns of its own."""
    for alone, section in groupby(sheet.rows, lambda row: row.kind in (HEADING, BLANK)):
        rows = list(section)
        if alone:
            yield from (_heading(row, page) if row.kind == HEADING else "" for row in rows)
            continue
        columns = _columns([row for row in rows if row.kind == LINE], page)
        for row in rows:
            if row.kind == NOTE:
                yield from (page.paint("note", line) for line in wrapped(row.text(NOTE), page.width))
            elif row.kind == GAP:
                yield page.paint("dim", cut(" " * columns.number + " ⋮ " + row.text(COUNT), page.width))
            elif row.kind == BACKWARD:
                yield page.paint("dim", cut(" " * columns.gutter + "  " + row.text(GIVES), page.width))
            else:
                yield from _line(row, columns, page)


def _heading(row: Row, page: Page) -> str:
    steps = f" {row.text(COUNT)} "
    title = f"── {cut(row.text(NAME), page.width - len(steps) - 6)} ──{steps}"
    return page.paint("heading", (title + "─" * (page.width - width_of(title))).rstrip())


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths: line numbers, counts, times (0: none), code, and notes behind it."""

    number: int
    often: int
    time: int
    code: int
    notes: int

    @property
    def gutter(self) -> int:
        return self.number + self.often + 3 + (self.time + 1 if self.time else 0)


def _columns(rows: list[Row], page: Page) -> _Columns:
    number = max((len(row.text(PLACE)) for row in rows), default=1)
    often = max((width_of(_often(row).text) for row in rows), default=1)
    time = TIME_WIDTH if any(row.cell(TIME) for row in rows) else 0
    fixed = number + often + 3 + (time + 1 if time else 0)
    code = _code_width(rows, page.width - fixed - 2)
    return _Columns(number, often, time, code, page.width - fixed - 2 - code)


def _code_width(rows: list[Row], room: int) -> int:
    """The width with which the fewest lines do not fit: their code before the notes, or the notes behind it."""
    widths = [
        (width_of(row.text(SOURCE)), max(width_of(piece.text) for piece in pieces))
        for row in rows
        if (pieces := _pieces(row))
    ]

    def misfits(width: int) -> int:
        return sum((code > width) + (notes > room - width) for code, notes in widths)

    return min(sorted({min(code, room - NARROWEST) for code, _ in widths}), key=misfits, default=0)


def _often(row: Row) -> Cell:
    """How often the line ran, or a sign for what is known instead."""
    return row.cell(NOTE) or row.cell(COUNT) or row.cell(REMARK) or Cell(REMARK)


def _pieces(row: Row) -> list[Cell]:
    """What is said behind a line, in pieces that should not be torn."""
    return [cell for cell in row.cells if cell.kind in (GIVES, ERROR)]


# ---------------------------------------------------------------- one line


def _line(row: Row, columns: _Columns, page: Page) -> Iterator[str]:
    """The line and its notes; notes that do not fit behind it stand below."""
    text = cut(row.text(SOURCE), page.width - columns.gutter)
    head = _gutter(row, columns, page) + _painted(text, row, page)
    end = columns.gutter + width_of(text)
    rest = _pieces(row)
    while rest:
        taken = _take(rest, columns.notes)
        width = min(sum(width_of(each.text) + 2 for each in taken) - 2, page.width - columns.gutter)
        column = min(columns.gutter + columns.code + 2, page.width - width)
        if column < end + 2 <= page.width - width:
            column = end + 2
        elif column < end + 2:  # no room behind the code
            yield head.rstrip()
            head, end = "", 0
        yield head + " " * (column - end) + _notes(taken, width, page)
        head, end = "", 0
    if head:
        yield head.rstrip()


def _take(rest: list[Cell], room: int) -> list[Cell]:
    """As many pieces as fit into the column; one that is wider may take the whole page."""
    taken = [rest.pop(0)]
    width = width_of(taken[0].text)
    while rest and width + 2 + width_of(rest[0].text) <= room:
        width += 2 + width_of(rest[0].text)
        taken.append(rest.pop(0))
    return taken


def _notes(pieces: list[Cell], width: int, page: Page) -> str:
    """Pieces on one line, cut where there is no room; what is not finite is painted as an error is."""
    text = narrowed("  ".join(each.text for each in pieces), width)
    style = "error" if any(each.kind == ERROR for each in pieces) else "output"
    return painted(text, style, page) if any(each.mark for each in pieces) else page.paint(style, text)


def _gutter(row: Row, columns: _Columns, page: Page) -> str:
    number, often = row.text(PLACE), _often(row)
    painted = page.paint("place", number)
    if page.links and row.place is not None:
        painted = link(painted, row.place.file, row.place.line)
    style = {NOTE: "error", COUNT: "fold"}.get(often.kind, "dim")
    counted = " " * (columns.often - width_of(often.text)) + page.paint(style, often.text)
    time = page.paint("time", f"{row.text(TIME):>{columns.time}}") + " " if columns.time else ""
    return f"{' ' * (columns.number - len(number))}{painted} {counted} {time} "


def _painted(text: str, row: Row, page: Page) -> str:
    often = _often(row)
    style = "error" if often.kind == NOTE else "dim" if often == Cell(REMARK, "·") else ""
    return page.paint(style, text) if style else text

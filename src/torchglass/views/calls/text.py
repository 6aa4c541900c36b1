"""The order of module calls as text: one path a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.row import (
    ERROR,
    EVENT,
    EXPRESSION,
    FOLD,
    GIVES,
    LOOP,
    NAME,
    REPEAT,
    TAKES,
    THREAD,
    TIMES,
    Row,
    Sheet,
)
from torchglass.views.text.layout import ARROW, repeat_line, suits_most, thread_line
from torchglass.views.text.statistics import narrowed, painted
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, width_of

MOST_INDENTS = 12


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """The lines of the list."""
    columns = _columns([row for row in sheet.rows if row.kind == EVENT and row.cell(TAKES)], page)
    for row in sheet.rows:
        if row.kind == THREAD:
            yield thread_line(row.text(NAME), page.width, page)
        elif row.kind == REPEAT:
            yield repeat_line(row, _indent(row.depth), page)
        elif row.kind == LOOP:
            often = f"  {row.text(TIMES)}"
            room = page.width - len(_indent(row.depth)) - len(often)
            yield _indent(row.depth) + cut(row.text(EXPRESSION), room) + page.paint("fold", often)
        else:
            yield _line(row, columns, page)


def _line(row: Row, columns: tuple[int, int], page: Page) -> str:
    before, often = _indent(row.depth), row.text(FOLD)
    beside = row.cell(TAKES) or row.cell(ERROR)
    room = page.width - len(before) - len(often) - (page.width // 3 if beside else 0)
    path = cut(row.text(NAME), max(room, 8))
    head = before + path + page.paint("fold", often)
    if not beside:
        return head
    used = len(before) + width_of(path) + len(often)
    gap = max(columns[0] - used, 0) + 2
    return (head + " " * gap + _shapes(row, page.width - used - gap, columns[1], page)).rstrip()


def _shapes(row: Row, room: int, arrow: int, page: Page) -> str:
    """What it took and gave, arrow under arrow; without shapes only the error that left it."""
    gives = row.cell(ERROR) or row.cell(GIVES)
    text = gives.text if gives else ""
    if row.cell(TAKES) is None:
        return page.paint("error", cut(text, room))
    text = narrowed(text, max(room - len(ARROW) - 1, 1))
    space = room - width_of(text) - len(ARROW)
    takes = cut(row.text(TAKES), space)
    before = " " * min(max(arrow - width_of(takes), 0), space - width_of(takes))
    style = "error" if row.cell(ERROR) else "output"
    said = painted(text, style, page) if gives is not None and gives.mark else page.paint(style, text)
    return before + page.paint("input", takes) + page.paint("dim", ARROW) + said


def _columns(rows: Sequence[Row], page: Page) -> tuple[int, int]:
    """Where shapes begin, and how wide those are that went in."""
    paths = [len(_indent(row.depth)) + width_of(row.text(NAME)) + len(row.text(FOLD)) for row in rows]
    takes = [width_of(row.text(TAKES)) for row in rows]
    return min(suits_most(paths, slack=8), page.width // 2), min(suits_most(takes, slack=8), page.width // 4)


def _indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENTS)

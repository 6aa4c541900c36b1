"""The order of module calls as text: one path a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views import row as kinds
from torchglass.views.row import Row, Sheet
from torchglass.views.text.layout import ARROW, repeat_line, suits_most, thread_line
from torchglass.views.text.statistics import narrowed, painted
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, width_of

MOST_INDENTS = 12


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """The lines of the list."""
    columns = _columns([row for row in sheet.rows if row.kind == kinds.EVENT and row.cell(kinds.TAKES)], page)
    for row in sheet.rows:
        if row.kind == kinds.THREAD:
            yield thread_line(row.text(kinds.NAME), page.width, page)
        elif row.kind == kinds.REPEAT:
            yield repeat_line(row, _indent(row.depth), page)
        elif row.kind == kinds.LOOP:
            often = f"  {row.text(kinds.TIMES)}"
            room = page.width - len(_indent(row.depth)) - len(often)
            yield _indent(row.depth) + cut(row.text(kinds.EXPRESSION), room) + page.paint("fold", often)
        else:
            yield _line(row, columns, page)


def _line(row: Row, columns: tuple[int, int], page: Page) -> str:
    before, often = _indent(row.depth), row.text(kinds.FOLD)
    beside = row.cell(kinds.TAKES) or row.cell(kinds.ERROR)
    room = page.width - len(before) - len(often) - (page.width // 3 if beside else 0)
    path = cut(row.text(kinds.NAME), max(room, 8))
    head = before + path + page.paint("fold", often)
    if not beside:
        return head
    used = len(before) + width_of(path) + len(often)
    gap = max(columns[0] - used, 0) + 2
    return (head + " " * gap + _shapes(row, page.width - used - gap, columns[1], page)).rstrip()


def _shapes(row: Row, room: int, arrow: int, page: Page) -> str:
    """What it took and gave, arrow under arrow; without shapes only the error that left it."""
    gives = row.cell(kinds.ERROR) or row.cell(kinds.GIVES)
    text = gives.text if gives else ""
    if row.cell(kinds.TAKES) is None:
        return page.paint("error", cut(text, room))
    text = narrowed(text, max(room - len(ARROW) - 1, 1))
    space = room - width_of(text) - len(ARROW)
    takes = cut(row.text(kinds.TAKES), space)
    before = " " * min(max(arrow - width_of(takes), 0), space - width_of(takes))
    style = "error" if row.cell(kinds.ERROR) else "output"
    said = painted(text, style, page) if gives is not None and gives.mark else page.paint(style, text)
    return before + page.paint("input", takes) + page.paint("dim", ARROW) + said


def _columns(rows: Sequence[Row], page: Page) -> tuple[int, int]:
    """Where shapes begin, and how wide those are that went in."""
    paths = [len(_indent(row.depth)) + width_of(row.text(kinds.NAME)) + len(row.text(kinds.FOLD)) for row in rows]
    takes = [width_of(row.text(kinds.TAKES)) for row in rows]
    return min(suits_most(paths, slack=8), page.width // 2), min(suits_most(takes, slack=8), page.width // 4)


def _indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENTS)

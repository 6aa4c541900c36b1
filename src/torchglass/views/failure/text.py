"""The story of a failure as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from torchglass.views.failure.view import INPUT, MADE, MISFIT
from torchglass.views.row import COUNT, ERROR, GIVES, NAME, REMARK, Row, Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, width_of, wrapped

_SECTIONS = {ERROR: ERROR, INPUT: INPUT, MADE: INPUT, MISFIT: MISFIT}


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """All lines of the story."""
    for kind, rows in groupby(sheet.rows, lambda row: _SECTIONS.get(row.kind, "")):
        if kind == ERROR:
            for row in rows:
                yield from error_lines(row, page)
        elif kind == INPUT:
            yield from _inputs(list(rows), page)
        elif kind == MISFIT:
            for row in rows:
                yield from (f"  {line}" for line in wrapped(row.text(REMARK), page.width - 2))
        else:
            yield from draw(list(rows), page)


def error_lines(row: Row, page: Page) -> Iterator[str]:
    """The error, on as many lines as it takes."""
    for line in textwrap.wrap(row.text(ERROR), page.width, subsequent_indent="  ") or ["✗"]:
        yield page.paint("error", line)


def _inputs(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Each input, and below it how it came to be, in columns that all of them share."""
    named = [row for row in rows if row.kind == INPUT]
    column = max((width_of(_name(row, page)) for row in named), default=0)
    made = iter([*draw([_indented(row) for row in rows if row.kind == MADE], page)])
    for row in rows:
        if row.kind == MADE:
            yield next(made)
        elif row.cell(NAME) is None:
            yield f"  {cut(row.text(COUNT), page.width - 2)}"
        else:
            name = _name(row, page)
            yield f"  {name}{' ' * (column - width_of(name))}  " + page.paint(
                "output", cut(row.text(GIVES), page.width - column - 4)
            )


def _name(row: Row, page: Page) -> str:
    return cut(row.text(NAME), page.width // 3)


def _indented(row: Row) -> Row:
    row.indent = 4
    return row

"""The story of a failure as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from torchglass.views.failure.view import INPUT
from torchglass.views.row import COUNT, ERROR, GIVES, NAME, Row, Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """All lines of the story."""
    for kind, rows in groupby(sheet.rows, lambda row: row.kind if row.kind in (ERROR, INPUT) else ""):
        if kind == ERROR:
            for row in rows:
                yield from _error(row, page)
        elif kind == INPUT:
            yield from _inputs(list(rows), page)
        else:
            yield from draw(list(rows), page)


def _error(row: Row, page: Page) -> Iterator[str]:
    for line in textwrap.wrap(row.text(ERROR), page.width, subsequent_indent="  ") or ["✗"]:
        yield page.paint("error", line)


def _inputs(rows: Sequence[Row], page: Page) -> Iterator[str]:
    names = [cut(row.text(NAME), page.width // 3) for row in rows]
    column = max(map(len, names))
    for row, name in zip(rows, names, strict=True):
        if row.cell(NAME) is None:
            yield f"  {cut(row.text(COUNT), page.width - 2)}"
        else:
            yield f"  {name:<{column}}  " + page.paint("output", cut(row.text(GIVES), page.width - column - 4))

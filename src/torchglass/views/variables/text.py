"""The variables view as text; a variable with a single change takes one line instead of a block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from torchglass.views.row import (
    BLANK,
    CLASS,
    COUNT,
    EVENT,
    EXPRESSION,
    FOLD,
    GIVES,
    NAME,
    PLACE,
    TAKES,
    TIME,
    VARIABLE,
    Cell,
    Row,
    Sheet,
)  # fmt: skip
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import whole_place, width_of


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """Blocks with headings; those of one line, where several follow each other, without an empty line between."""
    blocks = [_joined(block, page) for block in _blocks(sheet.rows)]
    rows: list[Row] = []
    for is_short, several in groupby(blocks, lambda block: block[0].kind == EVENT and block[-1].kind == BLANK):
        for block in several:
            rows += block[:-1] if is_short else block
        rows += [Row(0, BLANK)] if is_short else []
    return draw(rows, page)


def _blocks(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows up to and with an empty one."""
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if row.kind == BLANK:
            yield block
            block = []
    if block:
        yield block


def _joined(block: list[Row], page: Page) -> list[Row]:
    """Heading and only change as one row, where it fits; else the block as it is."""
    if len(block) != 3 or block[0].kind != VARIABLE or block[1].kind != EVENT:
        return block
    heading, row = block[0].text(NAME) + block[0].text(COUNT), block[1]
    if row.cell(TAKES) or row.below:
        return block
    often, by = row.text(FOLD), row.text(CLASS)
    statement = (f"{often}: " if often else "") + row.text(EXPRESSION)
    at, time = row.place, row.text(TIME)
    place = (width_of(whole_place(at, page.width // 4)) if at else 0) + (len(time) + 2 if time else 0)
    if sum(map(width_of, (heading, statement, row.text(GIVES)))) + place + len("    →   ") > page.width:
        return block
    what = Cell(CLASS, f"{statement}  {by}" if by else statement, statement)
    rest = [cell for cell in row.cells if cell.kind in (GIVES, TIME, PLACE)]
    return [Row(0, EVENT, (Cell(EXPRESSION, heading), what, *rest), row.event), block[2]]

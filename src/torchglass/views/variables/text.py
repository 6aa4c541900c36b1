"""The variables view as text; a variable with a single change takes one line instead of a block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from torchglass.views import row as kinds
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page
from torchglass.views.text.words import whole_place, width_of


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """Blocks with headings; those of one line, where several follow each other, without an empty line between."""
    blocks = [_joined(block, page) for block in _blocks(sheet.rows)]
    rows: list[Row] = []
    for is_short, several in groupby(
        blocks, lambda block: block[0].kind == kinds.EVENT and block[-1].kind == kinds.BLANK
    ):
        for block in several:
            rows += block[:-1] if is_short else block
        rows += [Row(0, kinds.BLANK)] if is_short else []
    return draw(rows, page)


def _blocks(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows up to and with an empty one."""
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if row.kind == kinds.BLANK:
            yield block
            block = []
    if block:
        yield block


def _joined(block: list[Row], page: Page) -> list[Row]:
    """Heading and only change as one row, where it fits; else the block as it is."""
    if len(block) != 3 or block[0].kind != kinds.VARIABLE or block[1].kind != kinds.EVENT:
        return block
    heading, row = block[0].text(kinds.NAME) + block[0].text(kinds.COUNT), block[1]
    if row.cell(kinds.TAKES) or row.below:
        return block
    often, by = row.text(kinds.FOLD), row.text(kinds.CLASS)
    statement = (f"{often}: " if often else "") + row.text(kinds.EXPRESSION)
    at, time = row.place, row.text(kinds.TIME)
    place = (width_of(whole_place(at, page.width // 4)) if at else 0) + (len(time) + 2 if time else 0)
    if sum(map(width_of, (heading, statement, row.text(kinds.GIVES)))) + place + len("    →   ") > page.width:
        return block
    what = Cell(kinds.CLASS, f"{statement}  {by}" if by else statement, statement)
    rest = [cell for cell in row.cells if cell.kind in (kinds.GIVES, kinds.TIME, kinds.PLACE)]
    return [Row(0, kinds.EVENT, (Cell(kinds.EXPRESSION, heading), what, *rest), row.event), block[2]]

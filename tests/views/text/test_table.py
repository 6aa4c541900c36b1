"""A table in colour says what it says without, and is no wider than the page."""

from __future__ import annotations

import re

import pytest

from torchglass.views.row import COUNT, NAME, STATISTICS, TIME, Cell, Row
from torchglass.views.text.style import Page
from torchglass.views.text.table import draw_table, natural_widths
from torchglass.views.text.words import width_of

TITLES = {NAME: "Module", COUNT: "Calls", STATISTICS: "Numbers", TIME: "Time"}
STYLES = {STATISTICS: "output", TIME: "time"}


def table(rows: list[Row], page: Page) -> list[str]:
    return list(draw_table(rows, TITLES, natural_widths(rows, TITLES, page), STYLES, page))


def plain(line: str) -> str:
    return re.sub("\x1b" + r"\[[\d;]*m", "", line)


@pytest.mark.parametrize("width", [40, 44, 47, 50, 120])
def test_a_line_that_is_wider_than_the_page_is_cut_and_painted(width: int) -> None:
    cells = (
        Cell(NAME, "encoder.layers.0.attention"),
        Cell(COUNT, "12"),
        Cell(STATISTICS, "f32 4 NaN", mark=(4, 9)),
        Cell(TIME, "12.3 ms"),
    )
    rows = [Row(0, "module", cells), Row(2, "module", cells)]
    in_colour = table(rows, Page(width, color=True))
    assert [plain(line) for line in in_colour] == table(rows, Page(width))
    assert all(width_of(plain(line)) <= width for line in in_colour)
    assert in_colour[3].startswith("\x1b[2m│ │ \x1b[0m")


def test_the_marked_part_is_red_and_not_an_equal_text_before_it() -> None:
    cells = (Cell(NAME, "a"), Cell(COUNT, "1"), Cell(STATISTICS, "1 NaN of 1 NaN", mark=(9, 14)))
    rows = [Row(0, "module", cells)]
    page = Page(100, color=True)
    line = table(rows, page)[2]
    assert page.paint("output", "1 NaN of ") + page.paint("error", "1 NaN") in line

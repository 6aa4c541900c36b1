"""The table as text: layers, output shapes, parameters and time, with totals below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.row import COUNT, GIVES, NAME, REPEAT, STATISTICS, TIME, Row, Sheet
from torchglass.views.table.view import CALLS, TOTAL
from torchglass.views.text.layout import guides, repeat_line
from torchglass.views.text.modules import cells_of, with_guides, words_of
from torchglass.views.text.statistics import painted
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, width_of

TITLES = {
    NAME: "Layer",
    GIVES: "Output shape",
    STATISTICS: "Output values",
    COUNT: "Parameters",
    TIME: "Time",
    CALLS: "Calls",
}
STYLES = {GIVES: "output", STATISTICS: "output", TIME: "time", CALLS: "dim"}


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """Titles, rows and totals, with rules between."""
    totals = [row for row in sheet.rows if row.kind == TOTAL]
    rows = [row for row in sheet.rows if row.kind != TOTAL]
    if not rows:
        return
    kinds = [kind for kind in TITLES if _is_shown(kind, rows)]
    cells = [words_of(row, kinds, page) for row in rows]
    titles = [TITLES[kind] for kind in kinds]
    widths = _widths([titles, *cells], page.width)
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    yield page.paint("heading", "  ".join(cells_of(titles, widths)).rstrip())
    yield page.paint("dim", rule)
    for row, words in zip(rows, cells, strict=True):
        if row.kind == REPEAT:
            yield repeat_line(row, guides(row.depth, page.width), page)
        else:
            yield _painted(row, kinds, words, widths, page)
    yield page.paint("dim", rule)
    column = max(width_of(row.text(NAME)) for row in totals)
    yield from (cut(f"{row.text(NAME):<{column}}  {row.text(COUNT)}", page.width) for row in totals)


def _is_shown(kind: str, rows: Sequence[Row]) -> bool:
    """Times only where they are wanted, calls only where a module was called more than once."""
    if kind == CALLS:
        return any(row.text(CALLS) not in ("", "0", "1") for row in rows)
    return any(row.cell(kind) for row in rows)


def _widths(cells: Sequence[Sequence[str]], page_width: int) -> list[int]:
    columns = len(cells[0])
    widths = [max(width_of(row[column]) for row in cells) for column in range(columns)]
    if cells[0][2:3] == [TITLES[STATISTICS]]:  # the widest, and the first to give way
        others = sum(widths[3:]) + 2 * (columns - 1) + min(widths[0], page_width // 3) + min(widths[1], page_width // 5)
        widths[2] = min(widths[2], max(page_width - others, len(TITLES[STATISTICS])))
    fixed = sum(widths[2:]) + 2 * (columns - 1)
    widths[1] = max(min(widths[1], page_width - fixed - min(widths[0], page_width // 3)), 8)
    widths[0] = max(min(widths[0], page_width - fixed - widths[1]), 0)
    over = sum(widths) + 2 * (columns - 1) - page_width
    if over > 0:
        widths[2] = max(widths[2] - over, 1)
    return widths


def _painted(row: Row, kinds: Sequence[str], words: Sequence[str], widths: Sequence[int], page: Page) -> str:
    shown = cells_of(words, widths)
    if page.color:
        shown[0] = with_guides(shown[0], row.depth, page)
        pairs = zip(kinds, shown, strict=True)
        shown = [_in_style(kind, word, page) if kind in STYLES and word.strip() else word for kind, word in pairs]
    return "  ".join(shown).rstrip()


def _in_style(kind: str, word: str, page: Page) -> str:
    return painted(word, STYLES[kind], page) if kind == STATISTICS else page.paint(STYLES[kind], word)

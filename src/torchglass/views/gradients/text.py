"""The gradients as text: a table of parameters with the norms of gradients and updates, what is amiss in red."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.views.gradients.view import CALLED, GRADIENT, RATIO, UPDATE
from torchglass.views.row import GIVES, NAME, REPEAT, Row, Sheet
from torchglass.views.text.layout import guides, repeat_line
from torchglass.views.text.modules import cells_of, with_guides, words_of
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, width_of

TITLES = {
    NAME: "Parameter",
    GIVES: "Shape",
    CALLED: "Backward",
    GRADIENT: "Gradient norm",
    UPDATE: "Update norm",
    RATIO: "Update / weight",
}
LEAST_SAID = (CALLED, GIVES)
READABLE_NAME, FEWEST_OF_A_NAME = 28, 16
"""Letters of a name that are worth a column, and those that stand there in any case."""
STYLES = {GIVES: "output", CALLED: "dim", UPDATE: "time", RATIO: "time"}


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """Titles and rows, with a rule between and behind."""
    if not sheet.rows:
        return
    kinds = [kind for kind in TITLES if kind == NAME or any(row.cell(kind) for row in sheet.rows)]
    kinds, widths = _fitting(sheet, kinds, page)
    words = [words_of(row, kinds, page) for row in sheet.rows]
    titles = [TITLES[kind] for kind in kinds]
    rule = page.paint("dim", "─" * min(sum(widths) + 2 * (len(widths) - 1), page.width))
    yield page.paint("heading", _line(titles, widths, page))
    yield rule
    for row, said in zip(sheet.rows, words, strict=True):
        if row.kind == REPEAT:
            yield repeat_line(row, guides(row.depth, page.width), page)
        else:
            yield _painted(row, kinds, said, widths, page)
    yield rule


def _fitting(sheet: Sheet, kinds: Sequence[str], page: Page) -> tuple[list[str], list[int]]:
    """The columns and their widths. What is too much comes off the names, then the least said columns are left out."""
    shown = list(kinds)
    for each in LEAST_SAID:
        widths = _widths(sheet, shown, page)
        spare = max(widths[0] - READABLE_NAME, 0)
        if _over(widths, page) <= spare:
            break
        shown = [kind for kind in shown if kind != each]
    widths = _widths(sheet, shown, page)
    widths[0] -= min(max(_over(widths, page), 0), max(widths[0] - FEWEST_OF_A_NAME, 0))
    return shown, widths


def _widths(sheet: Sheet, kinds: Sequence[str], page: Page) -> list[int]:
    """As wide as what stands there."""
    rows = [[TITLES[kind] for kind in kinds], *[words_of(row, kinds, page) for row in sheet.rows]]
    return [max(width_of(row[column]) for row in rows) for column in range(len(kinds))]


def _over(widths: Sequence[int], page: Page) -> int:
    return sum(widths) + 2 * (len(widths) - 1) - page.width


def _line(words: Sequence[str], widths: Sequence[int], page: Page) -> str:
    return cut("  ".join(cells_of(words, widths)).rstrip(), page.width)


def _painted(row: Row, kinds: Sequence[str], words: Sequence[str], widths: Sequence[int], page: Page) -> str:
    if not page.color or width_of(_line(words, widths, page)) >= page.width:
        return _line(words, widths, page)
    cells = cells_of(words, widths)
    cells[0] = with_guides(cells[0], row.depth, page)
    for column, kind in enumerate(kinds):
        found = row.cell(kind)
        if found is not None and found.mark and cells[column].endswith(found.text):
            at = len(cells[column]) - len(found.text) + found.mark[0]
            cells[column] = cells[column][:at] + page.paint("error", cells[column][at:])
        elif kind in STYLES and cells[column].strip():
            cells[column] = page.paint(STYLES[kind], cells[column])
    return "  ".join(cells).rstrip()

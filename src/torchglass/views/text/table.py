"""Prints nested modules as a table, for ``table`` and ``gradients``. Equal modules are shown once::

Module             Output      Calls
────────────────────────────────────
net (Net)          f32[8, 4]       2
│ blocks.0–1 × 2   f32[8, 16]      4
────────────────────────────────────
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torchglass.program.fold import Item
from torchglass.program.paths import range_label
from torchglass.views.row import COUNT, FOLD, NAME, REPEAT, Row, repeat_row
from torchglass.views.text.layout import guides, repeat_line
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed
from torchglass.views.text.words import cut, width_of

MakeRow = Callable[[Item, int, bool, bool], Row]
"""Makes the row of an item from its depth, whether its children have no rows, and whether the row
shows how often the item repeats.
"""


def module_rows(
    items: Sequence[Item],
    module_name: Callable[[int], str],
    max_level: int | None,
    make_row: MakeRow,
) -> Iterator[Row]:
    """Yield the rows of modules, depth first. A module at the deepest level has no rows below it.

    ``module_name`` returns the name of a node.
    """
    pending = [(item, 0, 0, True) for item in reversed(items)]
    while pending:
        item, depth, level, shows_times = pending.pop()
        if item.is_repeat:
            nodes = sorted(node for child in item.children for node in child.nodes)
            span = range_label(map(module_name, nodes))
            yield repeat_row(depth, span, item.times, f"{item.unit} layers")
            # The heading of the repeat shows how often. It indents, but is no level.
            pending += [(child, depth + 1, level, False) for child in reversed(item.children)]
            continue
        is_closed = bool(item.children) and max_level is not None and level >= max_level
        yield make_row(item, depth, is_closed, shows_times)
        if not is_closed:
            pending += [(child, depth + 1, level + 1, True) for child in reversed(item.children)]


# ---------------------------------------------------------------- columns

GAP = "  "
LEFT_ALIGNED = 2
"""How many columns are aligned left: the name, and the one after it. The others hold numbers."""


class _Span(NamedTuple):
    """A part of a line in one style, as indices of its characters."""

    begin: int
    end: int
    style: str


def natural_widths(rows: Sequence[Row], titles: Mapping[str, str], page: Page) -> list[int]:
    """Return the widths of columns that fit their content. ``titles`` are the shown columns, by the
    kind of their cells.
    """
    words = [list(titles.values()), *[_words(row, titles, page) for row in rows]]
    return [max(map(width_of, column)) for column in zip(*words, strict=True)]


def width_of_all(widths: Sequence[int]) -> int:
    """Return the width of a whole line of the table."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def draw_table(
    rows: Sequence[Row],
    titles: Mapping[str, str],
    widths: Sequence[int],
    styles: Mapping[str, str],
    page: Page,
) -> Iterator[str]:
    """Yield the titles and the rows, with a rule between and after them.

    ``styles`` are the styles of columns, by the kind of their cells. Lines are cut to the page.
    """
    rule = page.paint("dim", "─" * min(width_of_all(widths), page.width))
    heading = GAP.join(_padded(list(titles.values()), widths)).rstrip()
    yield page.paint("heading", cut(heading, page.width))
    yield rule
    for row in rows:
        if row.kind == REPEAT:
            yield repeat_line(row, guides(row.depth, page.width), page)
            continue
        words = _padded(_words(row, titles, page), widths)
        line = cut(GAP.join(words).rstrip(), page.width)
        yield _painted(line, _spans(row, words, titles, styles, page), page)
    yield rule


def _words(row: Row, titles: Mapping[str, str], page: Page) -> list[str]:
    """Return the text of a row, column by column. The first one is indented to the row's depth."""
    bars = guides(row.depth, page.width)
    if row.kind == REPEAT:
        return [bars + row.text(FOLD) + row.text(COUNT), *[""] * (len(titles) - 1)]
    _, *others = titles
    return [bars + row.text(NAME), *map(row.text, others)]


def _padded(words: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad or cut each word to the width of its column."""
    padded: list[str] = []
    for column, (word, width) in enumerate(zip(words, widths, strict=True)):
        word = narrowed(word, width)
        space = " " * (width - width_of(word))
        if column < LEFT_ALIGNED:
            padded.append(word + space)
        else:
            padded.append(space + word)
    return padded


# ---------------------------------------------------------------- colours


def _spans(
    row: Row,
    words: Sequence[str],
    titles: Mapping[str, str],
    styles: Mapping[str, str],
    page: Page,
) -> list[_Span]:
    """Return which parts of a row's line have which style, from left to right.

    Each word has the style of its column. The bars before the name are guides, and the marked part
    of a cell is an error.
    """
    spans: list[_Span] = []
    begin = 0
    for column, (kind, word) in enumerate(zip(titles, words, strict=True)):
        end = begin + len(word)
        style = styles.get(kind, "")
        text_begin = begin
        if column == 0:
            bars = guides(row.depth, page.width)
            if word.startswith(bars):
                text_begin += len(bars)
                spans.append(_Span(begin, text_begin, "guide"))
                begin = text_begin
        elif column >= LEFT_ALIGNED:
            text_begin = end - len(word.lstrip())
        cell = row.cell(kind)
        if cell is not None and cell.mark is not None:
            first, last = cell.mark
            mark_begin = min(text_begin + first, end)
            mark_end = min(text_begin + last, end)
            spans.append(_Span(begin, mark_begin, style))
            spans.append(_Span(mark_begin, mark_end, "error"))
            spans.append(_Span(mark_end, end, style))
        else:
            spans.append(_Span(begin, end, style))
        begin = end + len(GAP)
    return spans


def _painted(line: str, spans: Sequence[_Span], page: Page) -> str:
    """Paint the parts of a line, of which the end may have been cut."""
    if not page.color:
        return line
    pieces: list[str] = []
    done = 0
    for span in spans:
        pieces.append(line[done : span.begin])
        text = line[span.begin : span.end]
        if span.style and text.strip():
            text = page.paint(span.style, text)
        pieces.append(text)
        done = span.end
    pieces.append(line[done:])
    return "".join(pieces)

"""Modules below modules as a table: equal ones once, and their words in columns, for ``table`` and ``gradients``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchglass.views.fold import TOGETHER, Foldable, Item, range_label
from torchglass.views.row import COUNT, FOLD, NAME, REPEAT, Cell, Row, repeat_row
from torchglass.views.text.layout import guides, repeat_line
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed
from torchglass.views.text.words import cut, width_of

Children = Mapping[int, Sequence[int]]
Made = Callable[[Item, int, bool, bool], Row]
"""The row of an item, by its depth, whether it stays closed, and whether it says itself how often it repeats."""


@dataclass(slots=True)
class ModuleForest(Foldable):
    """Modules, and what they hold, to be folded."""

    children: Children
    name: Callable[[int], str]

    def below(self, node: int, /) -> Sequence[int]:
        return self.children.get(node, ())

    def rows(self, items: Sequence[Item], levels: int | None, made: Made) -> Iterator[Row]:
        """Depth first; a module that is not opened has no rows below it."""
        pending = [(item, 0, 0, True) for item in reversed(items)]
        while pending:
            item, depth, level, says_times = pending.pop()
            if item.nodes == [TOGETHER]:
                nodes = sorted(node for child in item.children for node in child.nodes)
                yield repeat_row(depth, range_label(map(self.name, nodes)), item.times, f"{item.unit} layers")
                pending += [(child, depth + 1, level, False) for child in reversed(item.children)]
                continue
            is_closed = bool(item.children) and levels is not None and level >= levels
            yield made(item, depth, is_closed, says_times)
            if not is_closed:
                pending += [(child, depth + 1, level + 1, True) for child in reversed(item.children)]


# ---------------------------------------------------------------- columns

GAP = "  "


def natural_widths(rows: Sequence[Row], titles: Mapping[str, str], page: Page) -> list[int]:
    """Columns as wide as what stands there; ``titles`` are those that are shown, by the kind of their cells."""
    words = [list(titles.values()), *[_words(row, titles, page) for row in rows]]
    return [max(map(width_of, column)) for column in zip(*words, strict=True)]


def width_of_all(widths: Sequence[int]) -> int:
    """That of a line."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def draw_table(
    rows: Sequence[Row], titles: Mapping[str, str], widths: Sequence[int], styles: Mapping[str, str], page: Page
) -> Iterator[str]:
    """Titles and rows, with a rule between and behind."""
    rule = page.paint("dim", "─" * min(width_of_all(widths), page.width))
    yield page.paint("heading", cut(GAP.join(_cells(list(titles.values()), widths)).rstrip(), page.width))
    yield rule
    for row in rows:
        if row.kind == REPEAT:
            yield repeat_line(row, guides(row.depth, page.width), page)
            continue
        cells = _cells(_words(row, titles, page), widths)
        line = GAP.join(cells).rstrip()
        if page.color and width_of(line) <= page.width:
            pairs = zip(titles, cells, strict=True)
            painted = [_painted(cell, row.cell(kind), styles.get(kind, ""), page) for kind, cell in pairs]
            line = GAP.join([_with_guides(painted[0], row.depth, page), *painted[1:]]).rstrip()
        yield line if page.color else cut(line, page.width)
    yield rule


def _words(row: Row, titles: Mapping[str, str], page: Page) -> list[str]:
    """What a row says, column by column; the first is as deep as the row."""
    before = guides(row.depth, page.width)
    if row.kind == REPEAT:
        return [before + row.text(FOLD) + row.text(COUNT), *[""] * (len(titles) - 1)]
    _, *others = titles
    return [before + row.text(NAME), *map(row.text, others)]


def _cells(words: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Each in the width of its column: names and shapes at its left, numbers at its right."""
    return [_cell(column, word, width) for column, (word, width) in enumerate(zip(words, widths, strict=True))]


def _cell(column: int, word: str, width: int) -> str:
    word = narrowed(word, width)
    space = " " * (width - width_of(word))
    return word + space if column < 2 else space + word


def _painted(word: str, cell: Cell | None, style: str, page: Page) -> str:
    """A word in the style of its column; the part that is an alarm as an error is."""
    if not word.strip():
        return word
    first, last = (cell and cell.mark) or (0, 0)
    alarm = cell.text[first:last] if cell is not None else ""
    before, alarm, behind = word.partition(alarm) if alarm else (word, "", "")
    parts = (style, before), ("error", alarm), (style, behind)
    return "".join(page.paint(each, part) if each else part for each, part in parts)


def _with_guides(cell: str, depth: int, page: Page) -> str:
    """The first cell of a row with its bars in their style."""
    before = guides(depth, page.width)
    return page.paint("guide", before) + cell[len(before) :] if cell.startswith(before) else cell

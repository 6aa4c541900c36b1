"""Modules below modules as a table: equal ones once, and their words in columns, for ``table`` and ``gradients``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchglass.views.fold import TOGETHER, Item, range_label
from torchglass.views.row import COUNT, FOLD, NAME, REPEAT, Cell, Row
from torchglass.views.text.layout import guides
from torchglass.views.text.statistics import narrowed
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, width_of

Children = Mapping[int, Sequence[int]]
Made = Callable[[Item, int, bool, bool], Row]
"""The row of an item, by its depth, whether it stays closed, and whether it says itself how often it repeats."""


@dataclass(slots=True)
class ModuleForest:
    """Modules, and what they hold, to be folded: none stands for another but where they are equal."""

    children: Children
    name: Callable[[int], str]

    def below(self, node: int) -> Sequence[int]:
        return self.children.get(node, ())

    def key(self, node: int) -> Hashable:
        return node

    def merges(self, node: int) -> bool:
        return False

    def line(self, node: int) -> int:
        return 0

    def rounds(self, node: int) -> bool | None:
        return None

    def rows(self, items: Sequence[Item], levels: int | None, made: Made) -> Iterator[Row]:
        """Depth first; a module that is not opened has no rows below it."""
        pending = [(item, 0, 0, True) for item in reversed(items)]
        while pending:
            item, depth, level, says_times = pending.pop()
            if item.nodes == [TOGETHER]:
                yield self._repeat(item, depth)
                pending += [(child, depth + 1, level, False) for child in reversed(item.children)]
                continue
            is_closed = bool(item.children) and levels is not None and level >= levels
            yield made(item, depth, is_closed, says_times)
            if not is_closed:
                pending += [(child, depth + 1, level + 1, True) for child in reversed(item.children)]

    def _repeat(self, item: Item, depth: int) -> Row:
        span = range_label(map(self.name, sorted(node for child in item.children for node in child.nodes)))
        often = Cell(FOLD, f"{clean(span)} × {count(item.times)}"), Cell(COUNT, f", {item.unit} layers each:")
        return Row(depth, REPEAT, often, times=item.times)


# ---------------------------------------------------------------- columns


def words_of(row: Row, kinds: Sequence[str], page: Page) -> list[str]:
    """What a row says, column by column; the first is as deep as the row."""
    before = guides(row.depth, page.width)
    if row.kind == REPEAT:
        return [before + row.text(FOLD) + row.text(COUNT), *[""] * (len(kinds) - 1)]
    return [before + row.text(NAME), *[row.text(kind) for kind in kinds[1:]]]


def cells_of(words: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Each in the width of its column: names and shapes at its left, numbers at its right."""
    return [_cell(column, word, width) for column, (word, width) in enumerate(zip(words, widths, strict=True))]


def _cell(column: int, word: str, width: int) -> str:
    word = narrowed(word, width)
    space = " " * (width - width_of(word))
    return word + space if column < 2 else space + word


def with_guides(cell: str, depth: int, page: Page) -> str:
    """The first cell of a row with its bars in their style."""
    before = guides(depth, page.width)
    return page.paint("guide", before) + cell[len(before) :] if cell.startswith(before) else cell

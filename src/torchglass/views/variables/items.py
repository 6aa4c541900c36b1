"""From folded changes to rows: a loop has one where several rows are in it, else what is in it says how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchglass.views.fold import Item, folded, unfolded
from torchglass.views.levels import Level
from torchglass.views.text.spans import range_word, rounds_of
from torchglass.views.text.words import count
from torchglass.views.variables.changes import Call, Change
from torchglass.views.variables.forest import ChangeForest
from torchglass.views.variables.patterns import AnyRow, CallRow, Changes, LoopRow, Repeat


@dataclass(frozen=True, slots=True)
class Around:
    """Where an item stands."""

    depth: int = 0
    item: Item | None = None
    loop: Item | None = None
    """The innermost loop that has a row."""
    repeats: int = 1
    """How often all of it repeats, as a line above says."""


class ForestRows:
    """Makes the rows of a forest."""

    def __init__(self, forest: ChangeForest, fold: bool) -> None:
        self._forest, self._fold = forest, fold
        self._hidden: set[int] = set()
        """Loops without a row, and their rounds."""

    def items(self, roots: Sequence[int]) -> list[Item]:
        """What is shown once, for all nodes below those."""
        forest = self._forest
        return folded(forest, roots, forest.own) if self._fold else unfolded(forest, roots)

    def of(self, items: Sequence[Item], around: Around) -> list[AnyRow]:
        """Depth first, with a stack of our own: calls nest deeper than Python may."""
        rows: list[AnyRow] = []
        pending = [(item, around) for item in reversed(items)]
        while pending:
            item, here = pending.pop()
            row, inside = self._row(item, here)
            if row is not None:
                rows.append(row)
            pending += [(child, inside) for child in reversed(item.children)]
        return rows

    def _row(self, item: Item, around: Around) -> tuple[AnyRow | None, Around]:
        """The row of an item, if it has one, and where what is in it stands."""
        forest, kind = self._forest, self._forest.kind(item)
        inside = Around(around.depth + 1, item, around.loop)
        if kind is Item:
            return Repeat(around.depth, item.times, item.unit), replace(inside, item=None, repeats=item.times)
        rounds = self._rounds(item, around)
        if kind is Change:
            changes = forest.changes(item)
            stories = [forest.patterns.story_of(change) for change in changes]
            return Changes(around.depth, changes, stories, self._often(item, around), rounds), inside
        if kind is Call:
            calls = [each for each in map(forest.nodes.__getitem__, item.nodes) if isinstance(each, Call)]
            return CallRow(around.depth, calls, self._often(item, around), rounds), replace(inside, loop=None)
        if kind is Level and forest.rounds(item.nodes[0]):
            if self._is_short(item):
                self._hide(item)
                return None, replace(around, item=None)
            return LoopRow(around.depth, forest.spans(item), rounds), replace(inside, loop=item)
        return None, replace(around, item=item)

    def _is_short(self, item: Item) -> bool:
        """Whether no more than one row is in a loop, or it went round but once."""
        if all(len(self._forest.below(node)) < 2 for node in item.nodes):
            return True
        while len(item.children) == 1 and self._forest.kind(item.children[0]) is Level:
            item = item.children[0]
        return len(item.children) == 1 and not item.children[0].children

    def _hide(self, item: Item) -> None:
        for node in item.nodes:
            self._hidden.add(node)
            self._hidden.update(self._forest.below(node))

    def _often(self, item: Item, place: Around) -> str:
        """How often in each of what is around it that has a row."""
        if item.times > 1 and len(item.nodes) == item.times:
            return f"× {count(item.times)}"
        around: Counter[int] = Counter()
        for node in item.nodes:
            parent = self._forest.parents[node]
            while parent in self._hidden:
                parent = self._forest.parents[parent]
            around[parent] += 1
        often = [times // place.repeats for times in around.values()]
        return f"× {range_word(often)}" if max(often) > 1 else ""

    def _rounds(self, item: Item, around: Around) -> str:
        """In which rounds it happened, where what it is in happened in more."""
        if not self._fold or around.item is None:
            return ""
        return rounds_of(item, around.item, around.loop, self._forest.span)

"""The data flow opened to a depth: boxes in boxes, and edges between the innermost ones, for drawing tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.views.graph.edges import BORDER, BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.labels import Label, Shapes, label_of, outside_word
from torchglass.views.graph.outline import Box

End = tuple[int, int]
"""A box by its item's number, and -1; or a level's number and which value from outside."""


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge between two ends that are drawn."""

    source: End
    target: End
    value: int = field(compare=False)
    label: str
    """The shape; below it, where that was measured, what was in it."""
    is_back: bool = False
    """Whether it leads from one round to the next."""
    is_bad: bool = False
    """Whether something in it was not finite."""


@dataclass(slots=True)
class Drawn:
    """What a drawing tool is told."""

    flow: Flow
    open: set[int] = field(default_factory=set[int])
    """Items that are drawn with what is in them."""
    lines: list[DrawnEdge] = field(default_factory=list[DrawnEdge])
    outside: dict[int, list[tuple[End, str]]] = field(default_factory=dict[int, list[tuple[End, str]]])
    """Values from outside by the item that they are drawn in (-1: none)."""

    def label(self, item: Box) -> Label:
        return label_of(self.flow, item)

    def inside(self, item: Box) -> Sequence[Box]:
        """What is drawn in an item."""
        return item.children if item.number in self.open else ()


def drawn_of(flow: Flow, depth: int | None) -> Drawn:
    """Open all boxes down to a depth, and find the edges between those that stay closed."""
    drawn = Drawn(flow)
    pending = [(item, 0) for item in flow.outline.top]
    while pending:
        item, level = pending.pop()
        if item.children and (depth is None or level < depth):
            drawn.open.add(item.number)
            pending += [(child, level + 1) for child in item.children]
    shapes, seen = Shapes(flow), set[DrawnEdge]()
    for number in (-1, *sorted(drawn.open)):
        _name_outside(drawn, number)
        for edge in flow.levels[number].edges:
            if edge.target == BORDER:
                continue
            source_item = _children(drawn, number)[edge.source] if edge.source >= 0 else None
            label = shapes.word(edge.value) if source_item is None else shapes.given(source_item, edge.value)
            contents, alarm = shapes.contents(source_item, edge.value)
            label = "\n".join(filter(None, (label, f"{alarm} {contents}".strip())))
            for source in _sources(drawn, number, edge):
                for target in _targets(drawn, number, edge):
                    line = DrawnEdge(source, target, edge.value, label, edge.is_back, bool(alarm))
                    if line not in seen:
                        seen.add(line)
                        drawn.lines.append(line)
    return drawn


def _name_outside(drawn: Drawn, number: int) -> None:
    level = drawn.flow.levels[number]
    words = [outside_word(drawn.flow, each) for each in level.outside]
    drawn.outside[number] = [((number, at), word) for at, word in enumerate(words)]


def _children(drawn: Drawn, number: int) -> Sequence[Box]:
    return drawn.flow.outline.items[number].children if number >= 0 else drawn.flow.outline.top


def _sources(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Where an edge begins: in an open box with whoever gives that result in it.

    What comes from the border of the box itself is drawn from the level around it.
    """
    pending, seen = [(number, edge)], set[tuple[int, int, int, int]]()
    while pending:
        at, each = pending.pop()
        if (at, each.source, each.out, each.target) in seen:
            continue  # what a box hands on to itself, round by round
        seen.add((at, each.source, each.out, each.target))
        if each.source < BORDER:
            yield at, -2 - each.source
        elif each.source != BORDER:
            item = _children(drawn, at)[each.source]
            if item.number not in drawn.open:
                yield item.number, -1
                continue
            inner = _edges(drawn.flow.levels[item.number], target=BORDER, into=each.out)
            within = [(item.number, other) for other in inner if other.source != BORDER]
            # What an open box only hands on comes from whoever gave it to the box.
            handed = {other.out for other in inner if other.source == BORDER}
            before = [(at, other) for other in drawn.flow.levels[at].edges if other.target == each.source]
            pending += within + [pair for pair in before if pair[1].into in handed]


def _targets(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Where an edge ends: in an open box with everybody in it who takes that argument."""
    pending = [(number, edge)]
    while pending:
        at, each = pending.pop()
        if each.target == BORDER:
            continue
        item = _children(drawn, at)[each.target]
        if item.number not in drawn.open:
            yield item.number, -1
        else:
            inner = _edges(drawn.flow.levels[item.number], source=BORDER, out=each.into)
            pending += [(item.number, other) for other in inner]


def _edges(level: BoxLevel, **ends: int) -> list[Edge]:
    return [edge for edge in level.edges if all(getattr(edge, name) == end for name, end in ends.items())]

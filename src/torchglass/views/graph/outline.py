"""What a picture of a trace is made of: boxes in one another, rounds and equal layers laid over each other.

What has a box is folded as in the tree; here it is said in which of those around it each was, so that edges can be
found for every one of them and then laid over each other, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchglass.events.types import Event
from torchglass.views.digest import Digest
from torchglass.views.fold import TOGETHER, folded, in_order
from torchglass.views.fold import Item as Folded
from torchglass.views.forest import Forest, Layers
from torchglass.views.levels import LOOP, Level
from torchglass.views.options import GraphOptions
from torchglass.views.text.spans import rounds_of

NOTHING = -1
"""In the place of a node: what several boxes that repeat together are in."""


@dataclass(slots=True, eq=False)
class Box:
    """A box: what happened once, or several times that it stands for, in order."""

    nodes: list[int] = field(default_factory=list[int])
    """For each time the event, the span of a call, or of a loop the span of a round."""
    slots: list[int] = field(default_factory=list[int])
    """For each in which of the times of the box around it was."""
    runs: list[int] = field(default_factory=list[int])
    """Of rounds, for each which execution of the loop it is in; else empty."""
    extents: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each the places of the first and the last node in it."""
    loops: list[int] = field(default_factory=list[int])
    """The spans of the loop that it is; empty: it is none."""
    rounds: str = ""
    """In which rounds it happened, where not in all."""
    children: list[Box] = field(default_factory=list["Box"])
    number: int = -1
    """Its place among all items, outermost first."""
    parent: int = -1

    def executions(self) -> Iterator[tuple[int, list[int]]]:
        """In which of the box around, and which of its times: one, or all rounds that one execution of a loop had."""
        if not self.runs:
            yield from ((slot, [at]) for at, slot in enumerate(self.slots))
            return
        several: dict[tuple[int, int], list[int]] = {}
        for at, key in enumerate(zip(self.slots, self.runs, strict=True)):
            several.setdefault(key, []).append(at)
        yield from ((slot, rounds) for (slot, _), rounds in several.items())

    def in_a_row(self) -> tuple[int, int]:
        """How often it happened each time that the one around did: at least, at most."""
        counts = Counter(zip(self.slots, self.runs, strict=True) if self.runs else self.slots).values()
        return min(counts), max(counts)


@dataclass(slots=True)
class Outline:
    """The boxes of a trace, and which box each event is in."""

    digest: Digest
    forest: Forest
    layers: Layers
    around: dict[int, int] = field(default_factory=dict[int, int])
    """For each node the one around it; -1: none."""
    first: dict[int, int] = field(default_factory=dict[int, int])
    """For each node its place in the order of nesting, and that of the last one in it."""
    last: dict[int, int] = field(default_factory=dict[int, int])
    items: list[Box] = field(default_factory=list[Box])
    top: list[Box] = field(default_factory=list[Box])

    @property
    def events(self) -> list[Event]:
        """For each event one that is alike."""
        return self.forest.events

    @property
    def anchors(self) -> list[int]:
        """For each event the node whose box it is in: itself, or one around it; -1: none."""
        return self.forest.anchors

    def span(self, item: Box) -> Level | None:
        """The span that a box stands for; None: events, or boxes that repeat together."""
        return None if item.nodes[0] == NOTHING else self.forest.span(item.nodes[0])

    def is_solid(self, node: int) -> bool:
        """Whether a node is an event, or a call of which nothing is shown but that it was."""
        return node < len(self.forest.events) or not self.forest.below(node)

    def shown_as(self, node: int) -> int:
        """The event that stands for a node: of a call of which nothing is shown the first in it."""
        span = self.forest.span(node)
        return node if span is None else span.first

    def events_of(self, item: Box) -> list[int]:
        """The events that a box stands for; none: it only holds others."""
        return (
            [] if item.nodes[0] == NOTHING or not self.is_solid(item.nodes[0]) else list(map(self.shown_as, item.nodes))
        )


def outline_of(digest: Digest, options: GraphOptions) -> Outline:
    """Choose what has a box, and fold what repeats."""
    forest = Forest(digest, options, has_spans=options.fold)
    outline = Outline(digest, forest, Layers(digest.trace.modules(), forest))
    _nest(outline)
    tops: list[Folded] = []
    for roots in forest.threads.values():
        items = folded(forest, roots, outline.layers.own, options.fold)
        tops += forest.without_all(items)
    tops.sort(key=lambda item: outline.shown_as(_tops(item)[0].nodes[0]))
    outline.top = _Boxes(outline).boxes(tops)
    outline.items = list(in_order(outline.top, lambda item: item.children))
    for number, item in enumerate(outline.items):
        item.number = number
        for child in item.children:
            child.parent = number
    return outline


def _nest(outline: Outline) -> None:
    """Who is in whom, of all nodes."""
    forest, around, first, last = outline.forest, outline.around, outline.first, outline.last
    pending = [node for roots in forest.threads.values() for node in roots][::-1]
    around.update(dict.fromkeys(pending, -1))
    while pending:
        node = pending.pop()
        if node < 0:
            last[~node] = len(first) - 1
            continue
        first[node] = len(first)
        inside = forest.below(node)
        around.update(dict.fromkeys(inside, node))
        pending.append(~node)
        pending.extend(reversed(inside))


def _tops(item: Folded) -> list[Folded]:
    """The item itself, or those that repeat together in it."""
    found, pending = list[Folded](), [item]
    while pending:
        each = pending.pop()
        if each.nodes[0] == TOGETHER:
            pending += reversed(each.children)
        else:
            found.append(each)
    return found


# ---------------------------------------------------------------- from what was folded to boxes


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around an item while boxes are made."""

    item: Folded | None = None
    loop: Folded | None = None
    rounds: str = ""
    """What a level without a box would say."""
    layers: tuple[int, ...] = ()
    """The loop over layers whose box a round may be."""


class _Boxes:
    """Makes boxes. Loops that went round once, and those that call one layer after the other, have none."""

    def __init__(self, outline: Outline) -> None:
        self._outline, self._forest = outline, outline.forest
        self._inside: dict[int, int] = {-1: 0}
        """For each node in which of the times of the innermost box all that is in it was."""
        self._slots: dict[int, int] = {}
        """The same for nodes that repeat together."""

    def boxes(self, items: Sequence[Folded]) -> list[Box]:
        """All boxes, the outermost of them."""
        top: list[Box] = []
        for node in {self._outline.around[node] for item in items for each in _tops(item) for node in each.nodes}:
            self._inside[node] = 0
        pending = [(item, top, _Around()) for item in reversed(items)]
        while pending:
            item, beside, around = pending.pop()
            box, children = self._box(item, around)
            rounds = around.rounds or rounds_of(item, around.item, around.loop, self._forest.span)
            inside = replace(self._around(item, around), rounds=rounds if box is None else "")
            if box is not None:
                box.rounds = rounds
                beside.append(box)
            into = beside if box is None else box.children
            pending += [(child, into, inside) for child in reversed(children)]
        return top

    def _around(self, item: Folded, around: _Around) -> _Around:
        if item.nodes[0] == TOGETHER:
            return replace(around, item=item, layers=())
        span = self._forest.span(item.nodes[0])
        is_loop = span is not None and span.kind == LOOP
        over = self._forest.rounds(item.nodes[0])
        alone = is_loop and not over and len(item.children) == 1 and item.children[0].nodes[0] != TOGETHER
        layers = tuple(item.nodes) if alone else ()
        return replace(around, item=item, loop=item if is_loop and over else around.loop, layers=layers)

    def _box(self, item: Folded, around: _Around) -> tuple[Box | None, list[Folded]]:
        """The box of an item (None: what is in it stands in its place), and what is in it."""
        if item.nodes[0] == TOGETHER:
            return self._together(item), item.children
        over, span = self._forest.rounds(item.nodes[0]), self._forest.span(item.nodes[0])
        if over:
            rounds = [self._forest.below(node) for node in item.nodes]
            if max(map(len, rounds)) > 1:
                return self._in_rounds([each for several in rounds for each in several], item.nodes), item.children
            for node, (round_,) in zip(item.nodes, rounds, strict=True):
                self._inside[round_] = self._slot(node)
            return None, item.children
        if span is not None and span.kind == "round" and len(item.children) > 1 and item.times > 1:
            return self._in_rounds(item.nodes, around.layers), item.children
        if over is None and (span is None or span.kind != "round"):
            return self._plain(item.nodes), item.children
        parts = [each for child in item.children for each in _tops(child)]
        if over is False and max(len(each.children) for each in parts) > 1 and not self._is_one(item):
            box = self._plain(item.nodes)
            box.loops = list(item.nodes)
            return box, item.children
        for node in item.nodes:
            self._inside[node] = self._slot(node)
        return None, item.children

    def _is_one(self, loop: Folded) -> bool:
        """Whether all rounds of a loop over layers are equal: then they are the box of the loop."""
        return len(loop.children) == 1 and loop.children[0].nodes[0] != TOGETHER and loop.children[0].times > 1

    def _slot(self, node: int) -> int:
        return self._slots[node] if node in self._slots else self._inside[self._outline.around[node]]

    def _plain(self, nodes: Sequence[int]) -> Box:
        """A box for events or calls."""
        first, last = self._outline.first, self._outline.last
        ordered = sorted((self._slot(node), first[node], node) for node in nodes)
        self._inside.update({node: at for at, (_, _, node) in enumerate(ordered)})
        slots, places = [slot for slot, _, _ in ordered], [(place, last[node]) for _, place, node in ordered]
        return Box([node for _, _, node in ordered], slots, extents=places)

    def _in_rounds(self, rounds: Sequence[int], loops: Sequence[int]) -> Box:
        """A box for the rounds of a loop."""
        around = self._outline.around
        self._inside.update({loop: self._slot(loop) for loop in {around[each] for each in rounds}})
        box = self._plain(rounds)
        box.runs, box.loops = [around[each] for each in box.nodes], list(loops)
        return box

    def _together(self, item: Folded) -> Box:
        """A box for several that repeat together: of each, as many as there are repeats in each time around."""
        extents: dict[tuple[int, int], tuple[int, int]] = {}
        repeats: dict[int, tuple[int, int]] = {}
        first, last = self._outline.first, self._outline.last
        for part in (each for child in item.children for each in _tops(child)):
            by_slot: dict[int, list[int]] = {}
            for node in sorted(part.nodes, key=first.__getitem__):
                by_slot.setdefault(self._slot(node), []).append(node)
            for slot, nodes in by_slot.items():
                each = max(len(nodes) // item.times, 1)
                for at, node in enumerate(nodes):
                    key = repeats[node] = (slot, min(at // each, item.times - 1))
                    low, high = extents.get(key, (first[node], last[node]))
                    extents[key] = min(low, first[node]), max(high, last[node])
        keys = sorted(extents)
        numbers = {key: number for number, key in enumerate(keys)}
        self._slots.update({node: numbers[key] for node, key in repeats.items()})
        slots = [slot for slot, _ in keys]
        return Box([NOTHING] * len(keys), slots, slots[:], [extents[key] for key in keys])

"""Chooses the boxes of a graph: nested, with the iterations of a loop and equal layers merged.

Boxes are folded as in the tree. A box stands for several nodes, its *executions*. Each box also
knows in which execution of the surrounding box each of its nodes was (``slots``), so that edges can
be found for every execution and then be merged, too::

    for layer in layers:      Box(call of block)   nodes=[b0, b1]            slots=[0, 0]
        x = block(x)          └ Box(relu)          nodes=[r0, r1, r2, r3]    slots=[0, 0, 1, 1]

Here ``block`` ran twice, and in each of its two executions ``relu`` ran twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchglass.events.types import Event
from torchglass.program.dedup import DistinctEvents
from torchglass.program.fold import Item as Folded
from torchglass.program.fold import depth_first, folded
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.program.tree import ITERATION, LOOP
from torchglass.views.layers import Layers
from torchglass.views.options import GraphOptions
from torchglass.views.shown import ShownEvents
from torchglass.views.text.scopes import rounds_word

NOTHING = -1
"""Stands for a node in a box around several boxes that repeat together."""


@dataclass(slots=True, eq=False)
class Box:
    """A box, for something that happened once or several times, in order."""

    nodes: list[int] = field(default_factory=list[int])
    """For each time: the event, the node of a call, or the node of an iteration."""
    slots: list[int] = field(default_factory=list[int])
    """For each of ``nodes``: the execution of the surrounding box in which it is."""
    runs: list[int] = field(default_factory=list[int])
    """For iterations: the execution of the loop in which each is. Otherwise empty."""
    extents: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each of ``nodes``: the places of the first and the last node in it."""
    loops: list[int] = field(default_factory=list[int])
    """For a loop: its nodes. Otherwise empty."""
    rounds: str = ""
    """In which iterations it happened, as text, if not in all."""
    library: str = ""
    """The name of a package if the box holds steps of that package outside of layers
    (``libraries.py``).
    """
    children: list[Box] = field(default_factory=list["Box"])
    number: int = -1
    """The index of the box among all boxes, outermost first."""
    parent: int = -1

    def executions(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each execution of this box, with the execution of the surrounding box and its
        indices in ``nodes``.

        For a loop an execution is all of its iterations, otherwise a single index.
        """
        if not self.runs:
            yield from ((slot, [at]) for at, slot in enumerate(self.slots))
            return
        several: dict[tuple[int, int], list[int]] = {}
        for at, key in enumerate(zip(self.slots, self.runs, strict=True)):
            several.setdefault(key, []).append(at)
        yield from ((slot, rounds) for (slot, _), rounds in several.items())

    def in_a_row(self) -> tuple[int, int]:
        """Return the least and the most times that it happened in one execution of the surrounding
        box.
        """
        counts = Counter(
            zip(self.slots, self.runs, strict=True) if self.runs else self.slots
        ).values()
        return min(counts), max(counts)


@dataclass(slots=True)
class Outline:
    """The boxes of a trace, and which box each event is in."""

    trace: Recorded
    distinct: DistinctEvents
    shown: ShownEvents
    layers: Layers
    around: dict[int, int] = field(default_factory=dict[int, int])
    """For each node the surrounding node, or -1 if there is none."""
    first: dict[int, int] = field(default_factory=dict[int, int])
    """For each node its place in nesting order."""
    last: dict[int, int] = field(default_factory=dict[int, int])
    """For each node the place of the last node in it."""
    items: list[Box] = field(default_factory=list[Box])
    top: list[Box] = field(default_factory=list[Box])
    _known: dict[int, Event] = field(default_factory=dict[int, Event])

    def event(self, number: int) -> Event:
        """Return an event, which is kept.

        An optimizer's step has hundreds of values, and as many edges look it up.
        """
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self.trace.event(number)
        return found

    @property
    def events(self) -> list[Event]:
        """For each event a sample: an event that looks the same."""
        return self.shown.events

    @property
    def anchors(self) -> list[int]:
        """For each event the node in whose box it is: the event itself or a surrounding node, or
        -1.
        """
        return self.shown.anchors

    def number_boxes(self) -> None:
        """Number all boxes below ``top``, outermost first, and list them as ``items``."""
        self.items = list(depth_first(self.top, lambda box: box.children))
        for box in self.top:
            box.parent = -1
        for number, box in enumerate(self.items):
            box.number = number
            for child in box.children:
                child.parent = number

    def children(self, number: int) -> list[Box]:
        """Return the boxes inside a box, given its number; for -1 the outermost ones."""
        if number < 0:
            return self.top
        return self.items[number].children

    def samples(self, nodes: Sequence[int]) -> list[Event]:
        """Return the different samples of some events: one for all that look the same."""
        different = dict.fromkeys(self.distinct.alike[node] for node in nodes)
        return [self.distinct.samples[sample] for sample in different]

    def scope(self, item: Box) -> int:
        """Return the call or iteration of a box, or -1 for events and for boxes that repeat
        together.
        """
        return self.shown.scope(item.nodes[0])

    def is_solid(self, node: int) -> bool:
        """Return whether a node is an event, or a call whose inside is not shown."""
        return node < len(self.shown.events) or not self.shown.children_of(node)

    def shown_as(self, node: int) -> int:
        """Return the event that stands for a node. For a call whose inside is not shown, it is the
        first event in it.
        """
        return self.shown.tree.first(node)

    def events_of(self, item: Box) -> list[int]:
        """Return the events for which a box stands. Empty if it only holds others."""
        if item.nodes[0] == NOTHING or not self.is_solid(item.nodes[0]):
            return []
        return list(map(self.shown_as, item.nodes))


def outline_of(trace: Recorded, options: GraphOptions) -> Outline:
    """Choose which nodes have a box, and fold what repeats."""
    program = program_of(trace)
    shown = ShownEvents(program, options, has_scopes=options.fold)
    outline = Outline(trace, program.distinct, shown, Layers(trace.modules(), shown))
    _nest(outline)
    tops: list[Folded] = []
    for roots in shown.threads.values():
        items = folded(shown, roots, outline.layers.appearance, options.fold)
        tops += shown.without_outermost(items)
    tops.sort(key=lambda item: outline.shown_as(_tops(item)[0].nodes[0]))
    outline.top = _Boxes(outline).boxes(tops)
    outline.number_boxes()
    return outline


def _nest(outline: Outline) -> None:
    """Find for each node its surrounding node and its extent in nesting order."""
    shown = outline.shown
    around = outline.around
    first = outline.first
    last = outline.last
    pending = [node for roots in shown.threads.values() for node in roots][::-1]
    around.update(dict.fromkeys(pending, -1))
    while pending:
        node = pending.pop()
        if node < 0:
            last[~node] = len(first) - 1
            continue
        first[node] = len(first)
        inside = shown.children_of(node)
        around.update(dict.fromkeys(inside, node))
        pending.append(~node)
        pending.extend(reversed(inside))


def _tops(item: Folded) -> list[Folded]:
    """Return the item itself, or the items in it that repeat together."""
    found = list[Folded]()
    pending = [item]
    while pending:
        each = pending.pop()
        if each.is_repeat:
            pending += reversed(each.children)
        else:
            found.append(each)
    return found


# ---------------------------------------------------------------- from what was folded to boxes


@dataclass(frozen=True, slots=True)
class _Around:
    """The surroundings of an item while boxes are made."""

    item: Folded | None = None
    loop: Folded | None = None
    rounds: str = ""
    """The text about iterations of a surrounding level that has no box."""
    layers: tuple[int, ...] = ()
    """The loop over layers whose box an iteration may be."""


class _Boxes:
    """Makes boxes. Loops with a single iteration, and loops over layers, have none."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._shown = outline.shown
        self._inside: dict[int, int] = {-1: 0}
        """For each node the execution of the innermost box that contains what is in the node."""
        self._slots: dict[int, int] = {}
        """The same for nodes that repeat together."""

    def boxes(self, items: Sequence[Folded]) -> list[Box]:
        """Build all boxes and return the outermost ones."""
        top: list[Box] = []
        for item in items:
            for part in _tops(item):
                for node in part.nodes:
                    self._inside[self._outline.around[node]] = 0
        pending = [(item, top, _Around()) for item in reversed(items)]
        while pending:
            item, siblings, around = pending.pop()
            box = self._box(item, around)
            rounds = around.rounds or rounds_word(item, around.item, around.loop, self._shown)
            inside = self._around_inside(item, around)
            if box is None:
                inside = replace(inside, rounds=rounds)
                children = siblings  # the items inside take the place of the box
            else:
                inside = replace(inside, rounds="")
                box.rounds = rounds
                siblings.append(box)
                children = box.children
            pending += [(child, children, inside) for child in reversed(item.children)]
        return top

    def _around_inside(self, item: Folded, around: _Around) -> _Around:
        """Return the surroundings of what is inside an item."""
        if item.is_repeat:
            return replace(around, item=item, layers=())
        are_merged = self._shown.may_merge_iterations(item.nodes[0])
        if are_merged:
            return replace(around, item=item, loop=item, layers=())
        layers = ()
        is_loop = self._shown.tree.kind(item.nodes[0]) == LOOP
        if is_loop and len(item.children) == 1 and not item.children[0].is_repeat:
            layers = tuple(item.nodes)
        return replace(around, item=item, layers=layers)

    def _box(self, item: Folded, around: _Around) -> Box | None:
        """Return the box of an item. If it is None, the items inside take its place."""
        if item.is_repeat:
            return self._together(item)
        kind = self._shown.tree.kind(item.nodes[0])
        if kind == LOOP:
            if self._shown.may_merge_iterations(item.nodes[0]):
                return self._merged_loop(item)
            return self._loop_over_layers(item)
        if kind != ITERATION:
            return self._plain(item.nodes)
        if len(item.children) > 1 and item.times > 1:
            return self._in_rounds(item.nodes, around.layers)
        self._pass_slots(item.nodes)
        return None

    def _merged_loop(self, item: Folded) -> Box | None:
        """Return the box of a loop whose iterations are merged; None if it has only one."""
        rounds = [self._shown.children_of(node) for node in item.nodes]
        if max(map(len, rounds)) > 1:
            return self._in_rounds([each for several in rounds for each in several], item.nodes)
        for node, (round_,) in zip(item.nodes, rounds, strict=True):
            self._inside[round_] = self._slot(node)
        return None

    def _loop_over_layers(self, item: Folded) -> Box | None:
        """Return the box of a loop over layers; None if each iteration is one call, or if the
        iterations, which are all equal, have a box.
        """
        parts = [part for child in item.children for part in _tops(child)]
        if max(len(part.children) for part in parts) > 1 and not self._is_one(item):
            box = self._plain(item.nodes)
            box.loops = list(item.nodes)
            return box
        self._pass_slots(item.nodes)
        return None

    def _pass_slots(self, nodes: Sequence[int]) -> None:
        """Let what is inside nodes without a box be in the execution that the nodes are in."""
        for node in nodes:
            self._inside[node] = self._slot(node)

    def _is_one(self, loop: Folded) -> bool:
        """Return whether all iterations of a loop over layers are equal. Then they are the box of
        the loop.
        """
        if len(loop.children) != 1:
            return False
        (child,) = loop.children
        return not child.is_repeat and child.times > 1

    def _slot(self, node: int) -> int:
        """Return the execution of the surrounding box in which a node is."""
        if node in self._slots:
            return self._slots[node]
        return self._inside[self._outline.around[node]]

    def _plain(self, nodes: Sequence[int]) -> Box:
        """Return a box for events or calls."""
        first = self._outline.first
        last = self._outline.last
        ordered = sorted((self._slot(node), first[node], node) for node in nodes)
        self._inside.update({node: at for at, (_, _, node) in enumerate(ordered)})
        slots = [slot for slot, _, _ in ordered]
        places = [(place, last[node]) for _, place, node in ordered]
        return Box([node for _, _, node in ordered], slots, extents=places)

    def _in_rounds(self, rounds: Sequence[int], loops: Sequence[int]) -> Box:
        """Return a box for the iterations of a loop."""
        around = self._outline.around
        self._inside.update({loop: self._slot(loop) for loop in {around[each] for each in rounds}})
        box = self._plain(rounds)
        box.runs, box.loops = [around[each] for each in box.nodes], list(loops)
        return box

    def _together(self, item: Folded) -> Box:
        """Return a box for items that repeat together, with the repeats in each execution of the
        surrounding box.
        """
        extents: dict[tuple[int, int], tuple[int, int]] = {}
        repeats: dict[int, tuple[int, int]] = {}
        first = self._outline.first
        last = self._outline.last
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

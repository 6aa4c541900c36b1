"""Chooses the boxes of a graph: nested, with the iterations of a loop and equal layers merged.

Boxes are folded as in the tree view. A *node* is an event, a call or an iteration of the program tree. A box
stands for one or more nodes. Each time that it happened is one *execution* of the box. For each of its nodes,
a box knows the execution of the surrounding box in which the node is: its *slot*. So edges can be found for
each execution, and then be merged like the boxes::

    for layer in layers:      Box(call of block)   nodes=[b0, b1]            slots=[0, 0]
        x = block(x)          └ Box(relu)          nodes=[r0, r1, r2, r3]    slots=[0, 0, 1, 1]

Here ``block`` ran twice, and in each of its two executions ``relu`` ran twice.

Two kinds of boxes are special:

- The box of a loop's iterations has one node for each iteration, but a whole loop is one execution. ``runs``
  holds the loop that each iteration belongs to.
- A box around several boxes that repeat together (a, b, a, b) has no nodes of its own. ``NOTHING`` replaces
  them, one for each repeat, and ``extents`` says from where to where each repeat goes.

Read ``outline_of`` first, then ``_Boxes.boxes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

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
"""Replaces a node in a box around boxes that repeat together."""


@dataclass(slots=True, eq=False)
class Box:
    """A box, for something that happened once or several times, in order."""

    nodes: list[int] = field(default_factory=list[int])
    """The events, calls or iterations that the box stands for."""
    slots: list[int] = field(default_factory=list[int])
    """For each node: the execution of the surrounding box in which it is."""
    runs: list[int] = field(default_factory=list[int])
    """For iterations: the loop that each of them belongs to. Otherwise empty."""
    extents: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each node: the places, in nesting order, of the first and the last node inside it."""
    loops: list[int] = field(default_factory=list[int])
    """For a loop: its nodes. Otherwise empty."""
    rounds: str = ""
    """Text that says in which iterations it happened, if not in all."""
    library: str = ""
    """The package, if the box holds steps of a package outside of layers (``libraries.py``)."""
    children: list[Box] = field(default_factory=list["Box"])
    number: int = -1
    """The index of the box among all boxes, outermost first."""
    parent: int = -1

    def executions(self) -> Iterator[tuple[int, list[int]]]:
        """Yield for each execution of this box: its slot, and the indices of its nodes.

        The execution of a loop has all of its iterations, any other has a single node.
        """
        if not self.runs:
            for at, slot in enumerate(self.slots):
                yield slot, [at]
            return
        iterations: dict[tuple[int, int], list[int]] = {}
        for at, key in enumerate(zip(self.slots, self.runs, strict=True)):
            iterations.setdefault(key, []).append(at)
        for (slot, _), indices in iterations.items():
            yield slot, indices

    def in_a_row(self) -> tuple[int, int]:
        """Return the least and the most times that it happened in one execution of the surrounding
        box. For iterations: in one loop.
        """
        if self.runs:
            times = Counter(zip(self.slots, self.runs, strict=True)).values()
        else:
            times = Counter(self.slots).values()
        return min(times), max(times)


@dataclass(slots=True)
class Outline:
    """The boxes of a trace, and which box each event is in."""

    trace: Recorded
    distinct: DistinctEvents
    shown: ShownEvents
    layers: Layers
    around: dict[int, int] = field(default_factory=dict[int, int])
    """For each node the node around it, or -1 if there is none."""
    first: dict[int, int] = field(default_factory=dict[int, int])
    """For each node its place in nesting order: outer nodes come before what is inside them."""
    last: dict[int, int] = field(default_factory=dict[int, int])
    """For each node the place of the last node in it."""
    items: list[Box] = field(default_factory=list[Box])
    top: list[Box] = field(default_factory=list[Box])
    _known: dict[int, Event] = field(default_factory=dict[int, Event])

    def event(self, number: int) -> Event:
        """Return an event, from a cache: an optimizer's step has hundreds of values, and each of their
        edges looks the step up.
        """
        found = self._known.get(number)
        if found is None:
            found = self.trace.event(number)
            self._known[number] = found
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
    tops.sort(key=lambda item: outline.shown_as(_without_repeats(item)[0].nodes[0]))
    outline.top = _Boxes(outline).boxes(tops)
    outline.number_boxes()
    return outline


def _nest(outline: Outline) -> None:
    """Find for each node the node around it, and its extent in nesting order.

    The walk uses a list instead of recursion, since programs nest deeper than Python allows. ``~node`` in the list
    means that all nodes inside this one have been visited.
    """
    shown = outline.shown
    pending: list[int] = []
    for roots in shown.threads.values():
        pending.extend(roots)
    outline.around.update(dict.fromkeys(pending, -1))
    pending.reverse()
    while pending:
        node = pending.pop()
        if node < 0:
            outline.last[~node] = len(outline.first) - 1
            continue
        outline.first[node] = len(outline.first)
        inside = shown.children_of(node)
        outline.around.update(dict.fromkeys(inside, node))
        pending.append(~node)
        pending.extend(reversed(inside))


def _without_repeats(item: Folded) -> list[Folded]:
    """Return the item itself. If it is a repeat, return the items that repeat in it."""
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
    """The innermost loop around it whose iterations are merged."""
    rounds: str = ""
    """Text about the iterations of a surrounding item that has no box."""
    layers: tuple[int, ...] = ()
    """The loops over layers directly around an iteration; the iteration's box may be theirs."""


class _Boxes:
    """Makes boxes. Loops with a single iteration, and most loops over layers, have none."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._shown = outline.shown
        self._inside: dict[int, int] = {-1: 0}
        """For each node: the slot of what is inside it."""
        self._slots: dict[int, int] = {}
        """The slots of nodes that repeat together. All other nodes have the slot of the node around them."""

    def boxes(self, items: Sequence[Folded]) -> list[Box]:
        """Build all boxes and return the outermost ones."""
        top: list[Box] = []
        for item in items:
            for part in _without_repeats(item):
                for node in part.nodes:
                    self._inside[self._outline.around[node]] = 0
        pending = [(item, top, _Around()) for item in reversed(items)]
        while pending:
            item, siblings, around = pending.pop()
            box = self._box(item, around)
            rounds = around.rounds or rounds_word(item, around.item, around.loop, self._shown)
            inside = self._around_inside(item, around)
            if box is None:
                # The items inside take the place of the box, and get its text.
                inside = replace(inside, rounds=rounds)
                children = siblings
            else:
                inside = replace(inside, rounds="")
                box.rounds = rounds
                siblings.append(box)
                children = box.children
            for child in reversed(item.children):
                pending.append((child, children, inside))
        return top

    def _around_inside(self, item: Folded, around: _Around) -> _Around:
        """Return the surroundings of what is inside an item."""
        if item.is_repeat:
            return replace(around, item=item, layers=())
        if self._shown.may_merge_iterations(item.nodes[0]):
            return replace(around, item=item, loop=item, layers=())
        layers = ()
        is_loop = self._shown.tree.kind(item.nodes[0]) == LOOP
        if is_loop and len(item.children) == 1 and not item.children[0].is_repeat:
            layers = tuple(item.nodes)
        return replace(around, item=item, layers=layers)

    def _box(self, item: Folded, around: _Around) -> Box | None:
        """Return the box of an item, or None if it has none."""
        if item.is_repeat:
            return self._repeat_box(item)
        kind = self._shown.tree.kind(item.nodes[0])
        if kind == LOOP:
            if self._shown.may_merge_iterations(item.nodes[0]):
                return self._merged_loop(item)
            return self._loop_over_layers(item)
        if kind != ITERATION:
            return self._plain_box(item.nodes)
        if len(item.children) > 1 and item.times > 1:
            return self._iterations_box(item.nodes, around.layers)
        self._pass_slots(item.nodes)
        return None

    def _merged_loop(self, item: Folded) -> Box | None:
        """Return the box of a loop whose iterations are merged. It has none if it runs only once."""
        iterations = [self._shown.children_of(node) for node in item.nodes]
        if max(map(len, iterations)) > 1:
            return self._iterations_box(list(chain(*iterations)), item.nodes)
        for node, (only,) in zip(item.nodes, iterations, strict=True):
            self._inside[only] = self._slot(node)
        return None

    def _loop_over_layers(self, item: Folded) -> Box | None:
        """Return the box of a loop over layers.

        It has none if each iteration is one call, or if its iterations are all equal and so have a box.
        """
        children = item.children
        parts = [part for child in children for part in _without_repeats(child)]
        is_one_call_each = max(len(part.children) for part in parts) <= 1
        are_equal = len(children) == 1 and not children[0].is_repeat and children[0].times > 1
        if is_one_call_each or are_equal:
            self._pass_slots(item.nodes)
            return None
        box = self._plain_box(item.nodes)
        box.loops = list(item.nodes)
        return box

    def _pass_slots(self, nodes: Sequence[int]) -> None:
        """Give what is inside nodes without a box the slots of the nodes."""
        for node in nodes:
            self._inside[node] = self._slot(node)

    def _slot(self, node: int) -> int:
        """Return the execution of the surrounding box in which a node is."""
        if node in self._slots:
            return self._slots[node]
        return self._inside[self._outline.around[node]]

    def _plain_box(self, nodes: Sequence[int]) -> Box:
        """Return a box for events or calls. Each node is one execution of it."""
        first = self._outline.first
        last = self._outline.last
        box = Box()
        ordered = sorted((self._slot(node), first[node], node) for node in nodes)
        for at, (slot, place, node) in enumerate(ordered):
            self._inside[node] = at
            box.nodes.append(node)
            box.slots.append(slot)
            box.extents.append((place, last[node]))
        return box

    def _iterations_box(self, iterations: Sequence[int], loops: Sequence[int]) -> Box:
        """Return a box for the iterations of loops."""
        around = self._outline.around
        for loop in {around[each] for each in iterations}:
            self._inside[loop] = self._slot(loop)
        box = self._plain_box(iterations)
        box.runs = [around[each] for each in box.nodes]
        box.loops = list(loops)
        return box

    def _repeat_box(self, item: Folded) -> Box:
        """Return a box for items that repeat together: a, b, a, b."""
        first = self._outline.first
        last = self._outline.last
        repeat_of = self._repeats(item)
        extents: dict[tuple[int, int], tuple[int, int]] = {}
        for node, repeat in repeat_of.items():
            low, high = extents.get(repeat, (first[node], last[node]))
            extents[repeat] = min(low, first[node]), max(high, last[node])
        box = Box()
        number_of: dict[tuple[int, int], int] = {}
        for repeat in sorted(extents):
            number_of[repeat] = len(number_of)
            slot, _ = repeat
            box.nodes.append(NOTHING)
            box.slots.append(slot)
            box.runs.append(slot)
            box.extents.append(extents[repeat])
        for node, repeat in repeat_of.items():
            self._slots[node] = number_of[repeat]
        return box

    def _repeats(self, item: Folded) -> dict[int, tuple[int, int]]:
        """Return for each node of a repeat: its slot, and which of the repeats in this slot it is in."""
        first = self._outline.first
        found: dict[int, tuple[int, int]] = {}
        for child in item.children:
            for part in _without_repeats(child):
                by_slot: dict[int, list[int]] = {}
                for node in sorted(part.nodes, key=first.__getitem__):
                    by_slot.setdefault(self._slot(node), []).append(node)
                for slot, nodes in by_slot.items():
                    nodes_each = max(len(nodes) // item.times, 1)
                    for at, node in enumerate(nodes):
                        found[node] = (slot, min(at // nodes_each, item.times - 1))
        return found

"""Folds a tree, so that whatever repeats is shown once.

Two rules make one item of several nodes:

1. The iterations of a loop are merged position by position. A call that every iteration makes becomes one item; a call
   that only some of them make becomes one too, and the item knows which iterations those were.
2. Equal siblings next to each other, such as the layers of a model, become one item with a count.

For example, with ``c`` called from the third iteration on::

    for i in range(4):      Item(loop)
        a()                 ├ Item(a)  nodes=[a0, a1, a2, a3]  slots=[0, 1, 2, 3]
        if i >= 2:          └ Item(c)  nodes=[c2, c3]          slots=[2, 3]
            c()

``slots`` says in which of the loop's four iterations each node happened. The loop's ``slot_count`` is 4.

A loop whose iterations are layers (each calls another module) is not merged by the first rule: two layers share an
item only if they are equal, by the second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

MAX_UNIT = 64
"""Siblings in the longest unit that is looked for. Searching for longer ones takes long, and they hardly occur."""
MAX_UNIT_LENGTHS_TRIED = 4
"""Lengths of a unit that are tried at one sibling: the distances to the next siblings that are equal to it."""
MIN_LINES_SAVED = 2
"""Lines that a group must save. Two short lines are easier to read than one line with a count."""
REPEAT_NODE = -1
"""The node of an item that only holds other items together: those that repeat as a unit."""

_Node = TypeVar("_Node")
IterationKey = tuple[int, int]
"""Identifies an iteration within a merged loop: which execution of the loop, and which iteration of that."""


class Foldable(Protocol):
    """The tree to fold. Its nodes are numbers. By default only equal nodes are merged."""

    def children_of(self, node: int, /) -> Sequence[int]:
        """Return the nodes directly in a node, in order."""
        ...

    def key(self, node: int, /) -> Hashable:
        """Return a key. Nodes with equal keys, in different iterations of a loop, share an item."""
        return node

    def merges_neighbours(self, node: int, /) -> bool:
        """Return whether nodes in a row with equal keys share an item: calls from one place do, layers do not."""
        return False

    def line(self, node: int, /) -> int:
        """Return the line of code of a node, or 0. It orders nodes that never occur in the same iteration."""
        return 0

    def may_merge_iterations(self, node: int, /) -> bool | None:
        """Return whether the iterations of a loop are merged; False if they are layers, None if it is no loop."""
        return None


@dataclass(frozen=True, slots=True)
class Nested(Foldable):
    """A tree in which only the structure matters, such as modules in modules."""

    children: Mapping[int, Sequence[int]]

    def children_of(self, node: int, /) -> Sequence[int]:
        return self.children.get(node, ())


@dataclass(slots=True)
class Item:
    """What is shown once: a node, or several nodes that it stands for, in order."""

    nodes: list[int] = field(default_factory=list[int])
    slots: list[int] = field(default_factory=list[int])
    """For each node, its slot in the item around this one. The slots of an item are its nodes; those of a merged loop
    are its iterations."""
    iterations: list[IterationKey] = field(default_factory=list[IterationKey])
    """For each node, in which iteration of the innermost merged loop it is."""
    slot_count: int = 0
    """How many slots this item has for its children."""
    times: int = 1
    """How many equal siblings it stands for."""
    unit: int = 1
    """For a repeat: how many items repeat together."""
    children: list[Item] = field(default_factory=list["Item"])
    pattern: int = 0
    """Equal for items that look the same, with everything in them."""
    height: int = 1
    """How many lines it takes, with everything in it."""

    @property
    def is_repeat(self) -> bool:
        """Whether it only holds other items together, which repeat as a unit."""
        return self.nodes == [REPEAT_NODE]

    @property
    def in_a_row(self) -> int:
        """How many of its nodes happened in a row each time; 0 if that differs."""
        present = len(set(self.slots))
        if present and len(self.nodes) % present == 0:
            return len(self.nodes) // present
        return 0


class _Sequence(NamedTuple):
    """The nodes in one slot of an item."""

    nodes: Sequence[int]
    iteration: IterationKey
    """The iteration of the innermost merged loop that they are in."""


class _Unfilled(NamedTuple):
    """An item whose children are still to be made."""

    item: Item
    sequences: list[_Sequence]
    """The nodes of the children, by slot of the item."""


def folded(
    tree: Foldable,
    roots: Sequence[int],
    appearance: Callable[[Item], Hashable],
    fold: bool = True,
) -> list[Item]:
    """Return items for all nodes; each node is in exactly one of them.

    ``appearance`` returns what a view shows of an item itself: siblings are merged only where that is equal. With
    ``fold=False`` every node gets an item of its own.
    """
    if not fold:
        return _unfolded(tree, roots)
    top = Item(slot_count=1)
    items: list[Item] = [top]
    pending = [_Unfilled(top, [_Sequence(roots, (0, 0))])]
    while pending:
        item, sequences = pending.pop()
        item.children = _merge_sequences(tree, sequences)
        items += item.children
        for child in item.children:
            pending += _contents(tree, child, items)
    _merge_equal_siblings(items, appearance)
    return top.children


def _unfolded(tree: Foldable, roots: Sequence[int]) -> list[Item]:
    """Return an item for every node."""
    top = Item()
    pending = [(top, roots)]
    while pending:
        item, nodes = pending.pop()
        item.children = [Item([node], [0], [(0, 0)], 1) for node in nodes]
        pending += [(child, tree.children_of(child.nodes[0])) for child in item.children]
    return top.children


def _contents(tree: Foldable, item: Item, items: list[Item]) -> list[_Unfilled]:
    """Return what is to be filled next: the item itself or, for a loop over layers, the item of each layer.

    The children of an item are made of the children of its nodes; those of a merged loop, of the children of all its
    iterations. The items of layers are made here, and added to ``items``.
    """
    merges = tree.may_merge_iterations(item.nodes[0])
    children = [tree.children_of(node) for node in item.nodes]
    item.slot_count = len(children)
    if merges is None:
        if any(children):
            return [_Unfilled(item, list(map(_Sequence, children, item.iterations)))]
        return []
    if merges:
        sequences: list[_Sequence] = []
        for execution, iterations in enumerate(children):
            for number, iteration in enumerate(iterations):
                sequences.append(_Sequence(tree.children_of(iteration), (execution, number)))
        item.slot_count = len(sequences)
        return [_Unfilled(item, sequences)]
    to_fill: list[_Unfilled] = []
    layer_count = max(len(iterations) for iterations in children)
    for number in range(layer_count):
        layer = _layer(item, children, number)
        item.children.append(layer)
        items.append(layer)
        inside = [tree.children_of(node) for node in layer.nodes]
        to_fill.append(_Unfilled(layer, list(map(_Sequence, inside, layer.iterations))))
    return to_fill


def _layer(loop: Item, children: Sequence[Sequence[int]], number: int) -> Item:
    """Return the item of one iteration of a loop over layers: the n-th of each execution of the loop."""
    layer = Item()
    for slot, iterations in enumerate(children):
        if number < len(iterations):
            layer.nodes.append(iterations[number])
            layer.slots.append(slot)
            layer.iterations.append(loop.iterations[slot])
    layer.slot_count = len(layer.nodes)
    return layer


# ---------------------------------------------------------------- 1. iterations, position by position


def _merge_sequences(tree: Foldable, sequences: Sequence[_Sequence]) -> list[Item]:
    """Return one item for each place at which something happened in any of the sequences, in order."""
    item_at: dict[Hashable, Item] = {}
    order = Order(lambda place: tree.line(item_at[place].nodes[0]))
    for slot, (nodes, iteration) in enumerate(sequences):
        places = _places(tree, nodes)
        for node, place in zip(nodes, places, strict=True):
            item = item_at.get(place)
            if item is None:
                item = Item()
                item_at[place] = item
            item.nodes.append(node)
            item.slots.append(slot)
            item.iterations.append(iteration)
        order.add(places)
    return [item_at[place] for place in order.places()]


def _places(tree: Foldable, nodes: Sequence[int]) -> list[Hashable]:
    """Return for each node its place: its key, and how many times that key occurred so far.

    Nodes in a row that merge with their neighbours have one place.
    """
    times: dict[Hashable, int] = {}
    previous: Hashable = None
    places: list[Hashable] = []
    for node in nodes:
        key = tree.key(node)
        if key != previous or not tree.merges_neighbours(node):
            times[key] = times.get(key, 0) + 1
        previous = key
        places.append((key, times[key]))
    return places


# ---------------------------------------------------------------- 2. equal siblings


def _merge_equal_siblings(items: Sequence[Item], appearance: Callable[[Item], Hashable]) -> None:
    """Number the patterns of all items, innermost first, and merge equal siblings in a row.

    ``items`` has every item after the one that it is in.
    """
    known: dict[Hashable, int] = {}
    for item in reversed(items):
        if not item.nodes:
            item.children = _grouped(item.children, item.slot_count)
            continue
        # Siblings that were not in the same iterations differ, even if they look alike.
        present = 0
        if len(item.slots) > 1:
            present = hash(tuple(item.slots))
        key = (appearance(item), present, *[child.pattern for child in item.children])
        item.pattern = known.setdefault(key, len(known))
        item.height = 1 + sum([child.height for child in item.children])
        if len(item.children) > 1:
            item.children = _grouped(item.children, item.slot_count)


def _grouped(items: list[Item], slot_count: int) -> list[Item]:
    """Merge equal items in a row, and put several that repeat together into a repeat.

    ``slot_count`` is that of the item around them.
    """
    grouped: list[Item] = []
    patterns = [item.pattern for item in items]
    heights = [item.height for item in items]
    for start, unit, times in groups(patterns, heights):
        members = items[start : start + unit * times]
        if times == 1:
            grouped += members
        elif unit == 1:
            grouped.append(_merged(members, [0] * times, times))
        else:
            offsets = [repeat * slot_count for repeat in range(times)]
            repeat = Item([REPEAT_NODE], [0], [(0, 0)], slot_count * times, times, unit)
            repeat.children = [_merged(members[first::unit], offsets, 1) for first in range(unit)]
            grouped.append(repeat)
    return grouped


def _merged(items: Sequence[Item], offsets: Sequence[int], times: int) -> Item:
    """Merge equal items and everything in them; the offset of each is added to its slots."""
    top = Item()
    pending: list[tuple[Item, Sequence[Item], Sequence[int]]] = [(top, items, offsets)]
    while pending:
        item, alike, shifts = pending.pop()
        first = alike[0]
        item.times = first.times
        item.unit = first.unit
        item.pattern = first.pattern
        item.height = first.height
        item.children = [Item() for _ in first.children]
        child_shifts = list[int]()
        item.slot_count = 0
        for equal, shift in zip(alike, shifts, strict=True):
            child_shifts.append(item.slot_count)
            item.slot_count += equal.slot_count
            item.nodes += equal.nodes
            item.iterations += equal.iterations
            item.slots += [slot + shift for slot in equal.slots]
        if first.is_repeat:
            item.nodes = first.nodes
            item.slots = first.slots
            item.iterations = first.iterations
        children_alike = zip(*[equal.children for equal in alike], strict=True)
        for child, child_alike in zip(item.children, children_alike, strict=True):
            pending.append((child, child_alike, child_shifts))
    top.times = times
    return top


class Group(NamedTuple):
    """``times`` repeats of the ``unit`` siblings that begin at ``start``; 1 × 1 is a single sibling."""

    start: int
    unit: int
    times: int


def groups(patterns: Sequence[int], heights: Sequence[int]) -> list[Group]:
    """Cut siblings into groups of repeats; every sibling is in exactly one.

    Siblings with equal patterns may be merged. ``heights`` says how many lines each takes. A group is made where it
    saves at least two lines; of several possible groups the one that saves most is taken. For example,
    ``a b a b a b c`` (one line each) gives ``[Group(0, 2, 3), Group(6, 1, 1)]``.
    """
    next_equal = _next_equal(patterns)
    cut: list[Group] = []
    start = 0
    end = len(patterns)
    while start < end:
        if next_equal[start]:
            best = _best_group(patterns, heights, next_equal, start)
        else:
            best = Group(start, 1, 1)
        cut.append(best)
        start += best.unit * best.times
    return cut


def _next_equal(patterns: Sequence[int]) -> list[int]:
    """Return for each index the next one with an equal pattern; 0 if there is none."""
    seen: dict[int, int] = {}
    next_equal = [0] * len(patterns)
    for index in range(len(patterns) - 1, -1, -1):
        pattern = patterns[index]
        next_equal[index] = seen.get(pattern, 0)
        seen[pattern] = index
    return next_equal


def _best_group(
    patterns: Sequence[int], heights: Sequence[int], next_equal: Sequence[int], start: int
) -> Group:
    """Return the group at ``start`` that saves most lines."""
    best = Group(start, 1, 1)
    most = MIN_LINES_SAVED - 1
    repeat = next_equal[start]
    for _ in range(MAX_UNIT_LENGTHS_TRIED):
        unit = repeat - start
        if not repeat or unit > MAX_UNIT:
            break
        times = _repeats(patterns, start, unit)
        saved = sum(heights[start : start + unit]) * (times - 1)
        if unit > 1:
            # A unit of several siblings needs a line of its own for the count.
            saved -= 1
        if saved > most:
            best = Group(start, unit, times)
            most = saved
        repeat = next_equal[repeat]
    return best


def _repeats(patterns: Sequence[int], start: int, unit: int) -> int:
    """Return how many times the unit that begins at ``start`` occurs in a row."""
    same = 0
    last = len(patterns) - unit
    while start + same < last and patterns[start + same] == patterns[start + same + unit]:
        same += 1
    return same // unit + 1


def depth_first(
    tops: Sequence[_Node], children_of: Callable[[_Node], Sequence[_Node]]
) -> Iterator[_Node]:
    """Yield all nodes, outermost first, without recursion, because traces nest deeper than Python may recurse."""
    pending = list(reversed(tops))
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children_of(node)))


# ---------------------------------------------------------------- order


class Order:
    """One order for the places of several sequences, in agreement with each of them as far as they agree.

    A new place comes after its predecessor. Of two places that never occur together, such as the branches of an
    ``if``, the one with the earlier line comes first::

        a c d      where b is at line 2 and c at line 3
        a b d      gives the order  a b c d
    """

    def __init__(self, line: Callable[[Hashable], int]) -> None:
        self._line = line
        self._first: Hashable = None
        self._next: dict[Hashable, Hashable] = {}
        """By place, the one that follows; None for the last."""

    def add(self, places: Sequence[Hashable]) -> None:
        """Add the places of one more sequence."""
        following = self._next
        known = [place in following for place in places]
        if all(known):
            return
        sequence = set(places)
        is_unrelated = not any(known)
        previous: Hashable = None
        for place in places:
            if place not in following:
                previous = self._predecessor(previous, place, sequence, is_unrelated)
                if previous is None:
                    following[place] = self._first
                    self._first = place
                else:
                    following[place] = following[previous]
                    following[previous] = place
            previous = place

    def _predecessor(
        self, previous: Hashable, place: Hashable, sequence: set[Hashable], is_unrelated: bool
    ) -> Hashable:
        """Return the place that a new one comes after; None if it comes first.

        Begin with the previous place of its sequence, and pass the places of other sequences that are above the new
        one in the source. If lines are not known, the places of a sequence that shares none with the others
        (``is_unrelated``) come last.
        """
        line = self._line(place)
        while True:
            if previous is None:
                following = self._first
            else:
                following = self._next[previous]
            if following is None or following in sequence:
                return previous
            if line == 0:
                comes_first = is_unrelated
            else:
                comes_first = 0 < self._line(following) <= line
            if not comes_first:
                return previous
            previous = following

    def places(self) -> Iterator[Hashable]:
        """Yield all places in order."""
        place = self._first
        while place is not None:
            yield place
            place = self._next[place]

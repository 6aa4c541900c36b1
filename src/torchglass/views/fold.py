"""The one fold: rounds of a loop, and calls at one place, laid over each other by structure; equal siblings as one.

Rounds come from the same code, so what happened at one place in all of them shares an item, and one that happened
in some only says so. Layers, which a loop or torch goes through in turn, are folded only where they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from torchglass.views.digest import split_index

LONGEST_UNIT = 64
TRIES = 4
WORTH_IT = 2
TOGETHER = -1
"""The node of an item above others that repeat together."""

_Node = TypeVar("_Node")
Label = tuple[int, int]
"""Which execution of the loop around, and which of its rounds."""


class Foldable(Protocol):
    """What is folded: nodes as numbers, each with what is in it; here none stands for another unless they are equal."""

    def below(self, node: int, /) -> Sequence[int]: ...

    def key(self, node: int, /) -> Hashable:
        """Equal for what may share an item in different rounds, or, where that ``merges``, in a row."""
        return node

    def merges(self, node: int, /) -> bool:
        """Whether several in a row with equal keys are one item: calls at one place, not layers."""
        return False

    def line(self, node: int, /) -> int:
        """The line of the code that it stands at: two that never came together are shown in that order. 0: none."""
        return 0

    def rounds(self, node: int, /) -> bool | None:
        """Of a loop whether its rounds may be laid over each other; False: they are layers. None: no loop."""
        return None


@dataclass(slots=True)
class Item:
    """What is shown once: one node, or several that it stands for, in order."""

    nodes: list[int] = field(default_factory=list[int])
    slots: list[int] = field(default_factory=list[int])
    """For each node in which of the nodes, or rounds, of the item around it is."""
    labels: list[Label] = field(default_factory=list[Label])
    """For each node the round of the innermost loop around."""
    size: int = 0
    """How many nodes, or rounds, there are for what is in it."""
    times: int = 1
    """How many equal siblings it stands for."""
    unit: int = 1
    """Of a repeat: how many items are in it."""
    children: list[Item] = field(default_factory=list["Item"])
    pattern: int = 0
    height: int = 1

    @property
    def in_a_row(self) -> int:
        """How many of its nodes happened in a row in each of what is around it; 0 when that differs."""
        present = len(set(self.slots))
        return len(self.nodes) // present if present and len(self.nodes) % present == 0 else 0


_Sequences = list[tuple[Sequence[int], Label]]
"""What is in each node, or round, of an item, and the round that this is in."""


def _unfolded(forest: Foldable, roots: Sequence[int]) -> list[Item]:
    """Every node by itself."""
    top = Item()
    pending = [(top, roots)]
    while pending:
        item, nodes = pending.pop()
        item.children = [Item([node], [0], [(0, 0)], 1) for node in nodes]
        pending += [(child, forest.below(child.nodes[0])) for child in item.children]
    return top.children


def folded(forest: Foldable, roots: Sequence[int], own: Callable[[Item], Hashable], fold: bool = True) -> list[Item]:
    """Items for all nodes, each in exactly one; ``own`` is equal for items of which the same is said.

    Without ``fold`` every node is one by itself.
    """
    if not fold:
        return _unfolded(forest, roots)
    top = Item(size=1)
    order: list[Item] = [top]
    pending: list[tuple[Item, _Sequences]] = [(top, [(roots, (0, 0))])]
    while pending:
        item, sequences = pending.pop()
        item.children = _columns(forest, sequences)
        order += item.children
        for child in item.children:
            pending += _inside(forest, child, order)
    _find_equal(order, own)
    return top.children


def _inside(forest: Foldable, item: Item, order: list[Item]) -> list[tuple[Item, _Sequences]]:
    """What is in an item: in all of its nodes, or, of a loop, in all rounds; layers are items of their own."""
    over = forest.rounds(item.nodes[0])
    below = [forest.below(node) for node in item.nodes]
    item.size = len(below)
    if over is None:
        return [(item, list(zip(below, item.labels, strict=True)))] if any(below) else []
    if over:
        rounds = [(each, (number, at)) for number, several in enumerate(below) for at, each in enumerate(several)]
        item.size = len(rounds)
        return [(item, [(forest.below(each), label) for each, label in rounds])]
    found: list[tuple[Item, _Sequences]] = []
    for at in range(max(map(len, below))):
        layer = Item()
        for slot, several in enumerate(below):
            if at < len(several):
                layer.nodes.append(several[at])
                layer.slots.append(slot)
                layer.labels.append(item.labels[slot])
        item.children.append(layer)
        order.append(layer)
        layer.size = len(layer.nodes)
        found.append(
            (layer, [(forest.below(node), label) for node, label in zip(layer.nodes, layer.labels, strict=True)])
        )
    return found


# ---------------------------------------------------------------- by structure


def _columns(forest: Foldable, sequences: _Sequences) -> list[Item]:
    """One item for each place that something happened at in some of the sequences, in their order."""
    found: dict[Hashable, Item] = {}
    order = Order(lambda place: forest.line(found[place].nodes[0]))
    for slot, (sequence, label) in enumerate(sequences):
        places = _places(forest, sequence)
        for node, place in zip(sequence, places, strict=True):
            item = found.get(place)
            if item is None:
                item = found[place] = Item()
            item.nodes.append(node)
            item.slots.append(slot)
            item.labels.append(label)
        order.add(places)
    return [found[place] for place in order.places()]


def _places(forest: Foldable, sequence: Sequence[int]) -> list[Hashable]:
    """For each node its key, and which time it comes: several in a row may be one time."""
    times: dict[Hashable, int] = {}
    last: Hashable = None
    places: list[Hashable] = []
    for node in sequence:
        key = forest.key(node)
        if key != last or not forest.merges(node):
            times[key] = times.get(key, 0) + 1
        last = key
        places.append((key, times[key]))
    return places


# ---------------------------------------------------------------- equal siblings


def _find_equal(order: Sequence[Item], own: Callable[[Item], Hashable]) -> None:
    """Patterns of all items, innermost first, and equal siblings in a row as one."""
    known: dict[Hashable, int] = {}
    for item in reversed(order):
        if not item.nodes:
            item.children = _grouped(item.children, item.size)
            continue
        # Siblings that were not in the same rounds differ, whatever is said of them.
        present = hash(tuple(item.slots)) if len(item.slots) > 1 else 0
        key = (own(item), present, *[child.pattern for child in item.children])
        item.pattern = known.setdefault(key, len(known))
        item.height = 1 + sum([child.height for child in item.children])
        if len(item.children) > 1:
            item.children = _grouped(item.children, item.size)


def _grouped(items: list[Item], size: int) -> list[Item]:
    """Equal ones in a row as one, several that repeat together under an item; ``size`` is that of the one around."""
    found: list[Item] = []
    for start, unit, times in groups([item.pattern for item in items], [item.height for item in items]):
        members = items[start : start + unit * times]
        if times == 1:
            found += members
        elif unit == 1:
            found.append(_merged(members, [0] * times, times))
        else:
            offsets = [repeat * size for repeat in range(times)]
            block = [_merged(members[offset::unit], offsets, 1) for offset in range(unit)]
            found.append(Item([TOGETHER], [0], [(0, 0)], size * times, times, unit, block))
    return found


def _merged(items: Sequence[Item], offsets: Sequence[int], times: int) -> Item:
    """Equal items as one, and so all that is in them; ``offsets`` are added to the slots of each."""
    top = Item()
    pending: list[tuple[Item, Sequence[Item], Sequence[int]]] = [(top, items, offsets)]
    while pending:
        item, alike, shifts = pending.pop()
        first = alike[0]
        item.times, item.unit, item.pattern, item.height = first.times, first.unit, first.pattern, first.height
        item.children = [Item() for _ in first.children]
        inside, item.size = list[int](), 0
        for each, shift in zip(alike, shifts, strict=True):
            inside.append(item.size)
            item.size += each.size
            item.nodes += each.nodes
            item.labels += each.labels
            item.slots += [slot + shift for slot in each.slots]
        if first.nodes == [TOGETHER]:
            item.nodes, item.slots, item.labels = first.nodes, first.slots, first.labels
        below = zip(*[each.children for each in alike], strict=True)
        pending += [(child, several, inside) for child, several in zip(item.children, below, strict=True)]
    top.times = times
    return top


class Group(NamedTuple):
    """``times`` repeats of the ``unit`` siblings that begin at ``start``; 1 × 1 is a sibling by itself."""

    start: int
    unit: int
    times: int


def groups(patterns: Sequence[int], heights: Sequence[int]) -> list[Group]:
    """Cut siblings into groups of repeats; every sibling is in exactly one.

    Equal patterns are siblings that may stand for each other; ``heights`` says how many lines each would take.
    A group is made where it saves at least two lines, and of several ways the one that saves most.
    """
    following = _next_equal(patterns)
    found: list[Group] = []
    at, end = 0, len(patterns)
    while at < end:
        best = _best_group(patterns, heights, following, at) if following[at] else Group(at, 1, 1)
        found.append(best)
        at += best.unit * best.times
    return found


def _next_equal(patterns: Sequence[int]) -> list[int]:
    """For each place the next one with an equal pattern; 0 where there is none."""
    seen: dict[int, int] = {}
    following = [0] * len(patterns)
    for at in range(len(patterns) - 1, -1, -1):
        pattern = patterns[at]
        following[at] = seen.get(pattern, 0)
        seen[pattern] = at
    return following


def _best_group(patterns: Sequence[int], heights: Sequence[int], following: Sequence[int], at: int) -> Group:
    best, most = Group(at, 1, 1), WORTH_IT - 1
    again = following[at]
    for _ in range(TRIES):
        unit = again - at
        if not again or unit > LONGEST_UNIT:
            break
        times = _repeats(patterns, at, unit)
        # A unit of several siblings needs a line of its own that says how often.
        saved = sum(heights[at : at + unit]) * (times - 1) - (unit > 1)
        if saved > most:
            best, most = Group(at, unit, times), saved
        again = following[again]
    return best


def _repeats(patterns: Sequence[int], at: int, unit: int) -> int:
    same, last = 0, len(patterns) - unit
    while at + same < last and patterns[at + same] == patterns[at + same + unit]:
        same += 1
    return same // unit + 1


def in_order(tops: Sequence[_Node], below: Callable[[_Node], Sequence[_Node]]) -> Iterator[_Node]:
    """All of them, outermost first, without recursion: traces nest deeper than Python may."""
    pending = list(reversed(tops))
    while pending:
        each = pending.pop()
        yield each
        pending.extend(reversed(below(each)))


# ---------------------------------------------------------------- labels


def range_label(paths: Iterable[str]) -> str:
    """``blocks.0–11`` for twelve layers in a row; one path when all are the same; else the first few."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    head, first = split_index(distinct[0])
    numbers = [split_index(path)[1] for path in distinct]
    if first is None or any(split_index(path)[0] != head for path in distinct):
        return ", ".join(distinct if len(distinct) <= 3 else [*distinct[:2], "…", distinct[-1]])
    if numbers == list(range(first, first + len(distinct))):
        return f"{head}{first}–{numbers[-1]}"
    rest = [str(number) for number in numbers]
    return head + ", ".join(rest if len(rest) <= 4 else [*rest[:2], "…", rest[-1]])


# ---------------------------------------------------------------- order


class Order:
    """An order in which several sequences agree as far as they do: what is new stands behind what came before it.

    Of two that never came together, the branches of an ``if``, the one whose line comes first stands first.
    """

    def __init__(self, line: Callable[[Hashable], int]) -> None:
        self._line = line
        self._after: dict[Hashable, Hashable] = {}
        self._first: Hashable = None

    def add(self, places: Sequence[Hashable]) -> None:
        """One more sequence."""
        known = self._after
        new = [place not in known for place in places]
        if not any(new):
            return
        here = set(places)
        before: Hashable = None
        is_alone = all(new)
        for place, is_new in zip(places, new, strict=True):
            if is_new and place not in known:
                before = self._behind(before, place, here, is_alone)
                known[place] = self._first if before is None else known[before]
                if before is None:
                    self._first = place
                else:
                    known[before] = place
            before = place

    def _behind(self, before: Hashable, place: Hashable, here: set[Hashable], is_alone: bool) -> Hashable:
        """What a new place comes behind: what it came behind, and what was never there with it and is written above.

        Where no lines are known a sequence that shares nothing with the others comes behind them.
        """
        line = self._line(place)
        while True:
            following = self._first if before is None else self._after[before]
            if following is None or following in here:
                return before
            if not (is_alone if line == 0 else 0 < self._line(following) <= line):
                return before
            before = following

    def places(self) -> Iterator[Hashable]:
        """All of them, in order."""
        place = self._first
        while place is not None:
            yield place
            place = self._after[place]

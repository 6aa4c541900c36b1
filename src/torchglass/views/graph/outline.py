"""What a picture of a trace is made of: the events that have a box, in one another, equal ones in a row as one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.types import Event
from torchglass.views.digest import Digest, Key, shape_key, texts_of
from torchglass.views.fold import groups
from torchglass.views.graph import Options
from torchglass.views.nesting import is_inner_at, is_torch_helper, nesting, relative_path, settings_of, split_index


@dataclass(slots=True, eq=False)
class Item:
    """A box: one event, or several that it stands for, in order."""

    nodes: list[int] = field(default_factory=list[int])
    """Events. Those of a repeat of several boxes are in its children."""
    children: list[Item] = field(default_factory=list["Item"])
    times: int = 1
    """How many equal ones in a row it stands for."""
    unit: int = 1
    """Of a repeat: how many boxes repeat together."""
    number: int = -1
    """Its place among all items, outermost first."""
    parent: int = -1

    @property
    def is_repeat(self) -> bool:
        """Whether it only holds others that repeat together."""
        return not self.nodes


@dataclass(slots=True)
class Outline:
    """The boxes of a trace, and which box each event is in."""

    digest: Digest
    events: list[Event]
    """For each event one that is alike."""
    anchors: list[int]
    """For each event the one whose box it is in: itself, or one around it; -1: none."""
    children: dict[int, list[int]]
    """Events with boxes by the one around them; -1: the outermost."""
    names: dict[int, str]
    """Of module calls: the path as seen from the module around."""
    helpers: set[int] = field(default_factory=set[int])
    """Events that stand for an expression of plain Python around torch functions: ``zero_grad()``."""
    items: list[Item] = field(default_factory=list[Item])
    top: list[Item] = field(default_factory=list[Item])


def outline_of(digest: Digest, options: Options) -> Outline:
    """Choose the events that have boxes, then fold what repeats."""
    outline = _shown(digest, options)
    _Folding(outline, texts_of(digest), options.fold).fold()
    outline.items = list(in_order(outline.top))
    for number, item in enumerate(outline.items):
        item.number = number
        for child in item.children:
            child.parent = number
    return outline


def in_order(items: Sequence[Item]) -> Iterator[Item]:
    """All items, outermost first, without recursion: traces nest deeper than Python may."""
    pending = list(reversed(items))
    while pending:
        item = pending.pop()
        yield item
        pending.extend(reversed(item.children))


# ---------------------------------------------------------------- which events have boxes


def _shown(digest: Digest, options: Options) -> Outline:
    events, parents = digest.events(), digest.parents
    nest = nesting(events, parents)
    outline = Outline(digest, events, [], {}, {})
    kept = None if options.only is None else _with_ancestors(parents, digest.matching(options.only))
    known: dict[tuple[int, int, bool], tuple[bool, bool]] = {}
    for at, parent in enumerate(parents):
        # How an event is treated depends only on what it is like and on what the one around it is like.
        pair = (digest.alike[at], digest.alike[parent] if parent >= 0 else -1, parent in nest.containers)
        found = known.get(pair)
        if found is None:
            around = events[parent] if parent >= 0 else None
            hidden = not options.inner and is_inner_at(events, nest, at, parent)
            hidden = hidden or (not options.functions and events[at].kind in ("function", "op"))
            found = known[pair] = hidden, not options.inner and is_torch_helper(events[at], around)
        around_it = outline.anchors[parent] if parent >= 0 else -1
        is_hidden = found[0] or (kept is not None and not kept[at])
        outline.anchors.append(around_it if is_hidden else _place(outline, at, around_it, found[1]))
    for at, above in enumerate(nest.module_above):
        if events[at].kind == "module" and outline.anchors[at] == at:
            outline.names[at] = relative_path(events[at], events[above] if above >= 0 else None)
    return outline


def _place(outline: Outline, at: int, around: int, is_helper: bool) -> int:
    """Its own box, or that of the function before it in an expression that is no event itself: ``zero_grad()``."""
    siblings = outline.children.setdefault(around, [])
    if is_helper and siblings:
        before, event = outline.events[siblings[-1]], outline.events[at]
        if before.location == event.location and not before.direct and before.thread == event.thread:
            return siblings[-1]
    if is_helper:
        outline.helpers.add(at)
    siblings.append(at)
    return at


def _with_ancestors(parents: Sequence[int], matched: bytearray) -> bytearray:
    kept = bytearray(matched)
    for at in range(len(parents) - 1, -1, -1):
        if kept[at] and parents[at] >= 0:
            kept[parents[at]] = True
    return kept


# ---------------------------------------------------------------- what repeats


class _Folding:
    """Equal siblings in a row, and several that repeat together, as one item."""

    def __init__(self, outline: Outline, texts: Sequence[int], fold: bool) -> None:
        self._outline, self._texts, self._fold = outline, texts, fold
        self._numbers: dict[Hashable, int] = {}
        self._patterns: dict[int, int] = {}
        self._items: dict[int, list[Item]] = {}

    def fold(self) -> None:
        """Innermost first: what is in two events must be equal before they can be."""
        children = self._outline.children
        for at in sorted(children, reverse=True):
            for child in children[at]:
                inside = tuple(self._patterns[each] for each in children.get(child, ()))
                key = (self._key(child), inside)
                self._patterns[child] = self._numbers.setdefault(key, len(self._numbers))
            self._items[at] = self._siblings(children[at])
        self._outline.top = self._items.get(-1, [])

    def _key(self, at: int) -> Hashable:
        event = self._outline.events[at]
        return self._texts[at] if event.kind != "module" else _module_key(event, self._outline.names[at])

    def _siblings(self, ids: list[int]) -> list[Item]:
        if not self._fold or len(ids) == 1:
            return [self._item([at]) for at in ids]
        patterns = [self._patterns[at] for at in ids]
        found: list[Item] = []
        for start, unit, times in groups(patterns, [self._height(at) for at in ids]):
            members = ids[start : start + unit * times]
            if unit == 1:
                found.append(self._item(members))
            else:
                parts = [self._item(members[offset::unit], times=1) for offset in range(unit)]
                found.append(Item([], parts, times, unit))
        return found

    def _height(self, at: int) -> int:
        """In a picture two equal boxes in a row are worth folding, however little is in them, if they are layers."""
        return 2 if at in self._outline.children or self._outline.events[at].kind == "module" else 1

    def _item(self, members: list[int], times: int | None = None) -> Item:
        inside = [self._items[at] for at in members if at in self._items]
        return Item(members, _laid_over(inside), len(members) if times is None else times)


def _laid_over(alike: list[list[Item]]) -> list[Item]:
    """What is in several equal events, as what is in one that stands for all."""
    if len(alike) < 2:
        return alike[0] if alike else []
    top: list[Item] = []
    pending = [(top, alike)]
    while pending:
        into, several = pending.pop()
        for same in zip(*several, strict=True):
            item = Item([node for each in same for node in each.nodes], [], same[0].times, same[0].unit)
            into.append(item)
            if same[0].children:
                pending.append((item.children, [each.children for each in same]))
    return top


def _module_key(event: Event, path: str) -> Key:
    """All that is said of a layer but its number, and of numbered layers the place of the call."""
    head, number = split_index(path)
    return (
        event.name, settings_of(event.detail, event.module), tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)), event.error, event.note, event.end_ns is None, head,
        None if number is not None else (event.code, event.target, event.line),
    )  # fmt: skip

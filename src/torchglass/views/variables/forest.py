"""Changes of variables under their lives or calls and the loops in these, to be laid over each other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from torchglass.events.types import Location
from torchglass.views.fold import TOGETHER, Item
from torchglass.views.levels import Level, Levels
from torchglass.views.row import Row
from torchglass.views.variables.changes import NOTHING, Call, Change
from torchglass.views.variables.lives import NO_STORY, Life, Story, numberless

Node = Life | Call | Level | Change


class ChangeForest:
    """Nodes by number; each change is in one life, or one call, and in the loops that are around it there."""

    def __init__(self, patterns: Patterns, levels: Levels | None) -> None:
        self.patterns, self._levels = patterns, levels
        self.nodes: list[Node] = []
        self.parents: list[int] = []
        self._children: list[list[int]] = []
        self._known: dict[Hashable, int] = {}
        self._rounds: dict[tuple[int, int], dict[int, list[int]]] = {}

    # ------------------------------------------------------------ what folding asks

    def below(self, node: int) -> Sequence[int]:
        return self._children[node]

    def key(self, node: int) -> Hashable:
        """Equal for what happened at one place: all lives and calls of a function, in layers of one kind."""
        here = self.nodes[node]
        if isinstance(here, Change):
            return self.patterns.place_of(here)
        if isinstance(here, Level):
            return (here.kind, here.loop)
        if isinstance(here, Life):
            return ("life", here.thread, _numberless(here.module))
        return ("call", here.at.file, here.at.function, _numberless(here.module), here.called_at)

    def merges(self, node: int) -> bool:
        return not isinstance(self.nodes[node], Level)

    def line(self, node: int) -> int:
        here = self.nodes[node]
        if isinstance(here, Life):
            return 0
        at = here.called_at if isinstance(here, Call) else here.at
        return 0 if at is None else at.line

    def rounds(self, node: int) -> bool | None:
        here = self.nodes[node]
        return True if isinstance(here, Level) and here.rounds is not None else None

    def own(self, item: Item) -> Hashable:
        """All that is said of an item itself."""
        if isinstance(self.nodes[item.nodes[0]], Change):
            return tuple(dict.fromkeys(map(self.patterns.of, self.changes(item))))
        return self.key(item.nodes[0])

    # ------------------------------------------------------------ what is in an item

    def changes(self, item: Item) -> list[Change]:
        return [each for each in map(self.nodes.__getitem__, item.nodes) if isinstance(each, Change)]

    def spans(self, item: Item) -> list[Level]:
        return [each for each in map(self.nodes.__getitem__, item.nodes) if isinstance(each, Level)]

    def span(self, node: int) -> Level | None:
        here = self.nodes[node]
        return here if isinstance(here, Level) else None

    def kind(self, item: Item) -> type:
        """What an item stands for; ``Item`` for one above others that repeat together."""
        return Item if item.nodes == [TOGETHER] else type(self.nodes[item.nodes[0]])

    # ------------------------------------------------------------ filling

    def add_life(self, life: Life, tops: list[int]) -> None:
        """A life with its changes, each in the loops of its own call; an attribute's also in those around that."""
        top = self._node(("life", id(life)), life, -1, tops)
        for change in life.changes:
            at = top
            for number in self._loops(change, whole="." in life.name):
                at = self._span(at, number, tops)
            self._node(("change", change.key), change, at, tops)

    def add_change(self, change: Change, tops: list[int]) -> None:
        """A change under the calls around it, each with its loops."""
        rounds = self._by_frame(change)
        calls: list[Call] = []
        call: Call | None = change.call
        while call is not None:
            calls.append(call)
            call = call.caller
        calls.reverse()
        stack = change.event.stack
        frames = _own_frames(stack) or [0]
        at = -1
        for call, frame in zip(calls, frames, strict=False):
            at = self._node(("call", id(call), at), call, at, tops)
            for number in rounds.get(frame, ()):
                at = self._span(at, number, tops)
        self._node(("change", change.key), change, at, tops)

    def _span(self, at: int, number: int, tops: list[int]) -> int:
        assert self._levels is not None
        return self._node(("span", at, number), self._levels.spans[number], at, tops)

    def _node(self, key: Hashable, node: Node, parent: int, tops: list[int]) -> int:
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self.parents.append(parent)
            self._children.append([])
            (self._children[parent] if parent >= 0 else tops).append(number)
        return number

    def _loops(self, change: Change, whole: bool) -> list[int]:
        """Loops and rounds around a change, outermost first, in its own call or (``whole``) in all."""
        if self._levels is None:
            return []
        if not whole:
            return self._by_frame(change).get(len(change.event.stack) - 1, [])
        return [each for _, several in sorted(self._by_frame(change).items()) for each in several]

    def _by_frame(self, change: Change) -> dict[int, list[int]]:
        """The same by the frame that they are in."""
        levels = self._levels
        if levels is None:
            return {}
        key = (levels.span_of[change.id], change.parent)
        if key not in self._rounds:
            self._rounds[key] = levels.by_frame(change.id)
        return self._rounds[key]


def _own_frames(stack: tuple[Location, ...]) -> list[int]:
    """The places of the frames that calls stand for (see ``Calls``)."""
    return [index for index, at in enumerate(stack) if at.origin == "user" or at is stack[-1]]


def _numberless(module: tuple[str, str] | None) -> Hashable:
    return None if module is None else (module[0], numberless(module[1]))


# ---------------------------------------------------------------- patterns

# Rows of changes: what is shown as one, and which changes may share a row.


@dataclass(slots=True)
class Changes(Row):
    """A change of a variable, or several at one place; the view says it in cells when it knows what is around them."""

    changes: list[Change] = field(default_factory=list[Change])
    """All that it stands for, in order."""
    stories: list[Story] = field(default_factory=list[Story])

    @property
    def first(self) -> Change:
        return self.changes[0]


@dataclass(slots=True)
class Patterns:
    """One number for each pattern of a change, equal for those of which the same is said."""

    stories: dict[tuple[int, str], Story]
    """By the key of the change."""
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _places: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, change: Change) -> int:
        """A first value looks like one that came after an equal one: the first round of a loop is no exception."""
        new = change.new.form
        old = new if change.old.kind == NOTHING else change.old.form
        return self._number((self.place_of(change), old, new, self.story_of(change).number))

    def place_of(self, change: Change) -> int:
        """Equal for changes of one variable at one place of the code."""
        event = change.event
        place = self._places.get(id(event))
        if place is None:
            at = change.at
            words = (event.name, change.how, at.file, at.line, at.col, event.code)
            place = self._places[id(event)] = self._number(words)  # the change keeps the event, and so its id
        return place

    def story_of(self, change: Change) -> Story:
        """Where its value comes from."""
        return self.stories.get(change.key, NO_STORY)

    def _number(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))

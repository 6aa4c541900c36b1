"""The tree that the variables view folds: changes under their lives or calls, in the loops of the program tree.

By life, or in the order of time::

    h in forward               train
      for block in blocks        for x in data
        h = block(h)               forward
                                     h = block(h)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from torchglass.events.types import Location
from torchglass.program.calls import PythonCall
from torchglass.program.fold import Foldable, Item
from torchglass.program.paths import numberless
from torchglass.program.tree import LOOP, ProgramTree
from torchglass.program.variables.changes import NOTHING, Change
from torchglass.program.variables.lives import Life
from torchglass.program.variables.origins import NO_STORY, Story


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A loop of the program, or one of its iterations."""

    scope: int


Node = Life | PythonCall | LoopNode | Change


class ShownChanges(Foldable):
    """The tree of lives, calls, loops and changes, by number. It can be folded (``fold.Foldable``)."""

    def __init__(self, patterns: Patterns, tree: ProgramTree, has_loops: bool) -> None:
        self.patterns = patterns
        self.tree = tree
        self._has_loops = has_loops
        self.nodes: list[Node] = []
        self.parents: list[int] = []
        self._children: list[list[int]] = []
        self._numbers: dict[Hashable, int] = {}
        """The number of each node, by a key that says what it stands for."""
        self._loops_below: dict[int, dict[int, list[int]]] = {}
        """Cached results of ``_loops_of_frames``, by the parent of the change in the program tree."""

    # ------------------------------------------------------------ Foldable

    def children_of(self, node: int, /) -> Sequence[int]:
        return self._children[node]

    def key(self, node: int, /) -> Hashable:
        """Return a key that is equal for changes at one place, and for lives and calls in similar layers."""
        here = self.nodes[node]
        if isinstance(here, Change):
            return self.patterns.place_of(here)
        if isinstance(here, LoopNode):
            return (self.tree.kind(here.scope), self.tree.site(here.scope).loop)
        if isinstance(here, Life):
            return ("life", here.thread, _numberless(here.module))
        return ("call", here.at.file, here.at.function, _numberless(here.module), here.called_at)

    def merges_neighbours(self, node: int, /) -> bool:
        return not isinstance(self.nodes[node], LoopNode)

    def line(self, node: int, /) -> int:
        here = self.nodes[node]
        if isinstance(here, Life):
            return 0
        if isinstance(here, LoopNode):
            at = self.tree.site(here.scope).at
        elif isinstance(here, PythonCall):
            at = here.called_at
        else:
            at = here.at
        if at is None:
            return 0
        return at.line

    def may_merge_iterations(self, node: int, /) -> bool | None:
        if self.tree.kind(self.scope(node)) == LOOP:
            return True
        return None

    def appearance(self, item: Item) -> Hashable:
        """Return what the row of an item shows, without the items in it."""
        first = item.nodes[0]
        if not isinstance(self.nodes[first], Change):
            return self.key(first)
        patterns = [self.patterns.of(change) for change in self.changes(item)]
        return tuple(dict.fromkeys(patterns))

    # ------------------------------------------------------------ items

    def changes(self, item: Item) -> list[Change]:
        """Return the changes that an item stands for."""
        nodes = [self.nodes[number] for number in item.nodes]
        return [node for node in nodes if isinstance(node, Change)]

    def scope(self, node: int) -> int:
        """Return the loop or iteration of the program tree that a node stands for; -1 for other nodes."""
        here = self.nodes[node]
        if isinstance(here, LoopNode):
            return here.scope
        return -1

    def times_run(self, nodes: Sequence[int]) -> int | None:
        """Return None: which variables changed in events that were not kept is not known."""
        return None

    def kind(self, item: Item) -> type:
        """Return the class of the nodes of an item; ``Item`` for a repeat."""
        if item.is_repeat:
            return Item
        return type(self.nodes[item.nodes[0]])

    # ------------------------------------------------------------ filling

    def add_life(self, life: Life, tops: list[int]) -> None:
        """Add a life with its changes, each in the loops of its own call.

        The changes of an attribute are also in the loops of the callers. ``tops`` gets the outermost nodes.
        """
        top = self._node(("life", id(life)), life, -1, tops)
        is_attribute = "." in life.name
        for change in life.changes:
            parent = top
            for scope in self._loops_around(change, with_callers=is_attribute):
                parent = self._loop_node(parent, scope, tops)
            self._node(("change", change.key), change, parent, tops)

    def add_change(self, change: Change, tops: list[int]) -> None:
        """Add a change below the calls around it, each with its loops."""
        loops_of_frame = self._loops_of_frames(change)
        calls = _with_callers(change.call)
        frames = _program_frames(change.event.stack) or [0]
        parent = -1
        for call, frame in zip(calls, frames, strict=False):
            parent = self._node(("call", id(call), parent), call, parent, tops)
            for scope in loops_of_frame.get(frame, ()):
                parent = self._loop_node(parent, scope, tops)
        self._node(("change", change.key), change, parent, tops)

    def _loop_node(self, parent: int, scope: int, tops: list[int]) -> int:
        return self._node(("loop", parent, scope), LoopNode(scope), parent, tops)

    def _node(self, key: Hashable, node: Node, parent: int, tops: list[int]) -> int:
        """Return the number of the node with this key; add it below ``parent`` (-1: to ``tops``) if it is new."""
        number = self._numbers.get(key)
        if number is None:
            number = len(self.nodes)
            self._numbers[key] = number
            self.nodes.append(node)
            self.parents.append(parent)
            self._children.append([])
            siblings = tops
            if parent >= 0:
                siblings = self._children[parent]
            siblings.append(number)
        return number

    def _loops_around(self, change: Change, with_callers: bool) -> list[int]:
        """Return loops and iterations around a change, outermost first: those of its call, or also of its callers."""
        loops_of_frame = self._loops_of_frames(change)
        if not with_callers:
            return loops_of_frame.get(len(change.event.stack) - 1, [])
        scopes: list[int] = []
        for frame in sorted(loops_of_frame):
            scopes += loops_of_frame[frame]
        return scopes

    def _loops_of_frames(self, change: Change) -> dict[int, list[int]]:
        """Return the loops and iterations around a change, by the index of their frame."""
        if not self._has_loops:
            return {}
        parent = self.tree.parent[change.id]
        if parent not in self._loops_below:
            self._loops_below[parent] = self.tree.by_frame(change.id)
        return self._loops_below[parent]


def _with_callers(call: PythonCall) -> list[PythonCall]:
    """Return a call and those around it, outermost first."""
    calls = [call]
    while call.caller is not None:
        call = call.caller
        calls.append(call)
    calls.reverse()
    return calls


def _program_frames(stack: tuple[Location, ...]) -> list[int]:
    """Return the indices of the frames that have a ``PythonCall``."""
    return [index for index, at in enumerate(stack) if at.origin == "user" or at is stack[-1]]


def _numberless(module: tuple[str, str] | None) -> Hashable:
    if module is None:
        return None
    return (module[0], numberless(module[1]))


# ---------------------------------------------------------------- which changes may share a row


@dataclass(slots=True)
class Patterns:
    """Numbers the changes so that those with equal numbers may share a row."""

    stories: dict[tuple[int, str], Story]
    """By the key of a change, where its value comes from."""
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _places: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, change: Change) -> int:
        """Return the number of the pattern of a change.

        The first value of a variable counts as a change from a value of the same form. Otherwise the first iteration
        of a loop would differ from the others.
        """
        new = change.new.form
        if change.old.kind == NOTHING:
            old = new
        else:
            old = change.old.form
        return self._number((self.place_of(change), old, new, self.story_of(change).number))

    def place_of(self, change: Change) -> int:
        """Return a number that is equal for changes of one variable at one place of the code."""
        event = change.event
        # The change keeps the event, so no other object gets its id.
        place = self._places.get(id(event))
        if place is None:
            at = change.at
            place = self._number((event.name, change.how, at.file, at.line, at.col, event.code))
            self._places[id(event)] = place
        return place

    def story_of(self, change: Change) -> Story:
        """Return where its value comes from."""
        return self.stories.get(change.key, NO_STORY)

    def _number(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))

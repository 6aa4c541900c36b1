"""The code view before it is folded: each step under its lines and calls, in the order of the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torchglass.events.types import Event, Location, Value
from torchglass.views.code.lines import FEWEST_LEVELS, Lines
from torchglass.views.code.steps import Steps
from torchglass.views.digest import Key, shape_key

LINE, CALL, STEP = "line", "call", "step"


@dataclass(slots=True)
class Node:
    """A line in one call, a call, or a step."""

    kind: str
    number: int
    """Of the line; of the event."""
    children: list[int]
    assigned: dict[tuple[str, ...], list[tuple[Value, ...]]] | None = None
    spent: int = 0
    size: int = 0
    """Steps in it."""
    has_lines: bool = False
    """Lines of its own, not of the calls in it."""
    inside: int = 0
    """Of an optimizer's step: the ops in it that are not shown."""
    words: tuple[str, str] | None = None
    """Arguments and result of a step that stands for others with other numbers."""


@dataclass(slots=True)
class Path:
    """The nodes that lead to a step, as numbers to compare: lines from 0 on, calls below."""

    items: list[int]
    frames: dict[int, int]
    """Index of a frame → place among the items."""


class Forest:
    """Nodes in the order of the trace, each under its parent; steps that follow each other share their lines."""

    def __init__(self, steps: Steps, lines: Lines, folds: bool) -> None:
        self.steps, self.lines = steps, lines
        self._parents = steps.digest.parents
        self._folds = folds
        self.nodes: list[Node] = []
        self.threads: dict[str, list[int]] = {}
        self._before: dict[str, tuple[Path, list[int]]] = {}
        self._paths: dict[tuple[int, int], Path] = {}
        self._patterns: dict[tuple[int, tuple[int, ...]], Path] = {}
        self._chains: dict[int, tuple[int, ...]] = {-1: ()}
        self._depths: dict[int, tuple[int, ...]] = {-1: ()}
        self._assigned = bytearray(len(steps.events))

    def fill(self) -> None:
        """All steps of the trace, and what the other events assigned."""
        chosen = iter(self.steps.chosen)
        step = next(chosen, -1)
        for number in range(len(self.steps.events)):
            if number == step:
                self.add(step, self.steps.inside.get(step, 0))
                step = next(chosen, -1)
            else:
                self.note(number)

    def add(self, step: int, inside: int) -> None:
        """Put a step, with so many ops inside, under its lines."""
        events, at = self.steps.events, step
        while not events[at].stack and self._parents[at] >= 0:
            at = self._parents[at]  # what the autograd engine runs in a thread of its own
        thread = events[at].thread
        path = self._path(events[at].stack, self.steps.calls[at])
        before, nodes = self._before.get(thread, (Path([], {}), []))
        shared = len(path.items) if path is before else _shared(path.items, before.items)
        nodes = nodes[:shared]
        for item in path.items[shared:]:
            nodes.append(self._node(LINE if item >= 0 else CALL, item if item >= 0 else -1 - item, thread, nodes))
        self._before[thread] = (path, nodes)
        leaf = self._node(STEP, step, thread, nodes)
        spent = self.steps.digest.spent_ns[step]
        self.nodes[leaf].spent, self.nodes[leaf].size, self.nodes[leaf].inside = spent, 1, inside
        self._assign_around(step, path, nodes)

    def note(self, number: int) -> None:
        """Note what an event that is no step was assigned to, where its line is the one last shown.

        ``y = x.t().contiguous()``: the last call may have run no op, and still gives the line its value.
        """
        event = self.steps.events[number]
        before = self._before.get(event.thread)
        if before is None or self._assigned[number] or not event.target or not event.outputs:
            return
        path, (current, nodes) = self._path(event.stack, self.steps.calls[number]), before
        place = path.frames.get(len(event.stack) - 1)
        if place is not None and _shared(path.items, current.items) > place:
            self._assigned[number] = True
            self._assign(self.nodes[nodes[place]], event)

    def _node(self, kind: str, number: int, thread: str, above: Sequence[int]) -> int:
        siblings = self.nodes[above[-1]].children if above else self.threads.setdefault(thread, [])
        siblings.append(len(self.nodes))
        self.nodes.append(Node(kind, number, []))
        return len(self.nodes) - 1

    def _path(self, stack: tuple[Location, ...], call: int) -> Path:
        key = (id(stack), call)
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._make_path(stack, call)
        return found

    def _make_path(self, stack: tuple[Location, ...], call: int) -> Path:
        """The pattern of such a stack under calls that deep, with the calls themselves put in.

        A model that runs a hundred times goes down each stack a hundred times, each time in other calls.
        """
        calls = self._chain(call)
        key = (id(stack), self._depths[call])
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = self._make_pattern(stack, self._depths[call])
        return Path([item if item >= 0 else -1 - calls[-1 - item] for item in pattern.items], pattern.frames)

    def _make_pattern(self, stack: tuple[Location, ...], depths: Sequence[int]) -> Path:
        """Lines and calls, each call (by its place in the chain) before the first line inside of it.

        Where a line calls itself many levels deep, the way from it to itself is left out.
        """
        items: list[int] = []
        frames: list[int] = []
        first: dict[int, int] = {}
        called, lines, levels = 0, self.lines.lines, Counter[int]()
        for index, line in self.lines.of(stack):
            while called < len(depths) and depths[called] <= index:
                items.append(-1 - called)
                frames.append(-1)
                called, first, levels = called + 1, {}, Counter[int]()
            levels[line] += 1
            place = first.get(line) if self._folds and lines[line].levels > FEWEST_LEVELS else None
            if place is None:
                first[line] = len(items)
            else:
                lines[line].levels_as_one = max(lines[line].levels_as_one, levels[line])
                for left_out in items[place + 1 :]:
                    first.pop(left_out, None)
                del items[place:], frames[place:]
            items.append(line)
            frames.append(index)
        places = {index: place for place, index in enumerate(frames) if index >= 0}
        return Path([*items, *(-1 - each for each in range(called, len(depths)))], places)

    def _chain(self, call: int) -> tuple[int, ...]:
        """A call and those around it, outermost first."""
        todo: list[int] = []
        while call not in self._chains:
            todo.append(call)
            call = self.steps.calls[call]
        for each in reversed(todo):
            around = self.steps.calls[each]
            self._chains[each] = (*self._chains[around], each)
            self._depths[each] = (*self._depths[around], len(self.steps.events[each].stack))
        return self._chains[todo[0] if todo else call]

    def _assign_around(self, step: int, path: Path, nodes: Sequence[int]) -> None:
        """Note what a step and the calls around it were assigned to, at their lines; each call once."""
        at = step
        while at >= 0 and not self._assigned[at]:
            self._assigned[at] = True
            event = self.steps.events[at]
            place = path.frames.get(len(event.stack) - 1) if event.target and event.outputs else None
            if place is not None:
                self._assign(self.nodes[nodes[place]], event)
            at = self._parents[at]

    def _assign(self, node: Node, event: Event) -> None:
        node.assigned = node.assigned or {}
        values = node.assigned.setdefault(event.target, [])
        if not values or shapes(values[-1]) != shapes(event.outputs):
            values.append(event.outputs)


def _shared(items: Sequence[int], before: Sequence[int]) -> int:
    for at, (one, other) in enumerate(zip(items, before, strict=False)):
        if one != other:
            return at
    return min(len(items), len(before))


def shapes(values: Sequence[Value]) -> tuple[Key, ...]:
    """All that is shown of some tensors."""
    return tuple(map(shape_key, values))

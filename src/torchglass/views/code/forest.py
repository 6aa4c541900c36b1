"""The code view before it is folded: each step under its loops, lines and calls, in the order of the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from torchglass.events.types import Event, Location, Value
from torchglass.views.code.lines import FEWEST_LEVELS, Lines
from torchglass.views.code.steps import Steps
from torchglass.views.digest import relative_path, shape_key, split_index
from torchglass.views.fold import TOGETHER, Item
from torchglass.views.levels import CALL as SPAN_OF_CALL
from torchglass.views.levels import Level, Levels
from torchglass.views.options import CodeOptions
from torchglass.views.stacks import is_constructor, is_own

LINE, CALL, STEP, LOOP, ROUND, BACK = "line", "call", "step", "loop", "round", "back"
"""Kinds of nodes; the last is a function of the program that torch called."""


@dataclass(slots=True)
class Node:
    """A line in one call, a call of a module, a step, a loop, or one of its rounds."""

    kind: str
    number: int
    """Of the line; of the event; of the span."""
    children: list[int] = field(default_factory=list[int])
    assigned: dict[tuple[str, ...], list[tuple[Value, ...]]] | None = None
    spent: int = 0
    size: int = 0
    """Steps in it."""
    has_lines: bool = False
    """Lines of its own, not of the calls in it."""
    inside: int = 0
    """Of an optimizer's step: the ops in it that are not shown."""


MOST_PATHS = 1024


@dataclass(slots=True)
class _Path:
    """The nodes that lead to a step, as (kind, number), and which of them are frames."""

    items: list[tuple[str, int]]
    frames: dict[int, int]
    """Index of a frame → place among the items."""


class CodeForest:
    """Nodes in the order of the trace, each under its parent; steps that follow each other share their lines."""

    def __init__(self, steps: Steps, lines: Lines, folds: bool) -> None:
        self.steps, self.lines, self._folds = steps, lines, folds
        self.levels = Levels(steps.digest)
        self.nodes: list[Node] = []
        self.threads: dict[str, list[int]] = {}
        self._before: dict[str, tuple[_Path, list[int]]] = {}
        self._paths: dict[tuple[int, int, int], _Path] = {}
        self._assigned = bytearray(len(steps.events))
        self._names: dict[tuple[int, int], str] = {}
        self._keys: dict[int, Hashable] = {}

    # ------------------------------------------------------------ what folding asks

    def below(self, node: int) -> Sequence[int]:
        return self.nodes[node].children

    def key(self, node: int) -> Hashable:
        """What stands at one place of the code: equal in all rounds."""
        here = self.nodes[node]
        if here.kind == LINE:
            return (LINE, here.number)
        if here.kind in (LOOP, ROUND, BACK):
            span = self.levels.spans[here.number]
            return (here.kind, span.loop, span.place, span.function)
        event = self.steps.events[here.number]
        if here.kind == CALL:
            head, number = split_index(self.name(node))
            return (CALL, event.name, head, number is None, event.error)
        alike = self.steps.digest.alike[here.number]
        if event.kind == "unseen" and event.name == "gap":
            return (STEP, here.number)  # what is missing is never folded away
        if alike not in self._keys:
            self._keys[alike] = (
                STEP,
                event.kind,
                event.name,
                event.error,
                event.note,
                event.module if event.kind == "mark" else "",
            )
        return self._keys[alike]

    def merges(self, node: int) -> bool:
        return self.nodes[node].kind == BACK

    def line(self, node: int) -> int:
        here, span = self.nodes[node], self.span(node)
        if here.kind == LINE:
            return self.lines.lines[here.number].where.line
        at = self.steps.events[here.number].location if span is None else span.at
        return 0 if at is None else at.line

    def rounds(self, node: int) -> bool | None:
        span = self.span(node)
        return None if span is None else span.is_laid_over

    def span(self, node: int) -> Level | None:
        """The span of a loop or round."""
        here = self.nodes[node]
        return self.levels.spans[here.number] if here.kind in (LOOP, ROUND, BACK) else None

    def name(self, node: int) -> str:
        """The path of a call's module as seen from the call around it; an optimizer's ``AdamW.step``."""
        number, alike = self.nodes[node].number, self.steps.digest.alike
        event, around = self.steps.events[number], self.steps.calls[number]
        if event.kind == "step":
            return f"{event.name}.step"
        key = (alike[number], alike[around] if around >= 0 else -1)
        if key not in self._names:
            outer = self.steps.events[around] if around >= 0 else None
            self._names[key] = relative_path(event, outer if outer and outer.kind == "module" else None)
        return self._names[key]

    # ------------------------------------------------------------ filling

    def fill(self) -> None:
        """All steps of the trace, and what the other events assigned; then times and sizes."""
        chosen = iter(self.steps.chosen)
        step = next(chosen, -1)
        for number in range(len(self.steps.events)):
            if number == step:
                self._add(step)
                step = next(chosen, -1)
            else:
                self._note(number)
        for node in reversed(self.nodes):
            for child in node.children:
                inner = self.nodes[child]
                node.spent += inner.spent
                node.size += inner.size
                node.has_lines = node.has_lines or inner.kind == LINE or (inner.kind != CALL and inner.has_lines)

    def _add(self, step: int) -> None:
        """Put a step under its lines."""
        events, parents, at = self.steps.events, self.steps.digest.parents, step
        while not events[at].stack and parents[at] >= 0:
            at = parents[at]  # what the autograd engine runs in a thread of its own
        thread = events[at].thread
        path = self._path(at)
        before, nodes = self._before.get(thread, (_Path([], {}), []))
        shared = len(path.items) if path is before else _shared(path.items, before.items)
        nodes = nodes[:shared]
        for kind, number in path.items[shared:]:
            nodes.append(self._node(kind, number, thread, nodes))
        self._before[thread] = (path, nodes)
        leaf = self.nodes[self._node(STEP, step, thread, nodes)]
        leaf.spent, leaf.size = self.steps.digest.spent_ns[step], 1
        leaf.inside = self.steps.inside.get(step, 0)
        self._assign_around(step, path, nodes)

    def _note(self, number: int) -> None:
        """Note what an event that is no step was assigned to, where its line is the one last shown.

        ``y = x.t().contiguous()``: the last call may have run no op, and still gives the line its value.
        """
        event = self.steps.events[number]
        before = self._before.get(event.thread)
        if before is None or self._assigned[number] or not event.target or not event.outputs:
            return
        path, (current, nodes) = self._path(number), before
        place = path.frames.get(len(event.stack) - 1)
        if place is not None and _shared(path.items, current.items) > place:
            self._assigned[number] = True
            _assign(self.nodes[nodes[place]], event)

    def _node(self, kind: str, number: int, thread: str, above: Sequence[int]) -> int:
        siblings = self.nodes[above[-1]].children if above else self.threads.setdefault(thread, [])
        siblings.append(len(self.nodes))
        self.nodes.append(Node(kind, number))
        return len(self.nodes) - 1

    def _assign_around(self, step: int, path: _Path, nodes: Sequence[int]) -> None:
        """Note what a step and the calls around it were assigned to, at their lines; each call once."""
        at = step
        while at >= 0 and not self._assigned[at]:
            self._assigned[at] = True
            event = self.steps.events[at]
            place = path.frames.get(len(event.stack) - 1) if event.target and event.outputs else None
            if place is not None:
                _assign(self.nodes[nodes[place]], event)
            at = self.steps.digest.parents[at]

    # ------------------------------------------------------------ from a stack to a path

    def _path(self, event: int) -> _Path:
        stack, call, span = self.steps.events[event].stack, self.steps.calls[event], self._span_of(event)
        key = (id(stack), call, span)
        found = self._paths.get(key)
        if found is None:
            if len(self._paths) >= MOST_PATHS:
                self._paths.clear()  # those of earlier rounds do not come again
            found = self._paths[key] = self._make_path(stack, call, self.levels.by_frame(event, called_back=True))
        return found

    def _span_of(self, event: int) -> int:
        """The innermost span around an event, be it in the events around it."""
        while event >= 0:
            span = self.levels.span_of[event]
            if span >= 0:
                return span
            event = self.steps.digest.parents[event]
        return -1

    def _make_path(self, stack: tuple[Location, ...], call: int, rounds: dict[int, list[int]]) -> _Path:
        """Loops and lines of each frame, and each call before the first line inside of it.

        Where a line calls itself many levels deep, the way from it to itself is left out.
        """
        calls = self._chain(call)
        items: list[tuple[str, int]] = []
        frames: list[int] = []
        first: dict[int, int] = {}
        called, lines, levels = 0, self.lines.lines, Counter[int]()
        for index, line in self.lines.of(stack):
            while called < len(calls) and len(self.steps.events[calls[called]].stack) <= index:
                items.append((CALL, calls[called]))
                frames.append(-1)
                called, first, levels = called + 1, {}, Counter[int]()
            levels[line] += 1
            place = first.get(line) if self._folds and lines[line].levels > FEWEST_LEVELS else None
            if place is not None:
                lines[line].levels_as_one = max(lines[line].levels_as_one, levels[line])
                for left_out in items[place + 1 :]:
                    first.pop(left_out[1], None)
                del items[place:], frames[place:]
            for span in rounds.get(index, ()):
                kind = self.levels.spans[span].kind
                items.append((BACK if kind == SPAN_OF_CALL else kind, span))
                frames.append(-1)
            if place is None:
                first[line] = len(items)
            items.append((LINE, line))
            frames.append(index)
        places = {index: place for place, index in enumerate(frames) if index >= 0}
        return _Path([*items, *((CALL, each) for each in calls[called:])], places)

    def _chain(self, call: int) -> list[int]:
        """A call and those around it, outermost first."""
        found: list[int] = []
        while call >= 0:
            found.append(call)
            call = self.steps.calls[call]
        return found[::-1]

    # ------------------------------------------------------------ constructors
    # What those of modules do is no step of a computation: the line that builds one says how many there were.

    def hides_constructors(self, options: CodeOptions) -> bool:
        """Whether constructors stay closed: not where nothing else ran, nor where something failed or was asked for."""
        if options.constructors or not options.fold or options.only is not None:
            return False
        digest = self.steps.digest
        samples = [digest.samples[alike] for alike in {digest.alike[step] for step in self.steps.chosen}]
        ends_well = not any(event.error for event in samples)
        return ends_well and any(not any(is_constructor(at.function) for at in event.stack) for event in samples)

    def without_built(self, item: Item) -> tuple[list[Item], list[int]]:
        """What is in a line but constructors of modules, and how many steps those made, each time that it ran."""
        if self.nodes[item.nodes[0]].kind != LINE:
            return item.children, []
        others = [child for child in item.children if not self._is_in_constructor(_first(child))]
        if len(others) == len(item.children):
            return others, []
        below = [[child for child in self.below(node) if self._is_in_constructor(child)] for node in item.nodes]
        return others, [sum(self.nodes[child].size for child in each) for each in below]

    def _is_in_constructor(self, node: int) -> bool:
        """Whether a node is in the constructor of a module, and no module was called there."""
        first = node
        while self.nodes[first].kind not in (LINE, STEP, CALL):
            first = self.nodes[first].children[0]
        here = self.nodes[first]
        if here.kind == STEP:
            return self._is_in_torchs(here.number)
        if here.kind != LINE or not is_constructor(self.lines.lines[here.number].where.function):
            return False
        pending, is_module = [node], False
        while pending:
            each = self.nodes[pending.pop()]
            if each.kind == CALL:
                return False
            is_module = is_module or (each.kind == STEP and self.steps.events[each.number].owner is not None)
            pending += each.children
        return is_module

    def _is_in_torchs(self, step: int) -> bool:
        """Whether a step of the line itself is in the constructor of one of torch's modules: ``nn.Linear(4, 4)``."""
        digest = self.steps.digest
        event = digest.samples[digest.alike[step]]
        below = takewhile(lambda at: not is_own(at), reversed(event.stack))
        return event.owner is not None and any(is_constructor(at.function) for at in below)


def _first(item: Item) -> int:
    while item.nodes == [TOGETHER]:
        item = item.children[0]
    return item.nodes[0]


def _shared(items: Sequence[object], before: Sequence[object]) -> int:
    for at, (one, other) in enumerate(zip(items, before, strict=False)):
        if one != other:
            return at
    return min(len(items), len(before))


def _assign(node: Node, event: Event) -> None:
    node.assigned = node.assigned or {}
    values = node.assigned.setdefault(event.target, [])
    shapes = tuple(map(shape_key, event.outputs))
    if not any(tuple(map(shape_key, each)) == shapes for each in values):
        values.append(event.outputs)

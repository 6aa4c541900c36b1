"""Builds a tree of source lines: each event under the lines of its stack, in the calls and loops of the program tree.

Lines are not nodes of the program tree, because it is not always certain whether two events belong to one execution of
a line. Here consecutive events share the lines that their stacks have in common::

    event 0 with the stack  train.py:9, model.py:5         train.py:9
    event 1 with the stack  train.py:9, model.py:6   →       model.py:5
                                                               event 0
                                                             model.py:6
                                                               event 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torchglass.events.types import Event, Location, Value
from torchglass.program.dedup import ById, shape_key
from torchglass.program.fold import Foldable
from torchglass.program.frames import is_own
from torchglass.program.inner import nearest_around
from torchglass.program.paths import relative_path, split_index
from torchglass.program.program import Program
from torchglass.program.tree import CALL as TREE_CALL
from torchglass.program.tree import ProgramTree

MAX_LEVELS = 8
"""Recursion up to this depth is shown as it is. A line that calls itself deeper is shown once, with a count."""
RUNNERS = frozenset(["_pytest", "execnet", "IPython", "ipykernel", "pluggy", "unittest", "xdist"])
"""Packages that run other people's code. Their lines are not shown."""
MAX_PATHS = 1024
"""Entries of a cache, which is cleared when it is full. Paths of earlier iterations are not used again."""

LINE = "line"
CALL = "call"
"""A call of a module, or an optimizer's step."""
STEP = "step"
"""An event that the view shows as a row."""
LOOP = "loop"
ITERATION = "iteration"
CALLBACK = "callback"
"""A call of one of the program's functions by torch."""


@dataclass(slots=True)
class Line:
    """One line of code that is shown."""

    number: int
    """Equal for the same line."""
    where: Location
    """Its columns contain everything that was computed on the line."""
    levels: int = 1
    """How often the line is in one stack, at most: how deep it calls itself."""
    levels_as_one: int = 1
    """How many of these are shown as one, at most. Only those in the same call of a module are."""


class _ShownFrame(NamedTuple):
    """A frame of a stack that is shown."""

    frame: int
    """Its index in the stack."""
    line: int
    """The number of its line."""


class StackLines:
    """The lines of stacks, without the frames that are hidden."""

    def __init__(self, is_hidden: Callable[[Location], bool]) -> None:
        self._is_hidden = is_hidden
        self._numbers: dict[tuple[object, ...], int] = {}
        self._line = ById(self._number)
        self.frames_of = ById(self._shown_frames)
        """The frames of a stack that are shown, outermost first."""
        self.lines: list[Line] = []
        self.outer = 0
        """How many frames at the outer end belong to a test runner or a notebook."""

    def _shown_frames(self, stack: tuple[Location, ...]) -> list[_ShownFrame]:
        shown: list[_ShownFrame] = []
        for index in range(self.outer, len(stack)):
            at = stack[index]
            if not self._is_hidden(at):
                shown.append(_ShownFrame(index, self._line(at)))
        return shown

    def count_levels(self, stacks: Iterable[tuple[Location, ...]]) -> None:
        """Find out how deep each line calls itself."""
        for stack in {id(stack): stack for stack in stacks}.values():
            shown = self.frames_of(stack)
            if len(shown) > MAX_LEVELS:
                for number, levels in Counter([frame.line for frame in shown]).items():
                    self.lines[number].levels = max(self.lines[number].levels, levels)

    def leave_out_runner(self, stacks: Iterable[tuple[Location, ...]]) -> None:
        """Leave out the outer frames that all stacks share, up to the first frame in a file of the program.

        Frames of the program from which a test runner or a notebook was started are left out, too.
        """
        different = {id(stack): stack for stack in stacks if stack}
        common = _common_frames(list(different.values()))
        after_runner = 0
        for index, at in enumerate(common):
            if _is_runner(at):
                after_runner = index + 1
        self.outer = after_runner
        for index in range(after_runner, len(common)):
            if is_own(common[index]):
                self.outer = index
                break

    def _number(self, at: Location) -> int:
        """Return the number of the line at a place.

        Lines with different texts have different numbers: a file may have changed, and ``exec`` runs many texts.
        """
        key = (at.file, at.line, at.function, at.source)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.lines)
            self.lines.append(Line(number, at))
        line = self.lines[number]
        if line.where is not at:
            line.where = _union(line.where, at)
        return number


def _is_runner(at: Location) -> bool:
    return not RUNNERS.isdisjoint(at.file.replace("\\", "/").split("/"))


def _common_frames(stacks: Sequence[tuple[Location, ...]]) -> tuple[Location, ...]:
    """Return the frames that all stacks begin with."""
    if not stacks:
        return ()
    common = stacks[0]
    for stack in stacks[1:]:
        common = common[: len(stack)]
        for index, at in enumerate(common):
            if at.file != stack[index].file or at.line != stack[index].line:
                common = common[:index]
                break
    return common


def _union(one: Location, other: Location) -> Location:
    """Return the smallest place that contains two places on the same line."""
    end_line, end_col = max((one.end_line, one.end_col), (other.end_line, other.end_col))
    return replace(one, end_line=end_line, col=min(one.col, other.col), end_col=end_col)


# ---------------------------------------------------------------- events under lines


@dataclass(slots=True)
class LineNode:
    """A node of the tree of lines: a line in one call, or one of the other kinds above."""

    kind: str
    number: int
    """The number of a line; for other kinds, the node of the program tree."""
    children: list[int] = field(default_factory=list[int])
    assigned: dict[tuple[str, ...], list[tuple[Value, ...]]] | None = None
    """For a line, by names, the values that they were assigned; values of equal shapes are listed once."""
    spent: int = 0
    """How long the events in it took together, without those inside of others, in nanoseconds."""
    counted_around: int = 0
    """How much of that is also in another event in it, which is not around it in this tree."""
    size: int = 0
    """How many steps are in it."""
    has_lines: bool = False
    """Whether it has lines that are not inside another call."""


class _PathItem(NamedTuple):
    """A node on the way to a step; ``number`` as in ``LineNode``."""

    kind: str
    number: int


@dataclass(slots=True)
class _Path:
    """The nodes on the way to a step, outermost first."""

    items: list[_PathItem]
    line_of_frame: dict[int, int]
    """By the index of a frame in the stack, the index of its line among the items."""


class _PlacedPath(NamedTuple):
    """A path, and the node of each of its items."""

    path: _Path
    nodes: list[int]


class LineTree(Foldable):
    """The tree of lines: nodes in the order of the trace. It can be folded (``fold.Foldable``)."""

    def __init__(
        self,
        program: Program,
        events: Sequence[Event],
        calls: Sequence[int],
        lines: StackLines,
        folds: bool,
    ) -> None:
        """Begin an empty tree.

        ``events`` has a sample of each event. ``calls`` has by event the innermost call around it that has lines and
        steps in it (-1: none). With ``folds`` a line that calls itself many levels deep is shown once.
        """
        self.tree: ProgramTree = program.tree
        self._program = program
        self.nodes: list[LineNode] = []
        self.threads: dict[str, list[int]] = {}
        """By thread, its outermost nodes."""
        self._distinct = program.distinct
        self._events = events
        self._calls = calls
        self._lines = lines
        self._folds = folds
        self._previous: dict[str, _PlacedPath] = {}
        """By thread, the path of the last step."""
        self._paths: dict[tuple[int, int, int], _Path] = {}
        """By the ``id`` of a stack, the call and the scope around the event."""
        self._step_around: Sequence[int] = ()
        """By event, the nearest step around it; -1 if there is none."""
        self._containers: set[int] = set()
        """The steps that have events inside."""
        self._nodes_of_step: dict[int, list[int]] = {}
        """By step that has others inside, the nodes on the way to it."""
        self._timed_calls: set[int] = set()
        """The calls whose time was counted."""
        self._assigned = bytearray(len(events))
        self._names: dict[tuple[int, int], str] = {}
        self._keys: dict[int, Hashable] = {}

    # ------------------------------------------------------------ Foldable

    def children_of(self, node: int, /) -> Sequence[int]:
        return self.nodes[node].children

    def key(self, node: int, /) -> Hashable:
        """Return a key that is equal for nodes at one place of the code, in all iterations."""
        here = self.nodes[node]
        if here.kind == LINE:
            return (LINE, here.number)
        if here.kind in (LOOP, ITERATION, CALLBACK):
            site = self.tree.site(here.number)
            if here.kind == LOOP and site.loop is not None:
                # Not the place: the first event that was kept of a loop may be anywhere in it.
                return (LOOP, site.loop)
            return (here.kind, site.loop, site.place, site.function)
        if here.kind == CALL:
            event = self._events[here.number]
            head, number = split_index(self.name(node))
            return (CALL, event.name, head, number is None, event.error)
        return self._key_of_step(here.number)

    def _key_of_step(self, number: int) -> Hashable:
        event = self._events[number]
        if event.kind == "unseen" and event.name == "gap":
            # A gap is never folded.
            return (STEP, number)
        alike = self._distinct.alike[number]
        if alike not in self._keys:
            module = ""
            if event.kind == "mark":
                module = event.module
            self._keys[alike] = (STEP, event.kind, event.name, event.error, event.note, module)
        return self._keys[alike]

    def merges_neighbours(self, node: int, /) -> bool:
        return self.nodes[node].kind == CALLBACK

    def line(self, node: int, /) -> int:
        here = self.nodes[node]
        scope = self.scope(node)
        if here.kind == LINE:
            return self._lines.lines[here.number].where.line
        if scope < 0:
            at = self._events[here.number].location
        else:
            at = self.tree.site(scope).at
        if at is None:
            return 0
        return at.line

    def may_merge_iterations(self, node: int, /) -> bool | None:
        return self.tree.may_merge_iterations(self.scope(node))

    # ------------------------------------------------------------ one node

    def scope(self, node: int) -> int:
        """Return the call, loop or iteration of the program tree that a node is; -1 for other nodes."""
        here = self.nodes[node]
        if here.kind in (LOOP, ITERATION, CALLBACK):
            return here.number
        return -1

    def times_run(self, nodes: Sequence[int]) -> int | None:
        """Return how often the code of these nodes ran in all, with the events that were not kept.

        Return None if all were kept, or if the total is not known.
        """
        totals = self._program.totals
        if not totals.is_needed:
            return None
        return totals.of(self._steps_in(nodes[0]), len(nodes))

    def _steps_in(self, node: int) -> Iterator[int]:
        pending = [node]
        while pending:
            here = self.nodes[pending.pop()]
            if here.kind in (STEP, CALL):
                yield here.number
            pending.extend(here.children)

    def name(self, node: int) -> str:
        """Return the path of a call's module, relative to the call around it; ``AdamW.step`` for an optimizer."""
        number = self.nodes[node].number
        event = self._events[number]
        if event.kind == "step":
            return f"{event.name}.step"
        alike = self._distinct.alike
        around = self._calls[number]
        outer: Event | None = None
        outer_alike = -1
        if around >= 0:
            outer_alike = alike[around]
            if self._events[around].kind == "module":
                outer = self._events[around]
        key = (alike[number], outer_alike)
        if key not in self._names:
            self._names[key] = relative_path(event, outer)
        return self._names[key]

    def is_in_step(self, node: int) -> bool:
        """Return whether a step happened inside another one."""
        return self._step_around[self.nodes[node].number] >= 0

    def first_step(self, node: int) -> int:
        """Return the first step in a node."""
        while self.nodes[node].kind != STEP:
            node = self.nodes[node].children[0]
        return self.nodes[node].number

    # ------------------------------------------------------------ filling

    def add_steps(self, steps: Sequence[int]) -> None:
        """Add steps (events in order), and what the other events assigned. Then sum up times and sizes."""
        is_step = bytearray(len(self._events))
        for step in steps:
            is_step[step] = True
        self._step_around = nearest_around(self._distinct.parents, is_step)
        self._containers = set(self._step_around)
        remaining = iter(steps)
        step = next(remaining, -1)
        for number in range(len(self._events)):
            if number == step:
                self._add_step(step)
                step = next(remaining, -1)
            else:
                self._note_assignment(number)
        for node in reversed(self.nodes):
            for child in node.children:
                inner = self.nodes[child]
                if node.kind != CALL:
                    node.spent += inner.spent
                node.size += inner.size
                if inner.kind == LINE or (inner.kind != CALL and inner.has_lines):
                    node.has_lines = True
            node.spent -= node.counted_around

    def _add_step(self, step: int) -> None:
        """Put a step under its lines: below the nodes that it shares with the last step, and new ones for the rest."""
        events = self._events
        parents = self._distinct.parents
        # The autograd engine runs events in a thread of its own, without a stack. Use that of the backward call.
        caller = step
        while not events[caller].stack and parents[caller] >= 0:
            caller = parents[caller]
        thread = events[caller].thread
        path = self._path(caller)
        previous = self._previous.get(thread)
        if previous is None:
            nodes: list[int] = []
        elif path is previous.path:
            nodes = previous.nodes[:]
        else:
            nodes = previous.nodes[: _count_shared(path.items, previous.path.items)]
        for kind, number in path.items[len(nodes) :]:
            around = nodes[:]
            nodes.append(self._add_node(kind, number, thread, nodes))
            if kind == CALL and number not in self._timed_calls:
                self._timed_calls.add(number)
                self._add_time(self.nodes[nodes[-1]], around)
        self._previous[thread] = _PlacedPath(path, nodes)
        leaf = self.nodes[self._add_node(STEP, step, thread, nodes)]
        leaf.size = 1
        self._add_time(leaf, nodes)
        if step in self._containers:
            self._nodes_of_step[step] = nodes
        self._assign_around(step, path, nodes)

    def _add_time(self, node: LineNode, around: Sequence[int]) -> None:
        """Add the time of a step or a call; ``around`` are the nodes around it.

        If it is inside of a step, such as a custom ``backward`` in ``loss.backward()``, the lines around both have its
        time already.
        """
        node.spent = self._distinct.spent_ns[node.number]
        step = self._step_around[node.number]
        if step <= self._calls[node.number]:
            return
        common = [
            one
            for one, other in zip(around, self._nodes_of_step[step], strict=False)
            if one == other
        ]
        if common:
            self.nodes[common[-1]].counted_around += node.spent

    def _note_assignment(self, number: int) -> None:
        """Note what an event that is not a step was assigned to, if its line is on the path of the last step.

        In ``y = x.t().contiguous()`` the last call may run no op, and yet the line's value is its result.
        """
        event = self._events[number]
        previous = self._previous.get(event.thread)
        if previous is None or self._assigned[number] or not event.target or not event.outputs:
            return
        path = self._path(number)
        index = path.line_of_frame.get(len(event.stack) - 1)
        if index is not None and _count_shared(path.items, previous.path.items) > index:
            self._assigned[number] = True
            _assign(self.nodes[previous.nodes[index]], event)

    def _add_node(self, kind: str, number: int, thread: str, parents: Sequence[int]) -> int:
        """Add a node below the last of ``parents``, and return its index."""
        if parents:
            siblings = self.nodes[parents[-1]].children
        else:
            siblings = self.threads.setdefault(thread, [])
        siblings.append(len(self.nodes))
        self.nodes.append(LineNode(kind, number))
        return len(self.nodes) - 1

    def _assign_around(self, step: int, path: _Path, nodes: Sequence[int]) -> None:
        """Note at their lines what a step, and the calls around it, were assigned to. Each call is noted once."""
        number = step
        while number >= 0 and not self._assigned[number]:
            self._assigned[number] = True
            event = self._events[number]
            if event.target and event.outputs:
                index = path.line_of_frame.get(len(event.stack) - 1)
                if index is not None:
                    _assign(self.nodes[nodes[index]], event)
            number = self._distinct.parents[number]

    # ------------------------------------------------------------ from a stack to a path

    def _path(self, event: int) -> _Path:
        stack = self._events[event].stack
        call = self._calls[event]
        scope = self.tree.scope_around(event)
        key = (id(stack), call, scope)
        found = self._paths.get(key)
        if found is None:
            if len(self._paths) >= MAX_PATHS:
                self._paths.clear()
            found = self._make_path(stack, call, self.tree.by_frame(event, called_back=True))
            self._paths[key] = found
        return found

    def _make_path(
        self, stack: tuple[Location, ...], call: int, scopes: dict[int, list[int]]
    ) -> _Path:
        """Return the loops and lines of each frame, and each call before the first line in it.

        ``call`` is the innermost call around the event, ``scopes`` the loops and iterations by frame. If a line calls
        itself many levels deep, the items between two of its occurrences are left out.
        """
        calls = self._with_outer_calls(call)
        items: list[_PathItem] = []
        frame_of_item: list[int] = []
        first_of_line: dict[int, int] = {}
        levels: dict[int, int] = {}
        next_call = 0
        lines = self._lines.lines
        for index, line in self._lines.frames_of(stack):
            while next_call < len(calls) and len(self._events[calls[next_call]].stack) <= index:
                items.append(_PathItem(CALL, calls[next_call]))
                frame_of_item.append(-1)
                next_call += 1
                # Levels of recursion in different calls are not shown as one.
                first_of_line = {}
                levels = {}
            first: int | None = None
            if self._folds and lines[line].levels > MAX_LEVELS:
                levels[line] = levels.get(line, 0) + 1
                first = first_of_line.get(line)
            if first is not None:
                lines[line].levels_as_one = max(lines[line].levels_as_one, levels[line])
                for item in items[first + 1 :]:
                    first_of_line.pop(item.number, None)
                del items[first:]
                del frame_of_item[first:]
            for scope in scopes.get(index, ()):
                kind = self.tree.kind(scope)
                if kind == TREE_CALL:
                    kind = CALLBACK
                items.append(_PathItem(kind, scope))
                frame_of_item.append(-1)
            if first is None:
                first_of_line[line] = len(items)
            items.append(_PathItem(LINE, line))
            frame_of_item.append(index)
        items += [_PathItem(CALL, each) for each in calls[next_call:]]
        line_of_frame = {frame: item for item, frame in enumerate(frame_of_item) if frame >= 0}
        return _Path(items, line_of_frame)

    def _with_outer_calls(self, call: int) -> list[int]:
        """Return a call and those around it, outermost first."""
        calls: list[int] = []
        while call >= 0:
            calls.append(call)
            call = self._calls[call]
        return calls[::-1]


def _count_shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Return with how many equal items two sequences begin."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _assign(node: LineNode, event: Event) -> None:
    """Note at a line what an event was assigned to, unless values of these shapes are noted already."""
    if node.assigned is None:
        node.assigned = {}
    known = node.assigned.setdefault(event.target, [])
    shapes = _shapes_of(event.outputs)
    if not any(_shapes_of(values) == shapes for values in known):
        known.append(event.outputs)


def _shapes_of(values: Iterable[Value]) -> tuple[Hashable, ...]:
    return tuple(map(shape_key, values))

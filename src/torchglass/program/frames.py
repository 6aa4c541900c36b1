"""Reads recorded stacks: for each frame, the function and the place in its syntax tree, as far as they are known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torchglass.events.selection import is_installed
from torchglass.events.types import Event, Location
from torchglass.source.loops import Loops
from torchglass.source.places import Loop, Place
from torchglass.source.statements import Span

TRUTH = "Tensor.__bool__"
"""What a condition such as ``if x:`` calls. It has no call expression."""
_DECORATORS = frozenset("decorate_context decorate_autocast inner wrapper fn _fn".split())
"""Functions of torch and the standard library that only call the function that they decorate."""
_DECORATOR_FILE = "torch/utils/_contextlib.py"
"""A file with only such functions. From torch 2.15 on, the one of ``@torch.no_grad()`` is called ``no_grad``."""
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Comprehensions that run in a frame of their own: before Python 3.12 all, since then generator expressions only."""


def is_own(at: Location) -> bool:
    """Return whether a frame is in a file of the program itself: not torch's, not installed, not generated."""
    return at.origin == "user" and not is_installed(at.file)


def _is_decorator(at: Location) -> bool:
    """Return whether a frame of torch or the standard library only calls the function that it decorates."""
    if at.function.rpartition(".")[2] in _DECORATORS:
        return True
    return at.file.replace("\\", "/").endswith(_DECORATOR_FILE)


def is_constructor(function: str) -> bool:
    """Return whether a function is a constructor, such as ``Net.__init__``."""
    return function.rpartition(".")[2] == "__init__"


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One frame of a stack. Consecutive frames of torch and the standard library are one entry."""

    function: object
    """Equal for frames of one function or, of torch, for the same chain of functions."""
    place: Place | None
    """Where it is in the syntax tree of its file; None if that is not known."""
    at: Location
    is_opaque: bool
    """Whether it is in torch or the standard library."""
    caller: int
    """The index, among the entries, of the program's frame that called it; -1 if there is none."""
    index: int
    """The index of the frame in the whole stack. A comprehension has that of the frame around it."""
    is_start: bool = False
    """Whether it is at the beginning of its function, where the arguments are assigned."""


class EnteredLoop(NamedTuple):
    """A loop that a running frame is in, with the nodes of its execution and of the current iteration."""

    loop: Loop
    node: int
    iteration: int


@dataclass(slots=True, eq=False)
class RunningFrame:
    """A running frame, as far as its events show it."""

    entry: Entry
    place: Place | None
    base: int
    """The node of the call or, if it has none, the node around it."""
    call: int
    """The node of the call; -1 if it has none."""
    caller: RunningFrame | None = None
    """The frame of the program that called it; None if there is none."""
    caller_loop: int = -1
    """The innermost loop that the caller was in; -1 if there is none."""
    is_told_apart: bool = False
    """Whether there was an event in it that every call makes, outside of the loops in it."""
    is_called_once: bool = True
    """Whether one execution of the caller's instruction calls this function once, and not as often as it likes."""
    loops: list[EnteredLoop] = field(default_factory=list[EnteredLoop])
    """The loops of its function that it is in, outermost first."""
    counted_by: Place | None = None
    """The place of the first event in it that every call of its function makes. It proves the call itself, which is
    counted once, at the place of the call."""
    is_partial: bool = False
    """Whether it was running already when the first event after a gap happened, so events in it may be missing."""
    python_call: int = -1
    """The number that the recorder gave to this call if a followed variable changed in it; -1 if not known."""
    stored: set[Place] = field(default_factory=set[Place])
    """The places of assignments whose changes were reported in this iteration."""

    @property
    def node(self) -> int:
        """The innermost node: an iteration, or the call."""
        if self.loops:
            return self.loops[-1].iteration
        return self.base

    def note_change(self, entry: Entry) -> bool:
        """Note that a variable changed at a place in this frame; return whether the report comes late.

        A change is reported late if the frame has moved on since. ``sys.settrace`` reports whole lines, so all that a
        line stores is reported at its end. A second change of the same variable is in the next iteration instead.
        """
        if self.place is None or entry.place is None or self.place.function != entry.place.function:
            return False
        was_seen = entry.place in self.stored
        is_same_line = self.entry.at.line == entry.at.line
        self.stored.add(entry.place)
        return is_same_line and not was_seen and entry.place.order < self.place.order


class _CachedEntries(NamedTuple):
    """Entries, with the stacks that they were read from: keeping the stacks keeps their ids."""

    entries: list[Entry]
    stack: tuple[Location, ...]
    around: tuple[Location, ...]


class FrameReader:
    """Reads stacks, with the sources of a trace.

    A file has no places if its text may not be the one that ran.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._loops: dict[str, Loops | None] = {}
        self._inside: dict[tuple[int, int, bool, str], _CachedEntries] = {}
        """By the ``id`` of two stacks, and what else ``entries`` needs."""
        self._chains_of_torch: dict[tuple[Location, ...], int] = {}
        self._alone: dict[Place, Place] = {}
        """Cached results of ``_without_outer_loops``."""
        self._comparisons: dict[Place, list[Location]] = {}
        """By the place of ``a < b < c``, the comparisons seen there, in order. They share a range, not a location."""
        self._places: dict[tuple[Location, Location | None, bool, str], Place | None] = {}
        """Cached results of ``_find_place``. The stacks of a deep recursion share most of their frames."""

    def inside(self, event: Event, around: tuple[Location, ...]) -> list[Entry]:
        """Return the frames of an event that are not in ``around``, the stack of the event around it."""
        stores = event.operator == "[]=" or event.kind == "variable"
        callee = ""
        if event.kind == "call" or event.name == TRUTH:
            callee = event.name
        key = (id(event.stack), id(around), stores, callee)
        cached = self._inside.get(key)
        if cached is None:
            base = _count_shared(event.stack, around)
            entries = self.entries(event.stack, base, stores, callee)
            cached = _CachedEntries(entries, event.stack, around)
            self._inside[key] = cached
        return cached.entries

    def entries(
        self, stack: tuple[Location, ...], base: int, stores: bool, callee: str = ""
    ) -> list[Entry]:
        """Return the frames of a stack from ``base`` on, outermost first.

        ``callee`` is what the innermost frame calls; ``stores`` is whether it stores a value.
        """
        entries: list[Entry] = []
        opaque: list[Location] = []
        caller = -1
        for index in range(base, len(stack)):
            location = stack[index]
            if location.origin != "user":
                if not _is_decorator(location):
                    opaque.append(location)
                continue
            is_last = index + 1 == len(stack)
            if is_last:
                place = self._place(location, None, stores, callee)
            else:
                place = self._place(location, stack[index + 1], False, "")
            if opaque:
                entries.append(self._opaque_entry(opaque, caller, index))
                opaque = []
            if place is not None and place.chain and is_last and callee != TRUTH:
                place = self._comparison(place, location)
            frame_index = index
            if entries and self._is_inline(entries[-1], location, place):
                outer = entries.pop()
                caller = outer.caller
                frame_index = outer.index
            elif place is not None and location.function.endswith("<genexpr>"):
                place = self._without_outer_loops(place)
            entries.append(self._entry(location, place, caller, frame_index))
            caller = len(entries) - 1
        if opaque and entries:
            entries.append(self._opaque_entry(opaque, caller, len(stack) - 1))
        if caller >= 0:
            return entries
        return []

    def _entry(self, at: Location, place: Place | None, caller: int, index: int) -> Entry:
        """Return the entry of a frame of the program."""
        start = None
        if place is None:
            start = self._start(at)
        function: object = at.function
        if place is not None:
            function = place.function
        elif start is not None:
            function = start
        return Entry(
            (at.file, function),
            place,
            at,
            is_opaque=False,
            caller=caller,
            index=index,
            is_start=start is not None,
        )

    def _comparison(self, place: Place, at: Location) -> Place:
        """Return the place of one comparison of ``a < b < c``: the first one always runs first.

        They are numbered modulo their count, because Python compiles the condition of a loop twice.
        """
        loops = self._loops_of(at.file)
        if loops is None:
            return place
        seen = self._comparisons.setdefault(place, [])
        number = 0
        while number < len(seen) and seen[number] is not at:
            number += 1
        if number == len(seen):
            seen.append(at)
        return loops.comparison(place, number % len(place.chain))

    def _without_outer_loops(self, place: Place) -> Place | None:
        """Return a place in a generator expression without the loops around it, since it may be consumed elsewhere."""
        if place not in self._alone:
            first_loop = None
            for index, loop in enumerate(place.loops):
                if isinstance(loop.node, ast.GeneratorExp):
                    first_loop = index
            if first_loop is None:
                return None
            node = place.loops[first_loop].node
            first_part = max(index for index, (part, _) in enumerate(place.parts) if part is node)
            # It counts as a function of its own, with a number that no lambda or class in the same ``def`` has.
            number_of_def, _ = place.function
            function = (number_of_def, -node.lineno - 1000 * node.col_offset - 1)
            self._alone[place] = replace(
                place,
                function=function,
                loops=place.loops[first_loop:],
                parts=place.parts[first_part:],
                successions={},
            )
        return self._alone[place]

    def _opaque_entry(self, chain: list[Location], caller: int, index: int) -> Entry:
        """Return the entry of consecutive frames of torch or the standard library."""
        number = self._chains_of_torch.setdefault(tuple(chain), len(self._chains_of_torch))
        return Entry(number, None, chain[0], is_opaque=True, caller=caller, index=index)

    def _place(
        self, location: Location, called: Location | None, stores: bool, callee: str
    ) -> Place | None:
        key = location, called, stores, callee
        if key not in self._places:
            self._places[key] = self._find_place(*key)
        return self._places[key]

    def _find_place(
        self, location: Location, called: Location | None, stores: bool, callee: str
    ) -> Place | None:
        loops = self._loops_of(location.file)
        if loops is None or not location.end_col or not loops.is_proven(location):
            return None
        if called is not None:
            callee = called.function
        if called is not None and called.origin == "user":
            inner = self._loops_of(called.file)
            if inner is not None and inner.suspends(_range(called)):
                # The frame of a generator runs when an item is asked for, not when it is called.
                callee = "__next__"
        return loops.place(_range(location), callee, stores)

    def _start(self, at: Location) -> tuple[int, int] | None:
        """Return the start of a function if a frame is where its arguments are assigned; otherwise None.

        That is at the line of the ``def``, without columns.
        """
        loops = self._loops_of(at.file)
        if loops is None or at.end_col:
            return None
        return loops.start(at.line, at.function.rpartition(".")[2])

    def _loops_of(self, file: str) -> Loops | None:
        if file not in self._loops:
            text = self._sources.get(file)
            if text is None:
                self._loops[file] = None
            else:
                self._loops[file] = Loops.of(text)
        return self._loops[file]

    @staticmethod
    def _is_inline(before: Entry, at: Location, place: Place | None) -> bool:
        """Return whether a frame is that of a comprehension in the expression of the frame before."""
        if not at.function.endswith(_INLINE) or place is None or before.place is None:
            return False
        if before.place.function != place.function or before.at.file != at.file or not place.loops:
            return False
        # A generator expression that was made elsewhere is not part of the expression that consumes it.
        outer = before.at
        begins_inside = (outer.line, outer.col) <= (at.line, at.col)
        ends_inside = (at.end_line, at.end_col) <= (outer.end_line, outer.end_col)
        return begins_inside and ends_inside


def _count_shared(stack: tuple[Location, ...], around: tuple[Location, ...]) -> int:
    """Return with how many equal frames a stack and that of the event around it begin; 0 if the stack is too short."""
    if stack[: len(around)] == around:
        return len(around)
    for index, (one, other) in enumerate(zip(stack, around, strict=False)):
        if one != other:
            return index
    return 0


def _range(at: Location) -> Span:
    return Span(at.line, at.end_line, at.col, at.end_col)

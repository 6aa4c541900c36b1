"""The frames of a stack as far as they tell of levels: which function, and at which place of it among its loops."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchglass.events.selection import is_installed
from torchglass.events.types import Event, Location
from torchglass.source.loops import Loop, Loops, Place
from torchglass.source.statements import Span

TRUTH = "Tensor.__bool__"
"""What a condition calls: no expression of its own."""
_PASSES = frozenset("decorate_context decorate_autocast inner wrapper fn _fn".split())
"""Functions of torch and the standard library that only call another: decorators."""
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""What Python before 3.12 (and of a generator expression any) runs in a frame of its own."""


def is_own(at: Location) -> bool:
    """Whether a frame is in a file of the program itself: not torch's, not installed, not generated."""
    return at.origin == "user" and not is_installed(at.file)


def is_constructor(function: str) -> bool:
    """Whether what was called made an object: ``Net.__init__``."""
    return function.rpartition(".")[2] == "__init__"


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One frame of a stack, as far as it tells of levels; frames of torch in a row are one."""

    function: object
    """Equal for frames of one function, or of the same way through torch."""
    place: Place | None
    """None: nothing can be told of its rounds."""
    at: Location
    is_opaque: bool
    caller: int
    """The index of the frame of the program that called it; -1: none."""
    index: int
    """Its place in the whole stack; a comprehension is where the expression is that it is in."""
    is_start: bool = False
    """Whether it is where a call gets its arguments."""


@dataclass(slots=True, eq=False)
class RunningFrame:
    """A frame under way, as the events in it have told until now."""

    entry: Entry
    place: Place | None
    base: int
    """The span of the call, or the one around it."""
    call: int
    """The span of the call; -1: it has no level."""
    loops: list[tuple[Loop, int, int]] = field(default_factory=list[tuple[Loop, int, int]])
    """Loops that it is in, each with its span and that of its round."""
    is_certain: bool = False
    """Whether something happened in it that happens in every call."""

    told: set[Place] = field(default_factory=set[Place])
    """Where variables were stored that this round has told of."""

    @property
    def span(self) -> int:
        return self.loops[-1][2] if self.loops else self.base

    def is_told_late(self, entry: Entry) -> bool:
        """Whether a variable that changed earlier in this round is told of now; once more would be in the next round.

        ``sys.settrace`` tells of lines: of what one stores when all of it was done.
        """
        if self.place is None or entry.place is None or self.place.function != entry.place.function:
            return False
        is_told, is_here = entry.place in self.told, self.entry.at.line == entry.at.line
        self.told.add(entry.place)
        return is_here and not is_told and entry.place.order < self.place.order


class Stacks:
    """Places in the files of a trace; what is not proven to be the text that ran tells nothing."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._loops: dict[str, Loops | None] = {}
        self._inside: dict[tuple[int, int, bool, str], tuple[list[Entry], object, object]] = {}
        self._ways: dict[tuple[Location, ...], int] = {}
        self._alone: dict[Place, Place] = {}
        self._places: dict[tuple[Location, Location | None, bool, str], Place | None] = {}
        """By a frame and the one that it called: stacks of a recursion have the same ones a thousand times."""

    def inside(self, event: Event, around: tuple[Location, ...]) -> list[Entry]:
        """The frames inside of the event around one; known by the identity of the stacks, which are kept with them."""
        stores = event.operator == "[]=" or event.kind == "variable"
        callee = event.name if event.kind == "call" or event.name == TRUTH else ""
        key = (id(event.stack), id(around), stores, callee)
        found = self._inside.get(key)
        if found is None:
            base = len(around)
            if event.stack[:base] != around:
                pairs = zip(event.stack, around, strict=False)
                base = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
            found = self._inside[key] = (self.entries(event.stack, base, stores, callee), event.stack, around)
        return found[0]

    def entries(self, stack: tuple[Location, ...], base: int, stores: bool, callee: str = "") -> list[Entry]:
        """The frames of a stack from ``base`` on, outermost first; ``callee`` is what the innermost one calls."""
        found: list[Entry] = []
        opaque: list[Location] = []
        caller = -1
        for at in range(base, len(stack)):
            location = stack[at]
            if location.origin != "user":
                if location.function.rpartition(".")[2] not in _PASSES:
                    opaque.append(location)
                continue
            called = stack[at + 1] if at + 1 < len(stack) else None
            is_last = called is None
            place = self._place(location, called, stores and is_last, callee if is_last else "")
            if opaque:
                found.append(self._opaque(opaque, caller, at))
                opaque = []
            index = at
            if found and self._is_inline(found[-1], location, place):
                outer = found.pop()
                caller, index = outer.caller, outer.index
            elif place is not None and location.function.endswith("<genexpr>"):
                place = self._by_itself(place)
            start = self._start(location) if place is None else None
            function = (location.file, start or (location.function if place is None else place.function))
            found.append(Entry(function, place, location, False, caller, index, start is not None))
            caller = len(found) - 1
        if opaque and found:
            found.append(self._opaque(opaque, caller, len(stack) - 1))
        return found if caller >= 0 else []

    def _by_itself(self, place: Place) -> Place | None:
        """A place of a generator expression that runs elsewhere: what is around it there is not around it here."""
        if place not in self._alone:
            inner = [at for at, loop in enumerate(place.loops) if isinstance(loop.node, ast.GeneratorExp)]
            if not inner:
                return None
            node = place.loops[inner[-1]].node
            parts = [at for at, (each, _) in enumerate(place.parts) if each is node]
            function = (place.function[0], -node.lineno - 1000 * node.col_offset - 1)
            self._alone[place] = replace(
                place, function=function, loops=place.loops[inner[-1] :], parts=place.parts[parts[-1] :], next={}
            )
        return self._alone[place]

    def _opaque(self, way: list[Location], caller: int, at: int) -> Entry:
        number = self._ways.setdefault(tuple(way), len(self._ways))
        return Entry(number, None, way[0], True, caller, at)

    def _place(self, location: Location, called: Location | None, stores: bool, callee: str) -> Place | None:
        key = location, called, stores, callee
        if key not in self._places:
            self._places[key] = self._find_place(*key)
        return self._places[key]

    def _find_place(self, location: Location, called: Location | None, stores: bool, callee: str) -> Place | None:
        loops = self._loops_of(location.file)
        if loops is None or not location.end_col or not self._is_proven(loops, location):
            return None
        callee = called.function if called is not None else callee
        if called is not None and called.origin == "user":
            inner = self._loops_of(called.file)
            if inner is not None and inner.suspends(_range(called)):
                callee = "__next__"  # to call a generator runs nothing of it
        return loops.place(_range(location), callee, stores)

    def _start(self, at: Location) -> tuple[int, int] | None:
        """Arguments stand at the line of their ``def``, in no column."""
        loops = self._loops_of(at.file)
        if loops is None or at.end_col:
            return None
        return loops.start(at.line, at.function.rpartition(".")[2])

    def _loops_of(self, file: str) -> Loops | None:
        if file not in self._loops:
            text = self._sources.get(file)
            self._loops[file] = None if text is None else Loops.of(text)
        return self._loops[file]

    @staticmethod
    def _is_proven(loops: Loops, at: Location) -> bool:
        lines = loops.source.lines
        return 0 < at.line <= len(lines) and bool(at.source) and lines[at.line - 1].strip() == at.source

    @staticmethod
    def _is_inline(before: Entry, at: Location, place: Place | None) -> bool:
        """Whether a frame is that of a comprehension in the expression of the frame before."""
        if not at.function.endswith(_INLINE) or place is None or before.place is None:
            return False
        if before.place.function != place.function or before.at.file != at.file or not place.loops:
            return False
        # A generator that was made elsewhere runs where it is consumed, and is not part of that expression.
        outer = before.at
        return (outer.line, outer.col) <= (at.line, at.col) and (at.end_line, at.end_col) <= (
            outer.end_line,
            outer.end_col,
        )


def _range(at: Location) -> Span:
    return Span(at.line, at.end_line, at.col, at.end_col)

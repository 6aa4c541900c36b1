"""The edges of one level while its boxes are walked: who gave each value last, and where it goes in and out."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchglass.views.graph.values import Ids

BORDER = -1
"""As the end of an edge: the border of the box that holds it."""


@dataclass(slots=True)
class Edge:
    """One value on its way between two boxes, or a box and the border of the one around."""

    source: int
    """Which child; BORDER: it comes in; from -2 down: a value that nothing in the trace made (``Level.outside``)."""
    out: int
    """Which of the source's results; of the border which argument."""
    target: int
    """Which child; BORDER: it goes out."""
    into: int
    value: int
    """The value, in the first of the events that the boxes stand for."""
    times: int = 1
    """In how many of them."""
    is_back: bool = False
    """Whether it leads from one round to a later one, or to a box that stands before its source, or is it."""


@dataclass(slots=True)
class Outside:
    """Values that were there before, or were made out of sight."""

    value: int
    reader: int
    """The first event that takes it."""
    times: int = 1
    """How many of them one box takes."""
    is_unknown: bool = False
    """Whether events are missing that may have made it."""
    readers: list[int] = field(default_factory=list[int])
    """All events that take one of those that are drawn as this one."""


@dataclass(slots=True)
class BoxLevel:
    """What is directly in one box, or outermost."""

    edges: list[Edge] = field(default_factory=list[Edge])
    outside: list[Outside] = field(default_factory=list[Outside])
    takes: Ids = ()
    """What comes in through the border, in the first of the events."""
    gives: Ids = ()
    readers: list[int] = field(default_factory=list[int])
    """Of loops and calls, who first takes each: an event."""


Source = tuple[int, int, bool]
"""Which child, or BORDER, which of its results, and whether that was in an earlier round."""
Ports = dict[int, int]
"""Values with the places at which they go in or out."""


class Walk:
    """Who gave each value last, while the boxes of a level are walked."""

    def __init__(self, optimizers: set[int]) -> None:
        self.level = BoxLevel()
        self._optimizers = optimizers
        """The state of an optimizer, a few tensors for each parameter, goes in and out of loops as one."""
        self.last: dict[int, tuple[Source, ...]] = {}
        self._older: dict[int, tuple[Source, ...]] = {}
        """What earlier rounds gave."""
        self.border: Ports = {}
        """What comes in from around, and where."""
        self._edges: dict[tuple[int, int, bool, int, int], Edge] = {}
        self._counted: set[tuple[int, int, bool, int, int]] = set()
        self._ins: dict[tuple[int, int], int] = {}
        self._outs: dict[tuple[Source, ...], int] = {}
        self._outside: dict[tuple[int, int], int] = {}
        """By the first place that takes it: which of the values from outside."""
        self._from_outside: Ports = {}

    def begin(self, takes: Ports) -> None:
        """The next of the times that the box stands for; outermost there is only one."""
        self.last, self._older, self.border, self._from_outside = {}, {}, takes, {}
        self._counted.clear()

    def next_round(self) -> None:
        """What was given up to now is carried where it is taken from now on."""
        for value, sources in self.last.items():
            self._older[value] = tuple([(child, out, True) for child, out, _ in sources])
        self.last, self._from_outside = {}, {}
        self._counted.clear()

    def sources(self, value: int) -> tuple[Source, ...]:
        """Where a value comes from; what came in from around is not carried, whoever handed it on."""
        found = self.last.get(value)
        if found:
            return found
        if value in self.border:
            return ((BORDER, self.border[value], False),)
        return self._older.get(value, ())

    def made(self) -> dict[int, tuple[Source, ...]]:
        """All that was given in the box, by whom last."""
        return self._older | self.last

    def add(self, source: Source, target: int, into: int, value: int) -> None:
        child, out, is_carried = source
        is_back = target >= 0 and child >= 0 and (is_carried or child >= target)
        key = (child, out, is_back, target, into)
        edge = self._edges.get(key)
        if edge is None:
            edge = self._edges[key] = Edge(child, out, target, into, value, 0, is_back)
            self.level.edges.append(edge)
        if key not in self._counted:
            self._counted.add(key)
            edge.times += 1

    def enter(self, value: int, place: tuple[int, int], reader: int) -> Source:
        """A value that comes in from around; those that go to one place in different rounds come in at one."""
        key = (place[0], 0) if place[0] in self._optimizers else place
        port = self._ins.setdefault(key, len(self._ins))
        if port == len(self.level.takes):
            self.level.takes += (value,)
            self.level.readers.append(reader)
        self.border[value] = port
        return BORDER, port, False

    def leave(self, value: int, sources: tuple[Source, ...]) -> int:
        """Where a value goes out; those from one place in different rounds go out at one."""
        plain = tuple([(child, out, False) for child, out, _ in sources])
        key = tuple([(child, 0 if child in self._optimizers else out, False) for child, out, _ in sources])
        port = self._outs.setdefault(key, len(self._outs))
        if port == len(self.level.gives):
            self.level.gives += (value,)
        for source in plain:
            self.add(source, BORDER, port, value)
        return port

    def outside(self, value: int, place: tuple[int, int], outside: Outside) -> Source:
        """A value that nothing in the trace made; those that one place takes are drawn as one."""
        if value not in self._from_outside:
            number = self._from_outside[value] = self._outside.setdefault(place, len(self._outside))
            if number == len(self.level.outside):
                self.level.outside.append(outside)
            self.level.outside[number].readers.append(outside.reader)
        return -2 - self._from_outside[value], 0, False

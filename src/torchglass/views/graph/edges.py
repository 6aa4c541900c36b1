"""Collects the edges of one level of the graph while its boxes are walked in order.

A level is the inside of one box, or the outermost boxes. Its boxes are called children, and edges
refer to them by their index. For each value the walk knows which child gave it last. Values enter
and leave the level through numbered ports on its border.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.program.flow import Ids

BORDER = -1
"""Replaces the index of a child: the edge ends at the border of the surrounding box."""


def outside_source(index: int) -> int:
    """Return -2, -3 … for entry 0, 1 … of ``BoxLevel.outside`` as the source of an edge.

    It is its own inverse: it also returns the entry for such a source.
    """
    return -2 - index


@dataclass(slots=True)
class Edge:
    """A value that goes from one box to another, or between a box and the border of the surrounding
    box.
    """

    source: int
    """The index of the child that gives the value.

    BORDER: it enters through the border. Less: it is an entry of ``BoxLevel.outside``
    (``outside_source``).
    """
    out: int
    """Which result of the source, or which argument if the source is the border."""
    target: int
    """The index of the child that takes the value, or BORDER if the value leaves."""
    into: int
    """Which argument of the target, or which result if the target is the border."""
    value: int
    """The value in the first of the executions for which the boxes stand."""
    times: int = 1
    """In how many of these executions the edge occurs."""
    is_back: bool = False
    """Whether it goes from one iteration to a later one, or back to the source or to a box before
    it.
    """

    @property
    def outside(self) -> int:
        """Return which of ``BoxLevel.outside`` is the source. Only for a source below BORDER."""
        return outside_source(self.source)


@dataclass(slots=True)
class Outside:
    """A value that existed before the recording, or that no recorded event made."""

    value: int
    reader: int
    """The first event that takes the value."""
    times: int = 1
    """How many such values one box takes, if they are drawn as one."""
    is_unknown: bool = False
    """Whether events that may have made the value are missing."""
    readers: list[int] = field(default_factory=list[int])
    """All events that take one of the values that are drawn as this one."""


@dataclass(slots=True)
class BoxLevel:
    """The contents of one box, or the outermost level."""

    edges: list[Edge] = field(default_factory=list[Edge])
    outside: list[Outside] = field(default_factory=list[Outside])
    takes: Ids = ()
    """The values that enter through the border, in the first execution. The index is the number of
    the port.
    """
    gives: Ids = ()
    """The values that leave through the border, in the first execution."""
    readers: list[int] = field(default_factory=list[int])
    """For loops and calls: for each of ``takes`` the first event that takes it."""


class GivenBy(NamedTuple):
    """Where a value comes from."""

    child: int
    """The index of the child that gave it, or BORDER."""
    out: int
    """Which of its results."""
    is_carried: bool = False
    """Whether an earlier iteration gave it."""


class TakenBy(NamedTuple):
    """Where a value goes."""

    child: int
    into: int
    """Which of its arguments."""


class _EdgeKey(NamedTuple):
    """What is the same for edges that are drawn as one."""

    source: int
    out: int
    is_back: bool
    target: int
    into: int


Ports = dict[int, int]
"""Keyed by value: the port through which it enters or leaves."""


class Walk:
    """Builds the edges of a level while its boxes are walked."""

    def __init__(self, optimizers: set[int]) -> None:
        self.level = BoxLevel()
        self._optimizers = optimizers
        """The indices of children that are optimizers. All of an optimizer's state enters and
        leaves loops as one value.
        """
        self.last: dict[int, tuple[GivenBy, ...]] = {}
        """Keyed by value: the sources that gave it last, in this iteration."""
        self._older: dict[int, tuple[GivenBy, ...]] = {}
        """The same for earlier iterations."""
        self.border: Ports = {}
        """The values that enter through the border, with their ports."""
        self._edges: dict[_EdgeKey, Edge] = {}
        self._counted: set[_EdgeKey] = set()
        """The edges already counted in this execution or iteration."""
        self.together: dict[int, tuple[TakenBy, ...]] = {}
        """Keyed by entering value: all places that take it. Values share a port only if all their
        places are the same.
        """
        self._in_ports: dict[TakenBy | tuple[TakenBy, ...], int] = {}
        """Keyed by the places that take a value: the port through which it enters."""
        self._out_ports: dict[tuple[GivenBy, ...], int] = {}
        """Keyed by the sources of a value: the port through which it leaves."""
        self._outside: dict[TakenBy, int] = {}
        """Keyed by the first place that takes it: the index of a value in ``BoxLevel.outside``."""
        self._from_outside: Ports = {}

    def begin(self, takes: Ports) -> None:
        """Begin the next execution for which the box stands. The outermost level has only one."""
        self.last = {}
        self._older = {}
        self.border = takes
        self._from_outside = {}
        self._counted.clear()

    def next_round(self) -> None:
        """Begin the next iteration. Values given so far count as carried if they are taken from now
        on.
        """
        for value, sources in self.last.items():
            self._older[value] = tuple([GivenBy(each.child, each.out, True) for each in sources])
        self.last = {}
        self._from_outside = {}
        self._counted.clear()

    def sources(self, value: int) -> tuple[GivenBy, ...]:
        """Return where a value comes from. A value that entered through the border is never
        carried.
        """
        found = self.last.get(value)
        if found:
            return found
        if value in self.border:
            return (GivenBy(BORDER, self.border[value]),)
        return self._older.get(value, ())

    def made(self) -> dict[int, tuple[GivenBy, ...]]:
        """Return all values given in the box, each with the child that gave it last."""
        return self._older | self.last

    def add(self, source: GivenBy, target: int, into: int, value: int) -> None:
        """Add an edge, or count it if it is already known."""
        child, out, is_carried = source
        is_back = target >= 0 and child >= 0 and (is_carried or child >= target)
        key = _EdgeKey(child, out, is_back, target, into)
        edge = self._edges.get(key)
        if edge is None:
            edge = Edge(child, out, target, into, value, 0, is_back)
            self._edges[key] = edge
            self.level.edges.append(edge)
        if key not in self._counted:
            self._counted.add(key)
            edge.times += 1

    def enter(self, value: int, place: TakenBy, reader: int) -> GivenBy:
        """Let a value enter through the border. Values for the same place in different iterations
        share a port.
        """
        if place.child in self._optimizers:
            key = TakenBy(place.child, 0)
        else:
            key = self.together.get(value, place)
        port = self._in_ports.setdefault(key, len(self._in_ports))
        if port == len(self.level.takes):
            self.level.takes += (value,)
            self.level.readers.append(reader)
        self.border[value] = port
        return GivenBy(BORDER, port)

    def leave(self, value: int, sources: tuple[GivenBy, ...]) -> int:
        """Let a value leave through the border. Values from the same place in different iterations
        share a port.
        """
        key: list[GivenBy] = []
        for child, out, _ in sources:
            if child in self._optimizers:
                key.append(GivenBy(child, 0))
            else:
                key.append(GivenBy(child, out))
        port = self._out_ports.setdefault(tuple(key), len(self._out_ports))
        if port == len(self.level.gives):
            self.level.gives += (value,)
        for child, out, _ in sources:
            self.add(GivenBy(child, out), BORDER, port, value)
        return port

    def outside(self, value: int, place: TakenBy, outside: Outside) -> GivenBy:
        """Add a value that nothing in the trace made. Those that the same place takes are drawn as
        one.
        """
        if value not in self._from_outside:
            index = self._outside.setdefault(place, len(self._outside))
            self._from_outside[value] = index
            if index == len(self.level.outside):
                self.level.outside.append(outside)
            self.level.outside[index].readers.append(outside.reader)
        return GivenBy(outside_source(self._from_outside[value]), 0)

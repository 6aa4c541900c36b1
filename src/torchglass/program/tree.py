"""The program tree: what the program did, as threads, calls, loops, their iterations, and the events in them.

Nodes are numbers. The events come first, with their ids; all other nodes, the scopes, follow::

    node    kind        parent          for x in data:      # two iterations
    0       event       4                   x.exp()
    1       event       5
    2       thread      -1
    3       loop        2
    4, 5    iteration   3
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.source.places import Loop, Place

EVENT, THREAD, CALL, LOOP, ITERATION = "event", "thread", "call", "loop", "iteration"
_KINDS = (EVENT, THREAD, CALL, LOOP, ITERATION)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


class Count(NamedTuple):
    """How many iterations an execution of a loop had."""

    number: int
    at_least: bool
    """Whether it had this many or more."""
    at_most: bool
    """Whether it had this many or fewer. There are more than were seen if some iterations made no event, and fewer if
    several executions look like one because nothing tells them apart."""

    @property
    def exact(self) -> bool:
        """Whether it had just this many."""
        return self.at_least and self.at_most


ONCE = Count(1, at_least=True, at_most=True)


@dataclass(frozen=True, slots=True, eq=False)
class ScopeSite:
    """A place in the code where a call is made or a loop runs; all nodes of one place share it."""

    at: Location | None = None
    """Where the call is written, or a place in the loop."""
    place: Place | None = None
    """The same place in the syntax tree; None if it is not known."""
    function: str = ""
    """For a call, the qualified name of what is called."""
    is_own: bool = False
    """For a call, whether what is called is in a file of the program itself."""
    is_called_back: bool = False
    """For a call, whether torch or the standard library makes it: they call a function that the program gave them."""
    loop: Loop | None = None
    """For a loop, what the source says of it."""


NOWHERE = ScopeSite()
"""The site of threads and iterations."""


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One execution of a loop."""

    count: Count
    begun: int
    """How many iterations began. The last one may be only the step that found no further item."""
    is_over_layers: bool
    """Whether its iterations call different modules: each iteration is a layer."""
    is_uncounted: bool
    """Whether its iterations cannot be told apart. A loop inside it then counts the iterations of both."""
    outer: int
    """The loop just around it, in the same call or in one of its callers; -1 if there is none."""
    not_kept: int = 0
    """How many iterations are counted although all their events were dropped."""


class ProgramTree:
    """The program tree.

    An event is in the innermost loop of its own call of a function or module, or directly in that call. A call that
    was recorded as an event has no other node.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self.events = len(parents)
        """How many events there are. Nodes from this number on are scopes."""
        self.parent = array("q", parents)
        """By node, the node around it; -1 for a thread."""
        self.threads: dict[str, int] = {}
        """By name, the node of each thread that has events without a parent."""
        self.loops: dict[int, LoopRun] = {}
        """By node, what is known of each loop."""
        self.cut: set[tuple[int, int]] = set()
        """The iterations of which some events were dropped: the loop, and the number of the iteration."""
        self._kinds = bytearray()
        self._first = array("q")
        self._sites: list[ScopeSite] = [NOWHERE]
        self._site = array("q")
        self._number = array("q")
        self._frame = array("q")

    def __len__(self) -> int:
        return len(self.parent)

    # ------------------------------------------------------------ one node

    def kind(self, node: int) -> str:
        """Return ``event``, ``thread``, ``call``, ``loop`` or ``iteration``."""
        if node < self.events:
            return EVENT
        return _KINDS[self._kinds[node - self.events]]

    def is_event(self, node: int) -> bool:
        return node < self.events

    def site(self, node: int) -> ScopeSite:
        """Return where a call or a loop is written; ``NOWHERE`` for other nodes."""
        if node >= self.events:
            return self._sites[self._site[node - self.events]]
        return NOWHERE

    def first(self, node: int) -> int:
        """Return the first event in a node: an event itself."""
        if node < self.events:
            return node
        return self._first[node - self.events]

    def last(self, node: int) -> int:
        """Return the last event in a node."""
        return self._last[node]

    def count(self, node: int) -> Count:
        """Return how many iterations a loop had; 1 for other nodes."""
        run = self.loops.get(node)
        if run is None:
            return ONCE
        return run.count

    def number(self, node: int) -> int:
        """Return the index of an iteration in its loop, from 0; 0 for other nodes."""
        if node >= self.events:
            return self._number[node - self.events]
        return 0

    def frame(self, node: int) -> int:
        """Return the index of the frame of a call, loop or iteration in the stacks of the events in it."""
        return self._frame[node - self.events]

    def may_merge_iterations(self, node: int) -> bool | None:
        """Return whether the iterations of a loop may be shown as one; False if they are layers, None for no loop."""
        run = self.loops.get(node)
        if run is None:
            return None
        return not run.is_over_layers

    # ------------------------------------------------------------ around and below

    def around(self, node: int) -> Iterator[int]:
        """Yield the nodes around a node, innermost first; the last is a thread."""
        node = self.parent[node]
        while node >= 0:
            yield node
            node = self.parent[node]

    def scopes(self, node: int) -> Iterator[int]:
        """Yield the calls, loops and iterations between a node and the nearest event around it, innermost first."""
        node = self.parent[node]
        while node >= self.events and self.parent[node] >= 0:
            yield node
            node = self.parent[node]

    def scope_around(self, node: int) -> int:
        """Return the innermost call, loop, iteration or thread around a node, also beyond the events around it."""
        node = self.parent[node]
        while 0 <= node < self.events:
            node = self.parent[node]
        return node

    def iterations(self, node: int) -> list[int]:
        """Return the iterations that a node is in, outermost first."""
        return [each for each in self.around(node) if self.kind(each) == ITERATION][::-1]

    def call(self, node: int) -> int:
        """Return the nearest event or call around a node; if there is none, its thread."""
        return next(each for each in self.around(node) if self.kind(each) in (EVENT, CALL, THREAD))

    def children(self, node: int) -> Sequence[int]:
        """Return the nodes directly in a node, in order."""
        return self._children.get(node, ())

    def by_frame(self, node: int, called_back: bool = False) -> dict[int, list[int]]:
        """Return the loops and iterations around a node, outermost first, by the index of the frame that they are in.

        With ``called_back``, also return the calls that torch or the standard library made.
        """
        by_frame: dict[int, list[int]] = {}
        kinds = (_CODES[LOOP], _CODES[ITERATION])
        for outer in self.around(node):
            index = outer - self.events
            if index < 0:
                continue
            is_in_loop = self._kinds[index] in kinds
            if is_in_loop or (called_back and self._sites[self._site[index]].is_called_back):
                by_frame.setdefault(self._frame[index], []).append(outer)
        for scopes in by_frame.values():
            scopes.reverse()
        return by_frame

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                children.setdefault(parent, []).append(node)
        for nodes in children.values():
            # A scope comes where its first event is, before that event.
            nodes.sort(key=lambda node: (self.first(node), node < self.events, node))
        return children

    @cached_property
    def _last(self) -> array[int]:
        last = array("q", range(self.events)) + array("q", [-1]) * (len(self) - self.events)
        for event in range(self.events - 1, -1, -1):
            end = last[event]
            for node in self.around(event):
                if last[node] >= end:
                    break
                last[node] = end
        return last

    # ------------------------------------------------------------ building

    def add(
        self, kind: str, parent: int, first: int, site: int = 0, frame: int = -1, number: int = 0
    ) -> int:
        """Add a thread, call, loop or iteration, and return its number."""
        self.parent.append(parent)
        self._kinds.append(_CODES[kind])
        self._first.append(first)
        self._site.append(site)
        self._frame.append(frame)
        self._number.append(number)
        return len(self.parent) - 1

    def add_site(self, site: ScopeSite) -> int:
        """Add a place in the code, and return its number."""
        self._sites.append(site)
        return len(self._sites) - 1

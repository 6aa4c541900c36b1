"""The part of the program tree that a view shows: a tree of the chosen nodes, ready to fold.

A view chooses events. Each comes under the nearest chosen event around it, and the calls, loops and iterations
between the two are added with it::

    forward            forward          chosen: the events forward and relu,
      for loop           for loop       and of scopes the loops
        iteration          relu
          relu
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from torchglass.events.types import Event
from torchglass.program.fold import Foldable
from torchglass.program.inner import nearest_around
from torchglass.program.program import Program


class ShownNodes(Foldable):
    """The nodes of the program tree that a view shows. It can be folded (``fold.Foldable``)."""

    def __init__(self, program: Program) -> None:
        self.tree = program.tree
        self._program = program
        self.distinct = program.distinct
        self.events = program.distinct.events()
        """For each event one that is alike."""
        self.looks = program.distinct.looks()
        """For each event a number that is equal for events that look the same."""
        self.children: dict[int, list[int]] = {}
        """By node, the shown nodes directly in it."""
        self.threads: dict[str, list[int]] = {}
        """By thread, its outermost shown nodes."""
        self._scopes_added: set[int] = set()

    def add_events(
        self,
        chosen: Sequence[int],
        scope_kinds: Container[str],
        stops_at: Callable[[Event], bool],
    ) -> None:
        """Add events in order, each under the nearest chosen event around it in its thread.

        Also add the calls, loops and iterations around each event whose kind is in ``scope_kinds``, up to the nearest
        event for which ``stops_at`` is true. That event need not be chosen.
        """
        is_chosen = bytearray(len(self.events))
        for event in chosen:
            is_chosen[event] = True
        parents = nearest_around(self.distinct.parents, is_chosen)
        for event in chosen:
            thread = self.events[event].thread
            parent = parents[event]
            if parent >= 0 and self.events[parent].thread != thread:
                parent = -1
            scopes = self._scopes_up_to(event, scope_kinds, stops_at)
            innermost = self.add_scopes(scopes, parent, thread)
            self.shown_in(innermost, thread).append(event)

    def _scopes_up_to(
        self, event: int, kinds: Container[str], stops_at: Callable[[Event], bool]
    ) -> Iterator[int]:
        """Yield the scopes of some kinds around an event, innermost first."""
        for node in self.tree.around(event):
            if self.tree.is_event(node):
                if stops_at(self.events[node]):
                    return
            elif self.tree.kind(node) in kinds:
                yield node

    def add_scopes(self, scopes: Iterable[int], parent: int, thread: str) -> int:
        """Add calls, loops and iterations (given innermost first) under ``parent``, and return the innermost.

        With ``parent`` -1 the outermost of them has no node around it. Scopes that were added before stay in place.
        """
        new: list[int] = []
        for scope in scopes:
            if scope in self._scopes_added:
                parent = scope
                break
            new.append(scope)
        for scope in reversed(new):
            self._scopes_added.add(scope)
            self.shown_in(parent, thread).append(scope)
            parent = scope
        return parent

    def has_scope(self, scope: int) -> bool:
        """Return whether a call, loop or iteration was added."""
        return scope in self._scopes_added

    def shown_in(self, parent: int, thread: str) -> list[int]:
        """Return the list of nodes directly in a node (-1: the outermost of a thread), to which more can be added."""
        if parent >= 0:
            return self.children.setdefault(parent, [])
        return self.threads.setdefault(thread, [])

    def scope(self, node: int) -> int:
        """Return the node itself if it is a call, loop or iteration; -1 for an event."""
        if self.tree.is_event(node):
            return -1
        return node

    def times_run(self, nodes: Sequence[int]) -> int | None:
        """Return how often the code of these nodes ran in all, with the events that were not kept.

        Return None if all were kept, or if the total is not known.
        """
        totals = self._program.totals
        if not totals.is_needed:
            return None
        return totals.of(self._events_in(nodes[0]), len(nodes))

    def _events_in(self, node: int) -> Iterator[int]:
        pending = [node]
        while pending:
            inner = pending.pop()
            if self.tree.is_event(inner):
                yield inner
            pending.extend(self.children_of(inner))

    # ------------------------------------------------------------ Foldable

    def children_of(self, node: int, /) -> Sequence[int]:
        return self.children.get(node, ())

    def line(self, node: int, /) -> int:
        if self.tree.is_event(node):
            at = self.events[node].location
        else:
            at = self.tree.site(node).at
        if at is None:
            return 0
        return at.line

    def may_merge_iterations(self, node: int, /) -> bool | None:
        return self.tree.may_merge_iterations(node)

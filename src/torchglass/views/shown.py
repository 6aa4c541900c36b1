"""Chooses the events that have rows in the tree and boxes in the data flow, with the scopes around them.

An event without a row is *hidden* in the node around it, which counts it::

    model(x)                  a row
      self.fc(x)              a row: a leaf module of torch.nn
        F.linear(…)           hidden in self.fc(x): torch's own (inner=True shows it)

More words of this file:

- The *anchor* of an event is the node whose row represents it: the event itself, or the node that it is hidden in.
- A *closed* call is shown as one line, with everything inside it hidden: a constructor, for example.
- A *helper* is an event that torch made in an expression of its own; helpers of one expression share a row.

``_fill`` decides for each event whether it is shown, hidden or left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.program.dedup import Key
from torchglass.program.fold import Item
from torchglass.program.frames import is_constructor, is_own
from torchglass.program.inner import Nesting, is_inner_at, is_torch_helper, nesting
from torchglass.program.program import Program
from torchglass.program.shown import ShownNodes
from torchglass.program.tree import CALL, LOOP
from torchglass.views.options import GraphOptions


class ShownEvents(ShownNodes):
    """The events that are shown and the scopes around them, and how many events are hidden in each."""

    def __init__(self, program: Program, options: GraphOptions, has_scopes: bool = True) -> None:
        super().__init__(program)
        self._options = options
        self._has_scopes = has_scopes
        self._parents = program.distinct.parents
        self.nest: Nesting = nesting(self.events, self._parents)
        self.inside: dict[int, int] = {}
        """By node, how many events are hidden in it."""
        self.helpers: dict[int, list[int]] = {}
        """By the first of them, the events that torch made in an expression that was not recorded as an event.

        They share one row."""
        self.notes: dict[int, str] = {}
        """By node, the first note of an event that is hidden in it."""
        self.left_out = 0
        """How many events are neither shown nor hidden in a node."""
        self.in_cut_iterations = 0
        """How many events are in iterations of which only a part was kept, or are gaps. They are not shown."""
        self.anchors: list[int] = []
        """By event, the node that stands for it: itself, or the one that it is hidden in; -1 if there is none."""
        self._keys: dict[int, Hashable] = {}
        self._closed_by: dict[int, int] = {}
        matched = None
        if options.only is not None:
            matched = self.distinct.matching(options.only)
        self._fill(matched)

    # ------------------------------------------------------------ Foldable

    def key(self, node: int, /) -> Hashable:
        """Return a key for what happened and where in the code, which is equal in all iterations."""
        if not self.tree.is_event(node):
            kind = self.tree.kind(node)
            site = self.tree.site(node)
            if kind == LOOP and site.loop is not None:
                # Not the place: the first event that was kept of a loop may be anywhere in it.
                return (kind, site.loop)
            return (kind, site.place or site.at, site.function, site.loop)
        alike = self.distinct.alike[node]
        found = self._keys.get(alike)
        if found is None:
            found = self._keys[alike] = self._event_key(self.distinct.samples[alike])
        if self.is_gap(node):
            return (found, node)
        return found

    def merges_neighbours(self, node: int, /) -> bool:
        if not self.tree.is_event(node):
            return self.tree.kind(node) == CALL
        return self.events[node].kind in ("function", "op", "step", CALL)

    def home(self, event: int) -> int:
        """Return the innermost shown scope around an event or, if there is none, its anchor."""
        for scope in self._scopes(event):
            if self.has_scope(scope):
                return scope
        return self.anchors[event]

    def _scopes(self, node: int) -> Iterable[int]:
        """Return the calls, loops and iterations between a node and the event around it, innermost first."""
        if self._has_scopes:
            return self.tree.scopes(node)
        return ()

    def is_gap(self, node: int) -> bool:
        """Return whether an event stands for dropped events. It is never folded."""
        return self.events[node].kind == "unseen" and self.events[node].name == "gap"

    def without_outermost(self, items: list[Item]) -> list[Item]:
        """Leave out a call that contains everything else: it only ran the program."""
        while len(items) == 1 and len(items[0].nodes) == 1:
            node = items[0].nodes[0]
            is_empty = node in self.inside or not self.children_of(node)
            if self.tree.is_event(node) or (self.is_closed(node) and is_empty):
                break
            if self.tree.kind(node) == LOOP and len(self.children_of(node)) > 1:
                break
            items = items[0].children
        return items

    @staticmethod
    def _event_key(event: Event) -> Key:
        """Return the key of an event: its place; for a layer that torch calls (in a Sequential …), its path."""
        layer = None
        if event.kind == "module" and not event.direct:
            layer = (event.root, event.module)
        inner = None
        if event.stack:
            inner = event.stack[-1]
        state = event.error, event.end_ns is None
        return (event.kind, event.name, event.location, inner, event.operator, layer, state)

    # ------------------------------------------------------------ what is shown

    def _fill(self, matched: bytearray | None) -> None:
        """Show, hide or leave out each event. ``matched`` has by event whether ``only=`` selects it."""
        kept = None
        if matched is not None:
            kept = _with_ancestors(self._parents, matched)
        only = self._options.only
        by_name = None
        if only is not None and only.names_calls:
            by_name = matched
        treatments: dict[tuple[int, int, bool], _Treatment] = {}
        """By the samples of an event and its parent, and whether the parent calls modules."""
        alike = self.distinct.alike
        containers = self.nest.containers
        anchors = self.anchors
        is_partial = self._program.left_out
        for event, parent in enumerate(self._parents):
            anchor = -1
            if parent >= 0:
                anchor = anchors[parent]
            key = (alike[event], alike[parent] if parent >= 0 else -1, parent in containers)
            treatment = treatments.get(key)
            if treatment is None:
                treatment = _Treatment(
                    self._is_hidden(event, parent), self._is_helper(event, parent)
                )
                treatments[key] = treatment
            closed = self._closed(event)
            is_selected_by_name = by_name is not None and by_name[event]
            if kept is not None and not kept[event]:
                self.left_out += 1
            elif is_partial[event]:
                self.in_cut_iterations += 1
            elif self._is_closed_anchor(anchor):
                self._hide(event, anchor)
            elif closed >= 0:
                scopes = [closed, *self._scopes(closed)]
                anchor = self.add_scopes(scopes, anchor, self.events[event].thread)
                self._hide(event, anchor)
            elif treatment.is_hidden and not is_selected_by_name:
                self._hide(event, anchor)
            else:
                anchor = self._show(event, anchor, treatment.is_helper)
            anchors.append(anchor)

    def _is_closed_anchor(self, anchor: int) -> bool:
        """Return whether everything in a node is hidden: it is a call that is shown as one line."""
        if anchor >= len(self.events):
            return True
        return anchor >= 0 and self.is_made_in(anchor)

    def _is_hidden(self, at: int, parent: int) -> bool:
        if not self._options.functions and self.events[at].kind in ("function", "op"):
            return True
        return not self._options.inner and is_inner_at(self.events, self.nest, at, parent)

    def _is_helper(self, at: int, parent: int) -> bool:
        """Return whether torch made an event in an expression that was not recorded as an event."""
        around = None
        if parent >= 0:
            around = self.events[parent]
        return not self._options.inner and is_torch_helper(self.events[at], around)

    def _closed(self, at: int) -> int:
        """Return the outermost call between an event and its parent that is shown as one line; -1 if there is none.

        That is a constructor, or code of an installed package that torch called (a data set's). A call of an installed
        package that runs the program, such as a test runner's, is not.
        """
        parent = self.tree.parent[at]
        closed = self._closed_by.get(parent)
        if closed is None:
            closed = self._closed_by[parent] = self._outermost_closed(self._scopes(at))
        if closed >= 0 and not is_constructor(self.tree.site(closed).function):
            location = self.events[at].location
            if location is not None and is_own(location):
                return -1
        return closed

    def _outermost_closed(self, scopes: Iterable[int]) -> int:
        outermost = -1
        contains_own = False
        for scope in scopes:
            site = self.tree.site(scope)
            if self.is_closed(scope) and (not contains_own or is_constructor(site.function)):
                outermost = scope
            contains_own = contains_own or site.is_own
        return outermost

    def is_made_in(self, at: int) -> bool:
        """Return whether an event is the call of a constructor that is shown as one line."""
        event = self.events[at]
        return event.kind == CALL and is_constructor(event.name) and not self._options.constructors

    def is_closed(self, node: int) -> bool:
        """Return whether a scope is a call that is shown as one line."""
        if self.tree.kind(node) != CALL:
            return False
        site = self.tree.site(node)
        if is_constructor(site.function):
            return not self._options.constructors
        return site.is_called_back and not site.is_own and not self._options.inner

    def _show(self, event: int, anchor: int, is_helper: bool) -> int:
        """Show an event in its scopes below its anchor, and return the node that stands for it.

        A helper in the same expression as the helper before it shares that one's row.
        """
        # What the autograd engine runs in a thread of its own has the anchor of the backward call.
        thread = self.events[event].thread
        parent = self.tree.parent[event]
        if self.has_scope(parent):
            anchor = parent
        else:
            anchor = self.add_scopes(self._scopes(event), anchor, thread)
        siblings = self.shown_in(anchor, thread)
        if is_helper:
            previous = -1
            if siblings:
                previous = siblings[-1]
            if previous in self.helpers and self._is_one_expression(previous, event):
                self.helpers[previous].append(event)
                self._hide(event, previous)
                return previous
            self.helpers[event] = [event]
        siblings.append(event)
        return event

    def _is_one_expression(self, first: int, other: int) -> bool:
        """Return whether two helpers were called by one expression."""
        one = self.events[first]
        two = self.events[other]
        return (
            one.location == two.location
            and self._parents[first] == self._parents[other]
            and not two.error
        )

    def _hide(self, event: int, anchor: int) -> None:
        """Hide an event in a node; without one (-1) it is left out."""
        if anchor < 0:
            self.left_out += 1
            return
        self.inside[anchor] = self.inside.get(anchor, 0) + 1
        note = self.events[event].note
        if note:
            self.notes.setdefault(anchor, note)


class _Treatment(NamedTuple):
    """How events that are alike are shown."""

    is_hidden: bool
    is_helper: bool


def _with_ancestors(parents: Sequence[int], matched: bytearray) -> bytearray:
    """Return by event whether it, or an event in it, is selected."""
    kept = bytearray(matched)
    for at in range(len(parents) - 1, -1, -1):
        if kept[at] and parents[at] >= 0:
            kept[parents[at]] = True
    return kept

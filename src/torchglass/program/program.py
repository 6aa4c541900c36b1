"""The program that a trace recorded: its events, tree and data flow, each found once, when first asked for."""

# Private members of a trace are hidden from users, not from the views and answers that read it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

from torchglass.events.tables import Tables
from torchglass.events.types import Event, Location
from torchglass.program.build import build_tree
from torchglass.program.dedup import DistinctEvents, EventSource, TableEvents
from torchglass.program.edges import partial_iterations
from torchglass.program.flow import DataFlow, data_flow
from torchglass.program.frames import is_own
from torchglass.program.inner import called_by_torch
from torchglass.program.modules import ModuleTree
from torchglass.program.recorded import Recorded
from torchglass.program.totals import Totals
from torchglass.program.tree import ProgramTree
from torchglass.source.loops import Loops
from torchglass.source.statements import Statement

_Made = TypeVar("_Made")
_TRAINING = re.compile(r"\btraining=(True|False)\b")


class Program:
    """The program that a trace recorded, as views and answers read it."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self.event: Callable[[int], Event] = source.event
        """Return an event by its id, with its own values and times."""

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self._source)

    @cached_property
    def distinct(self) -> DistinctEvents:
        """The events. Those that are alike share one sample."""
        return DistinctEvents(self._source)

    @cached_property
    def tree(self) -> ProgramTree:
        """Threads, calls, loops, iterations and events."""
        return build_tree(self.distinct, self._source.sources)

    @cached_property
    def left_out(self) -> bytearray:
        """1 for each event that is in an iteration of which only a part was kept: views leave these out."""
        return partial_iterations(self.tree, self.distinct)

    @cached_property
    def totals(self) -> Totals:
        """How often what was called, also in events that were not kept."""
        return Totals(self.distinct, self.left_out)

    @cached_property
    def spent_ns(self) -> Sequence[int]:
        """By node, how long it took, in nanoseconds; 0 if that is not known.

        For a call without an event, a loop or an iteration, that is the time of the events in it, without those inside
        of others. What views leave out is not counted.
        """
        tree = self.tree
        spent = array("q", self.distinct.spent_ns)
        spent.extend([0] * (len(tree) - tree.events))
        for event, is_left_out in enumerate(self.left_out):
            around = tree.parent[event]
            if around >= tree.events and not is_left_out:
                spent[around] += spent[event]
        for scope in range(len(tree) - 1, tree.events - 1, -1):
            around = tree.parent[scope]
            if around >= tree.events:
                spent[around] += spent[scope]
        return spent

    @cached_property
    def flow(self) -> DataFlow:
        """Who made each value, and who used it."""
        if isinstance(self._source, TableEvents):
            parents = self._source.tables.parent
        else:
            parents = self.distinct.parents
        return data_flow(self._source, parents)

    @cached_property
    def modes(self) -> dict[int, str]:
        """By event, ``train`` or ``eval`` for functions with a ``training`` argument, and for modules that call them.

        These are dropout and norms with running statistics; other modules do the same in both modes.
        """
        mode_of_sample: dict[int, str] = {}
        for alike, event in enumerate(self.distinct.samples):
            argument = None
            if event.kind == "function":
                argument = _TRAINING.search(event.args)
            if argument is not None:
                mode_of_sample[alike] = "train" if argument[1] == "True" else "eval"
        modes: dict[int, str] = {}
        if not mode_of_sample:
            return modes
        for event, alike in enumerate(self.distinct.alike):
            mode = mode_of_sample.get(alike)
            if mode is None:
                continue
            modes[event] = mode
            parent = self.distinct.parents[event]
            if parent < 0 or not called_by_torch(self.distinct.samples[alike]):
                continue
            if self.distinct.sample(parent).kind == "module":
                modes[parent] = mode
        return modes

    @cached_property
    def modules(self) -> ModuleTree:
        """The modules as a tree, with their calls."""
        return ModuleTree(self._source.modules(), self.distinct)

    def frames(self, event: int) -> tuple[Location, ...]:
        """Return the frames of the program's own functions around an event, outermost first."""
        return tuple(at for at in self.distinct.sample(event).stack if is_own(at))

    def statement(self, event: int) -> Statement | None:
        """Return the statement that an event happened in; None if the source is not known.

        ``Statement.node`` is the syntax tree; the lines are those of ``program.event(event).location``.
        """
        at = self.event(event).location
        text = None
        if at is not None:
            text = self._source.sources.get(at.file)
        loops = None
        if text is not None:
            loops = Loops.of(text)
        if at is None or loops is None or not loops.is_proven(at):
            return None
        return loops.source.at(at.line, at.col)

    def text(self, file: str) -> str:
        """Return the text of a source file; "" if it was not kept."""
        return self._source.sources.get(file, "")

    def inside(self, node: int) -> list[int]:
        """Return the events in a node of the tree, in order."""
        found: list[int] = []
        pending = list(self.tree.children(node))
        while pending:
            each = pending.pop()
            if self.tree.is_event(each):
                found.append(each)
            pending.extend(self.tree.children(each))
        return sorted(found)


@runtime_checkable
class _RemembersOnce(Protocol):
    """A trace that caches what is made of its tables."""

    def _once(self, make: Callable[[Tables], _Made]) -> _Made: ...


def program_of(trace: Recorded) -> Program:
    """Return the program that a trace recorded. It is built once and kept with the trace."""
    if isinstance(trace, _RemembersOnce):
        return trace._once(_of_tables)
    return Program(trace)


def _of_tables(tables: Tables) -> Program:
    return Program(TableEvents(tables))

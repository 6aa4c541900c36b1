"""Counts how often statements ran, as far as the calls and loops of the program tree prove it.

Counting the events of a statement is not enough: a line that computes with a tensor in one call and with a float in the
next has an event only in the first. The tree has both calls if anything was recorded in them, and it has the iterations
of loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torchglass.events.types import Location
from torchglass.program.dedup import DistinctEvents
from torchglass.program.tree import CALL, ProgramTree
from torchglass.source.flow import ControlFlow
from torchglass.source.jumps import LOOPS
from torchglass.source.statements import Function, Statement

_Key = tuple[str, int]
"""A file, and the number of a statement of it."""


@dataclass(slots=True)
class LoopTotal:
    """All executions of a loop together."""

    statement: int
    """The number of the ``for`` or ``while`` statement."""
    executions: int = 0
    iterations: int = 0
    exact: bool = True
    """Whether the number of iterations is certain for each execution."""


class StatementCounts:
    """Calls by function and iterations by loop, summed over the whole program tree."""

    def __init__(
        self, tree: ProgramTree, distinct: DistinctEvents, sources: Mapping[str, ControlFlow]
    ) -> None:
        self._tree = tree
        self._distinct = distinct
        self._sources = sources

    def calls(self, file: str, function: int) -> int:
        """Return in how many calls of a function something was recorded; ``function`` is the number of its ``def``."""
        return self._calls.get((file, function), 0)

    def of_loop(self, file: str, statement: Statement) -> LoopTotal | None:
        """Return the loop just around a statement if each of its iterations runs the statement once.

        None means that an iteration may leave it out, or that the number of iterations is not certain.
        """
        loop = _loop_of(self._sources[file], statement)
        if loop is None or isinstance(statement.node, LOOPS):
            return None
        total = self._loops.get((file, loop.number))
        if total is not None and total.exact:
            return total
        return None

    @cached_property
    def _calls(self) -> dict[_Key, int]:
        """Return how many nodes there are for calls of each function."""
        tree = self._tree
        calls: dict[_Key, int] = {}
        for node in range(tree.events, len(tree)):
            if tree.kind(node) != CALL:
                continue
            at = self._distinct.sample(tree.first(node)).stack[tree.frame(node)]
            source = self._sources.get(at.file)
            function = -1
            if source is not None:
                function = _function_at(source, at)
            # A generator is no plain function: it has a node for each time that it is resumed.
            if source is not None and function >= 0 and source.is_plain_function(function):
                key = (at.file, function)
                calls[key] = calls.get(key, 0) + 1
        return calls

    @cached_property
    def _loops(self) -> dict[_Key, LoopTotal]:
        """Return the executions of each ``for`` and ``while`` together."""
        tree = self._tree
        totals: dict[_Key, LoopTotal] = {}
        for node in tree.loops:
            site = tree.site(node)
            if site.at is None or site.loop is None or not isinstance(site.loop.node, LOOPS):
                continue
            source = self._sources.get(site.at.file)
            statement = None
            if source is not None:
                statement = source.at(site.loop.node.lineno, site.loop.node.col_offset)
            if statement is None:
                continue
            count = tree.count(node)
            total = totals.setdefault((site.at.file, statement.number), LoopTotal(statement.number))
            total.executions += 1
            total.iterations += count.number
            total.exact = total.exact and count.exact
        return totals


def _function_at(source: ControlFlow, at: Location) -> int:
    """Return the number of the ``def`` that a place is in; -1 for a lambda, a comprehension or a module."""
    if not 0 < at.line <= len(source.lines) or source.lines[at.line - 1].strip() != at.source:
        # Another text than that of the file ran there.
        return -1
    statement = source.at(at.line, at.col)
    name = at.function.rpartition(".")[2]
    if statement is None:
        return -1
    # Arguments are assigned at the line of the ``def``, without columns.
    if isinstance(statement.node, Function) and statement.node.name == name and not at.end_col:
        return statement.number
    function = statement.function
    if function < 0 or getattr(source.all[function].node, "name", "") != name:
        return -1
    return function


def _loop_of(source: ControlFlow, statement: Statement) -> Statement | None:
    """Return the loop directly around a statement if each iteration runs the statement once; otherwise None."""
    if statement.parent < 0 or statement.suite.name != "body":
        return None
    loop = source.all[statement.parent]
    if not isinstance(loop.node, LOOPS):
        return None
    before = source.suites[statement.suite][: statement.place]
    if source.jumping.isdisjoint(before):
        return loop
    return None

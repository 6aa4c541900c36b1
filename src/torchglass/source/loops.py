"""Find the place of each recorded instruction of a file among the loops around it."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache

from torchglass.events.types import Location
from torchglass.source.evaluation_order import FunctionReader
from torchglass.source.places import FOR, Comprehension, Place
from torchglass.source.statements import WITH, Span, Statement, Statements, consumed_by


class Loops:
    """The places of one file. A function is read when one of its places is needed."""

    def __init__(self, source: Statements) -> None:
        self.source = source
        self._readers: dict[int, FunctionReader] = {}
        """Keyed by the number of the ``def``; -1 is the module's own code."""
        self._places: dict[tuple[ast.AST, str], Place] = {}
        """Keyed by a node, and the part or comparison of it that the place stands for."""

    # Cached since several views of one trace, drawn one after the other, read the same files.
    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> Loops | None:
        """Return the loops of a text, or None if the text is not Python."""
        source = Statements.of(text)
        if source is None:
            return None
        return Loops(source)

    def is_proven(self, at: Location) -> bool:
        """Return whether the text still has the recorded line at this location."""
        lines = self.source.lines
        return (
            0 < at.line <= len(lines)
            and bool(at.source)
            and lines[at.line - 1].strip() == at.source
        )

    def place(self, where: Span, callee: str = "", stores: bool = False) -> Place | None:
        """Return the place of an instruction, or None if it is uncertain.

        Several instructions of a ``for``, a ``with`` or ``x[0] += 1`` have the same range. They differ in ``callee``,
        the name of the function that the instruction called, and in ``stores``, which is true if it sets an item or
        may do so. The instruction that tests a condition has the range of the whole statement, such as the
        ``if``. In generators and coroutines every place is uncertain, since other code runs while they wait.
        """
        statement = self.source.at(where.line, where.col)
        if statement is None:
            return None
        reader = self._readers.get(statement.function)
        if reader is None:
            reader = self._readers[statement.function] = FunctionReader(
                self.source, statement.function
            )
        node = reader.by_range.get(where) or _smallest_holding(reader, statement, where)
        node, part = _part_of_instruction(reader, node, callee, stores)
        if node is None:
            return None
        place = reader.places.get(node)
        if place is None or (reader.suspends and place.function == (statement.function, 0)):
            return None
        generator = None
        if not callee and not part:
            generator = consumed_by(node)
        if generator is not None:
            part = "consume"
        if (node, part) not in self._places:
            generator_place = None
            if generator is not None:
                generator_place = reader.places[generator]
            self._places[node, part] = _place_of_part(place, part, generator_place)
            if part == "before" and isinstance(node, FOR):
                self._places[node, part].always = reader.places[node.iter].always
        return self._places[node, part]

    def comparison(self, place: Place, number: int) -> Place:
        """Return the place of one comparison of ``a < b < c``. All but the first run only in some cases."""
        key = (place.node, f"comparison {number}")
        if key not in self._places:
            always = place.always and number == 0
            parts = place.parts
            if number:
                parts = (*parts, (place.node, "rest"))
            self._places[key] = replace(
                place,
                order=place.chain[number],
                parts=parts,
                always=always,
                chain=(),
                successions={},
            )
        return self._places[key]

    def start(self, line: int, name: str) -> tuple[int, int] | None:
        """Return the function of this name that begins in a line, in the form of ``Place.function``."""
        for statement in self.source.all:
            node = statement.node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != name:
                continue
            if line in (node.lineno, *(decorator.lineno for decorator in node.decorator_list)):
                return (statement.number, 0)
        return None

    def suspends(self, where: Span) -> bool:
        """Return whether the function at a place is a generator or coroutine."""
        statement = self.source.at(where.line, where.col)
        if statement is None or statement.function < 0 or self.place(where) is not None:
            return False
        return self._readers[statement.function].suspends


def _smallest_holding(reader: FunctionReader, statement: Statement, where: Span) -> ast.AST | None:
    """Return the smallest expression that contains a range, or else the statement; for a range that no node has."""
    smallest: ast.AST = statement.node
    if not reader.places:  # the function is nested too deeply to be read
        return smallest
    for node in ast.walk(smallest):
        if isinstance(node, ast.expr) and node in reader.places:
            span = reader.source.range(node)
            if span.start <= where.start and where.end <= span.end:
                smallest = node
    return smallest


_PROTOCOL_METHODS = (
    "__iter__", "__aiter__", "__next__", "__anext__", "__enter__", "__aenter__", "__exit__", "__aexit__",
)  # fmt: skip
"""Methods that a ``for`` and a ``with`` call."""


def _part_of_instruction(
    reader: FunctionReader, node: ast.AST | None, callee: str, stores: bool
) -> tuple[ast.AST | None, str]:
    """Return the node that an instruction belongs to, and which of its instructions it is.

    The parts are ``before`` (a loop makes its iterator), ``next`` (a comprehension takes its next item), ``test`` (it
    tests a condition), ``after`` (a ``with`` exits), ``store`` (an assignment stores), and ``""`` for all others.
    """
    if node is not None and callee.endswith(_PROTOCOL_METHODS):
        # From Python 3.13 on, these calls have the range of the expression that the statement works on.
        node = reader.statement_using.get(node, node)
    if isinstance(node, (*FOR, Comprehension)) and callee.endswith("iter__"):
        return node, "before"
    if isinstance(node, Comprehension) and callee.endswith("next__"):
        return node, "next"
    if node is not None and callee.endswith("__bool__"):
        tester = reader.tester_of.get(node, node)
        if isinstance(tester, Comprehension):
            return tester, "test"
        return tester, ""
    if isinstance(node, WITH) and callee.endswith("exit__"):
        return node, "after"
    if stores and isinstance(node, ast.Subscript | ast.Attribute | ast.Name):
        return node, "store"
    return node, ""


def _place_of_part(place: Place, part: str, generator: Place | None) -> Place:
    """Return the place of one instruction of a node, which differs from that of the node in its order or its loops.

    ``generator`` is the place of a generator expression that a call consumes, whose loop the call then runs.
    """
    if not part:
        return place
    # The other instructions of a node do not count as running in every iteration.
    other = replace(place, always=False, successions={})
    if part == "before":
        other.order = place.before
        if isinstance(place.node, FOR):
            # The iterator is made outside the loop.
            other.loops = place.loops[:-1]
            other.parts = place.parts[:-1]
            other.is_head = False
    elif part == "next" and place.loop is not None:
        other.order = place.before + 1
        other.is_head = True
        _move_into_loop(other, place)
    elif part == "test" and place.loop is not None:
        other.order = place.tested
        _move_into_loop(other, place)
    elif part in ("after", "store"):
        other.order = place.after
        other.is_exit = part == "after"
    elif generator is not None:
        _move_into_loop(other, generator)
    return other


def _move_into_loop(place: Place, comprehension: Place) -> None:
    """Move a place into the loop of a comprehension, which is given by its own place."""
    if comprehension.loop is not None:
        place.loops = (*place.loops, comprehension.loop)
        place.parts = (*place.parts, (comprehension.node, "iteration"))

"""Number the statements of one file, and find them and their expressions by position.

A *suite* is a block of statements that run one after the other: the body of a function, one branch of an ``if``.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from torchglass.source.jumps import walk_head
from torchglass.source.location_table import char_column
from torchglass.source.syntax import excerpt

Function = ast.FunctionDef | ast.AsyncFunctionDef
WITH = (ast.With, ast.AsyncWith)
Position = tuple[int, int]
"""A line, from 1, and a column in characters, from 0."""
_BLOCK_FIELDS = ("body", "orelse", "handlers", "finalbody", "cases")
_REPEATING = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


class Span(NamedTuple):
    """A range of source text, with lines from 1 and columns in characters from 0."""

    line: int
    end_line: int
    col: int
    end_col: int

    @property
    def start(self) -> Position:
        return self.line, self.col

    @property
    def end(self) -> Position:
        return self.end_line, self.end_col


def outermost(ranges: Iterable[Span]) -> list[Span]:
    """Return the ranges that lie in no other one, in the order of the text."""
    in_order = sorted(set(ranges), key=_by_start)
    outer_ranges: list[Span] = []
    for span in in_order:
        if not outer_ranges or span.end > outer_ranges[-1].end:
            outer_ranges.append(span)
    return outer_ranges


def _by_start(span: Span) -> tuple[int, int, int, int]:
    """Return a key that sorts ranges by their start, and of those with one start the longest first."""
    return (span.line, span.col, -span.end_line, -span.end_col)


class Spans:
    """The ranges of some expressions, sorted once for many lookups. Two of them are nested or do not overlap."""

    def __init__(self, ranges: Iterable[Span]) -> None:
        self._ranges = outermost(ranges)
        self._starts = [span.start for span in self._ranges]

    def contain(self, span: Span) -> bool:
        """Return whether a range lies in one of these."""
        index = bisect_right(self._starts, span.start) - 1
        return index >= 0 and span.end <= self._ranges[index].end


class Suite(NamedTuple):
    """Identify a block of statements that run one after the other."""

    owner: int
    """The number of the statement that the block belongs to; -1 for the module's own block."""
    name: str
    """The field of the syntax tree that holds it: ``body``, ``orelse``, ``handlers``, ``finalbody`` or ``cases``."""
    part: int
    """The number of the handler or case, from 0; 0 for other blocks."""


@dataclass(slots=True)
class Statement:
    """One statement of a file."""

    number: int
    """Its index in ``Statements.all``."""
    node: ast.stmt
    start: Position
    end: Position
    first_line: int
    """The first line of its head. The head of a simple statement is all of it."""
    last_line: int
    """The last line of its head."""
    parent: int
    """The number of the statement that contains it; -1 if that is the module itself."""
    suite: Suite
    function: int
    """The number of the innermost ``def`` around it; -1 if there is none."""
    place: int = 0
    """Its index in the suite."""


class Statements:
    """All statements of a Python text."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.lines = text.split("\n")
        self.tree = tree
        self.all: list[Statement] = []
        self.suites: dict[Suite, list[int]] = {}
        """The numbers of the statements in each suite, in order."""
        self._repeated_spans: dict[int, Spans] = {}
        """Keyed by statement: its comprehensions and lambdas."""
        self._skipped_spans: dict[int, Spans] = {}
        """Keyed by statement: the parts of its expressions that do not always run."""
        self._nodes_by_range: dict[int, dict[Span, ast.expr]] = {}
        """Keyed by statement: the expressions of its head."""
        self._number_statements()
        self._starts = [statement.start for statement in self.all]

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the statements of a text, or None if the text is not Python."""
        try:
            return cls(text, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def at(self, line: int, col: int) -> Statement | None:
        """Return the innermost statement at a position, or None if there is none."""
        number = bisect_right(self._starts, (line, col)) - 1
        while number >= 0:
            statement = self.all[number]
            if statement.end >= (line, col):
                return statement
            number = statement.parent
        return None

    def parent_in_function(self, statement: Statement) -> Statement | None:
        """Return the statement that contains this one within the same function, or None if there is none."""
        if statement.parent < 0 or statement.parent == statement.function:
            return None
        return self.all[statement.parent]

    def functions(self) -> Iterator[Statement]:
        return (statement for statement in self.all if isinstance(statement.node, Function))

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return a node as written."""
        return excerpt(self.lines, node, node)

    def range(self, node: ast.expr | ast.stmt) -> Span:
        """Return the range of a node, with columns in characters."""
        end_line = node.end_lineno or node.lineno
        col = self._column(node.lineno, node.col_offset)
        end_col = self._column(end_line, node.end_col_offset or 0)
        return Span(node.lineno, end_line, col, end_col)

    def ranges(self, node: ast.expr | ast.stmt) -> tuple[Span, ...]:
        """Return the ranges that recorded instructions of this node may have.

        A frame that was read before its text was proven has its columns in bytes. In a chain of calls over several
        lines, Python moves the start of the last call to the name of its method.
        """
        own = self.range(node)
        in_bytes = own._replace(col=node.col_offset, end_col=node.end_col_offset or 0)
        ranges = [own, in_bytes]
        method = node
        if isinstance(node, ast.Call):
            method = node.func
        if isinstance(method, ast.Attribute) and own.line != own.end_line:
            line = method.end_lineno or own.line
            if line != own.line:
                name_col = self._column(line, method.end_col_offset or 0) - len(method.attr)
                ranges.append(own._replace(line=line, col=name_col))
        return tuple(ranges)

    def node_at(self, statement: Statement, where: Span) -> ast.expr | None:
        """Return the outermost expression of a statement's head that has this range."""
        by_range = self._nodes_by_range.get(statement.number)
        if by_range is None:
            by_range = self._nodes_by_range[statement.number] = {}
            for node in walk_head(statement.node):
                if isinstance(node, ast.expr):
                    for span in self.ranges(node):
                        by_range.setdefault(span, node)
        return by_range.get(where)

    def is_repeated(self, statement: Statement, where: Span) -> bool:
        """Return whether a range lies in a comprehension or lambda, which may run more often than its statement."""
        spans = self._repeated_spans.get(statement.number)
        if spans is None:
            ranges = [
                self.range(node)
                for node in walk_head(statement.node)
                if isinstance(node, _REPEATING)
            ]
            spans = self._repeated_spans[statement.number] = Spans(ranges)
        return spans.contain(where)

    def is_conditional(self, statement: Statement, where: Span) -> bool:
        """Return whether a range lies in a part of an expression that does not always run."""
        spans = self._skipped_spans.get(statement.number)
        if spans is None:
            ranges = [
                self.range(part)
                for node in walk_head(statement.node)
                for part in _skippable_parts(node)
            ]
            spans = self._skipped_spans[statement.number] = Spans(ranges)
        return spans.contain(where)

    def _column(self, line: int, byte: int) -> int:
        text = ""
        if line <= len(self.lines):
            text = self.lines[line - 1]
        return char_column(text, byte)

    def _number_statements(self) -> None:
        """Number all statements depth first, with an explicit stack, because programs may be nested deeply."""
        module = Suite(-1, "body", 0)
        waiting = [_Unnumbered(node, module, function=-1) for node in reversed(self.tree.body)]
        while waiting:
            node, suite, function = waiting.pop()
            statement = self._statement(node, suite, function)
            self.all.append(statement)
            self.suites.setdefault(suite, []).append(statement.number)
            if isinstance(node, Function):
                function = statement.number
            for block in reversed(list(_blocks(node))):
                inner = Suite(statement.number, block.name, block.part)
                for child in reversed(block.statements):
                    waiting.append(_Unnumbered(child, inner, function))

    def _statement(self, node: ast.stmt, suite: Suite, function: int) -> Statement:
        """Return the next statement."""
        own = self.range(node)
        last_line = own.end_line
        first_lines = [_first_line(block.statements[0]) for block in _blocks(node)]
        if first_lines:
            last_line = max(node.lineno, min(first_lines) - 1)
        start = own.start
        first_line = _first_line(node)
        if first_line != node.lineno:
            start = (first_line, 0)
        return Statement(
            number=len(self.all),
            node=node,
            start=start,
            end=own.end,
            first_line=node.lineno,
            last_line=last_line,
            parent=suite.owner,
            suite=suite,
            function=function,
            place=len(self.suites.get(suite, ())),
        )


class _Unnumbered(NamedTuple):
    """A statement that is still to be numbered."""

    node: ast.stmt
    suite: Suite
    function: int


class _Block(NamedTuple):
    """One block of a compound statement; the first two fields are those of ``Suite``."""

    name: str
    part: int
    statements: list[ast.stmt]


def _blocks(node: ast.stmt) -> Iterator[_Block]:
    """Yield the blocks of a compound statement, in the order of the text."""
    for name in _BLOCK_FIELDS:
        block = getattr(node, name, None)
        if not block or not isinstance(block, list):
            continue
        if name in ("handlers", "cases"):
            for index, part in enumerate(block):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield _Block(name, index, part.body)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        else:
            yield _Block(name, 0, block)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _skippable_parts(node: ast.AST) -> list[ast.expr]:
    """Return the parts of an expression that may be skipped."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values[1:]
    # Both comparisons of ``0 < x < 3`` have the range of the whole, and the second may be skipped.
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return [node]
    return []


def operands(test: ast.expr) -> list[ast.expr]:
    """Return a condition and all operands of ``and``, ``or`` and ``not`` in it."""
    conditions = [test]
    for condition in conditions:
        if isinstance(condition, ast.BoolOp):
            conditions += condition.values
        elif isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            conditions.append(condition.operand)
    return conditions


def consumed_by(node: ast.AST) -> ast.GeneratorExp | None:
    """Return the generator expression among the arguments of a call, whose iterations run inside the call."""
    if not isinstance(node, ast.Call):
        return None
    generators = (arg for arg in node.args if isinstance(arg, ast.GeneratorExp))
    return next(generators, None)


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is only a string, as a docstring is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def evaluated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    """Return the expressions that run when a function or class is defined: decorators, defaults and bases."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]

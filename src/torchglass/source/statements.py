"""The statements of one file: found by position, each in its suite; parts of the text by line and column."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from torchglass.source.codes import char_column
from torchglass.source.syntax import Located, Syntax, excerpt

Function = ast.FunctionDef | ast.AsyncFunctionDef
Point = tuple[int, int]
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_REPEATED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


class Span(NamedTuple):
    """Lines from 1, columns in characters from 0."""

    line: int
    end_line: int
    col: int
    end_col: int

    @property
    def start(self) -> tuple[int, int]:
        return self.line, self.col

    @property
    def end(self) -> tuple[int, int]:
        return self.end_line, self.end_col


def outermost(ranges: Iterable[Span]) -> list[Span]:
    """Those that lie in no other, in order."""
    found: list[Span] = []
    for each in sorted(set(ranges), key=lambda each: (each.line, each.col, -each.end_line, -each.end_col)):
        if not found or each.end > found[-1].end:
            found.append(each)
    return found


class Spans:
    """The ranges of expressions, which lie in each other or are apart: many are asked for, so they are sorted once."""

    def __init__(self, ranges: Iterable[Span]) -> None:
        self._ranges = outermost(ranges)
        self._starts = [each.start for each in self._ranges]

    def hold(self, where: Span) -> bool:
        """Whether one of them holds this one."""
        at = bisect_right(self._starts, where.start) - 1
        return at >= 0 and where.end <= self._ranges[at].end


# ---------------------------------------------------------------- statements


@dataclass(slots=True)
class Statement:
    """One statement; of a compound one only its head is meant where lines are concerned."""

    number: int
    node: ast.stmt
    start: Point
    end: Point
    first_line: int
    last_line: int
    """Of the head."""
    parent: int
    """-1: a statement of the module."""
    suite: tuple[int, str, int]
    """Equal for statements that run one after the other; the last part tells the cases of a match apart."""
    function: int
    """The innermost ``def`` around it; -1: none."""
    place: int = 0
    """Its place in the suite."""


class Statements:
    """All statements of a text that is Python."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.lines = text.split("\n")
        self.tree = tree
        self.all: list[Statement] = []
        self.suites: dict[tuple[int, str, int], list[int]] = {}
        self._repeated: dict[int, Spans] = {}
        self._conditional: dict[int, Spans] = {}
        self._nodes: dict[int, dict[Span, ast.expr]] = {}
        self._fill()
        self._starts = [each.start for each in self.all]

    @classmethod
    def of(cls, text: str) -> Self | None:
        """None for what is no Python."""
        try:
            return cls(text, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def at(self, line: int, col: int) -> Statement | None:
        """The innermost statement at a position."""
        number = bisect_right(self._starts, (line, col)) - 1
        while number >= 0:
            statement = self.all[number]
            if statement.end >= (line, col):
                return statement
            number = statement.parent
        return None

    def functions(self) -> Iterator[Statement]:
        return (each for each in self.all if isinstance(each.node, Function))

    def text(self, node: ast.expr | ast.stmt) -> str:
        """A node as written."""
        return excerpt(self.lines, node, node)

    def range(self, node: ast.expr | ast.stmt) -> Span:
        end_line = node.end_lineno or node.lineno
        return Span(
            node.lineno, end_line, self._column(node.lineno, node.col_offset),
            self._column(end_line, node.end_col_offset or 0),
        )  # fmt: skip

    def ranges(self, node: ast.expr | ast.stmt) -> tuple[Span, ...]:
        """The ranges that steps of this node may have: of a chain over several lines that of its last call too.

        Columns of frames whose text was not yet proven when they were read are counted in bytes.
        """
        own = self.range(node)
        found = [own, own._replace(col=node.col_offset, end_col=node.end_col_offset or 0)]
        method = node.func if isinstance(node, ast.Call) else node
        if isinstance(method, ast.Attribute) and own.line != own.end_line and method.end_lineno != own.line:
            line = method.end_lineno or own.line
            moved = self._column(line, method.end_col_offset or 0) - len(method.attr)
            found.append(own._replace(line=line, col=moved))
        return tuple(found)

    def node_at(self, statement: Statement, where: Span) -> ast.expr | None:
        """The outermost expression of a statement's head that has this range."""
        known = self._nodes.get(statement.number)
        if known is None:
            known = self._nodes[statement.number] = {}
            for node in walk_head(statement.node):
                if isinstance(node, ast.expr):
                    known |= {each: node for each in self.ranges(node) if each not in known}
        return known.get(where)

    def is_repeated(self, statement: Statement, where: Span) -> bool:
        """Whether a range lies in a comprehension or lambda: it may run more often than its statement."""
        spans = self._repeated.get(statement.number)
        if spans is None:
            held = [self.range(node) for node in walk_head(statement.node) if isinstance(node, _REPEATED)]
            spans = self._repeated[statement.number] = Spans(held)
        return spans.hold(where)

    def is_conditional(self, statement: Statement, where: Span) -> bool:
        """Whether a range lies in a part of an expression that is not always run."""
        spans = self._conditional.get(statement.number)
        if spans is None:
            parts = [self.range(part) for node in walk_head(statement.node) for part in _sometimes(node)]
            spans = self._conditional[statement.number] = Spans(parts)
        return spans.hold(where)

    def _column(self, line: int, byte: int) -> int:
        return char_column(self.lines[line - 1] if line <= len(self.lines) else "", byte)

    def _fill(self) -> None:
        """Depth first, with a stack of our own: programs may be nested deeply."""
        waiting = [(node, -1, (-1, "body", 0), -1) for node in reversed(self.tree.body)]
        while waiting:
            node, parent, suite, function = waiting.pop()
            number = len(self.all)
            self.all.append(self._statement(number, node, parent, suite, function))
            beside = self.suites.setdefault(suite, [])
            self.all[number].place = len(beside)
            beside.append(number)
            inner = number if isinstance(node, Function) else function
            for name, place, body in reversed(list(_suites(node))):
                waiting += [(each, number, (number, name, place), inner) for each in reversed(body)]

    def _statement(
        self, number: int, node: ast.stmt, parent: int, suite: tuple[int, str, int], function: int
    ) -> Statement:
        line, own = _first_line(node), self.range(node)
        inside = [body[0] for _, _, body in _suites(node)]
        last = own.end_line
        if inside:
            last = max(node.lineno, min(_first_line(each) for each in inside) - 1)
        start = (line, own.col) if line == node.lineno else (line, 0)
        return Statement(number, node, start, (own.end_line, own.end_col), node.lineno, last, parent, suite, function)


def _suites(node: ast.stmt) -> Iterator[tuple[str, int, list[ast.stmt]]]:
    """The blocks of a compound statement; each handler and each case is one."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if not block or not isinstance(block, list):
            continue
        if name in ("handlers", "cases"):
            for place, each in enumerate(block):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield name, place, each.body  # pyright: ignore[reportUnknownMemberType]
        else:
            yield name, 0, block


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def walk(node: ast.AST, without: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """A node and what is in it, the outermost first, without such nodes and what is in those."""
    waiting: list[ast.AST] = [node]
    for each in waiting:
        yield each
        waiting.extend(child for child in ast.iter_child_nodes(each) if not isinstance(child, without))


def walk_head(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of statements inside."""
    return walk(statement, ast.stmt)


def _sometimes(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that may be left out."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values[1:]
    # Of ``0 < x < 3`` both comparisons stand at the place of the whole.
    return [node] if isinstance(node, ast.Compare) and len(node.ops) > 1 else []


def operands(test: ast.expr) -> list[ast.expr]:
    """A condition, and what ``and``, ``or`` and ``not`` join in it."""
    found = [test]
    for each in found:
        if isinstance(each, ast.BoolOp):
            found += each.values
        elif isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not):
            found.append(each.operand)
    return found


def consumed_by(node: ast.AST) -> ast.GeneratorExp | None:
    """The generator expression that a call is given: its rounds take turns with what the call itself does."""
    if not isinstance(node, ast.Call):
        return None
    return next((each for each in node.args if isinstance(each, ast.GeneratorExp)), None)


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text alone, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# ---------------------------------------------------------------- stores

# What is written where a variable gets or loses its value: the statement, or the head of a compound one.

STORES = (
    "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
    "STORE_FAST_MAYBE_NULL", "DELETE_FAST", "DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF",
)  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)


def store_text(syntax: Syntax, nodes: list[Located]) -> str:
    """``y = f(x)``, ``for i in range(3)``, ``open(p) as file``, ``n := len(x)``."""
    child: ast.AST = next((node for node in nodes if isinstance(node, ast.Name)), nodes[0])
    while not isinstance(child, ast.stmt):
        parent = syntax.parent(child)
        if parent is None:
            break
        if isinstance(parent, ast.NamedExpr):
            return syntax.text(parent)
        if isinstance(parent, _LOOPS):
            return f"for {syntax.between(parent.target, parent.iter)}"
        if isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            return syntax.between(parent.context_expr, parent.optional_vars)
        child = parent
    text = syntax.text(child) if isinstance(child, Located) else ""
    # Of a function, a class or an except clause the first line: the rest is what they hold.
    return text if isinstance(child, ast.stmt) and not hasattr(child, "body") else text.partition("\n")[0].rstrip()


# ---------------------------------------------------------------- jumps

# What makes code leave its place: ``return``, ``break`` and ``continue``, and the ``yield`` that suspends it.

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
WITH = (ast.With, ast.AsyncWith)


def yields(node: ast.AST) -> bool:
    """Whether a function is a generator or coroutine."""
    return any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in walk(node, _INNER))


def may_jump(node: ast.stmt) -> bool:
    """Whether what follows a statement may be left out although no error occurs."""
    return any(isinstance(each, ast.Return | ast.Break | ast.Continue) for each in walk(node, _INNER))


def may_break(node: ast.stmt) -> bool:
    """Whether a loop may be left before its end: by a ``return``, or a ``break`` that is its own."""
    returns = any(isinstance(each, ast.Return) for each in walk(node, _INNER))
    return returns or any(isinstance(each, ast.Break) for each in walk(node, (*LOOPS, *_INNER)))


def evaluated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    """What a definition evaluates itself: decorators, defaults, bases."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]

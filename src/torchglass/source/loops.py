"""The loops of a file, and where a place of the program stands among them, in the order of evaluation."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from functools import lru_cache

from torchglass.source.statements import (
    WITH,
    Span,
    Statement,
    Statements,
    consumed_by,
    evaluated,
    may_break,
    may_jump,
    operands,
    yields,
)

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FOR = (ast.For, ast.AsyncFor)


@dataclass(slots=True, eq=False)
class Loop:
    """A ``for``, a ``while``, or a comprehension."""

    node: ast.stmt | Comprehension
    text: str
    """As it is written: ``for x, y in loader:``."""
    breaks: bool
    """Whether it may be left before its end without an error."""


@dataclass(slots=True, eq=False)
class Surroundings:
    """Where in a function something stands."""

    function: tuple[int, int]
    """Equal for places of one function of a file."""
    statement: Statement
    loops: tuple[Loop, ...] = ()
    """Those around it, outermost first."""
    parts: tuple[tuple[ast.AST, str], ...] = ()
    """Which parts of statements and expressions it is in, outermost first: of an ``if`` the body or the rest."""
    always: bool = True
    """Whether every round of the innermost loop (every call, where there is none) passes it, once."""
    is_head: bool = False
    """Whether it is part of the innermost loop's own step to its next round."""

    def inside(
        self, node: ast.AST, part: str, *, always: bool = False, loop: Loop | None = None, is_head: bool = False
    ) -> Surroundings:
        """In a part of a statement or expression; ``always``: it runs whenever that does."""
        loops = self.loops if loop is None else (*self.loops, loop)
        always = always if loop else always and self.always
        return Surroundings(self.function, self.statement, loops, (*self.parts, (node, part)), always, is_head)


@dataclass(slots=True, eq=False, kw_only=True)
class Place(Surroundings):
    """One place of a function: an expression, or what a statement does itself. One object for each."""

    order: int
    """Later places of a function have greater ones, in the order of evaluation."""
    node: ast.AST
    source: Statements
    is_exit: bool = False
    """Whether it is where a ``with`` is left, in whatever way."""
    before: int = 0
    """The order of what it does before: of a ``for`` making the iterator."""
    tested: int = 0
    """The order of what it does when its conditions were evaluated: of a comprehension."""
    after: int = 0
    """The order of what it does last: of a ``with`` leaving, of an assignment storing."""
    loop: Loop | None = None
    """Of a comprehension."""
    next: dict[Place, Loop | bool] = field(default_factory=dict["Place", "Loop | bool"])
    """How others can have run after it, as far as that was asked (source/rounds.py)."""


class Loops:
    """The places of one file; functions are read when one of their places is asked for."""

    def __init__(self, source: Statements) -> None:
        self.source = source
        self._read: dict[int, _Reader] = {}
        """By the number of the ``def``; -1: the module's own code."""
        self._places: dict[tuple[ast.AST, str], Place] = {}

    @staticmethod
    @lru_cache(maxsize=64)  # one after the other, views of a program are asked for that read the same files
    def of(text: str) -> Loops | None:
        """None for what is no Python."""
        source = Statements.of(text)
        return None if source is None else Loops(source)

    def place(self, where: Span, callee: str = "", stores: bool = False) -> Place | None:
        """The place of an instruction; None when it cannot be told.

        ``callee`` is the name of the function that it called, ``stores`` says that it set an item, or may have:
        instructions of a ``for``, a ``with`` and ``x[0] += 1`` share their range. The truth of a condition is asked
        for in the range of all that depends on it, the whole ``if``. Of generators and coroutines, which
        wait while others run, nothing is told.
        """
        statement = self.source.at(where.line, where.col)
        if statement is None:
            return None
        reader = self._read.get(statement.function)
        if reader is None:
            reader = self._read[statement.function] = _Reader(self.source, statement.function)
        node = reader.by_range.get(where) or _around(reader, statement, where)
        node, part = _part(reader, node, callee, stores)
        found = None if node is None else reader.places.get(node)
        if node is None or found is None or (reader.suspends and found.function == (statement.function, 0)):
            return None
        consumed = consumed_by(node) if not callee and not part else None
        part = "consume" if consumed is not None else part
        if (node, part) not in self._places:
            self._places[node, part] = _step(found, part, None if consumed is None else reader.places[consumed])
        return self._places[node, part]

    def start(self, line: int, name: str) -> tuple[int, int] | None:
        """The function of that name that begins at a line, as ``Place.function`` has it: where its arguments stand."""
        for statement in self.source.all:
            node = statement.node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != name:
                continue
            if line in (node.lineno, *(each.lineno for each in node.decorator_list)):
                return (statement.number, 0)
        return None

    def suspends(self, where: Span) -> bool:
        """Whether the function at a place is a generator or coroutine."""
        statement = self.source.at(where.line, where.col)
        if statement is None or statement.function < 0 or self.place(where) is not None:
            return False
        return self._read[statement.function].suspends


def _around(reader: _Reader, statement: Statement, where: Span) -> ast.AST | None:
    """The smallest expression, else the statement, that holds a range which no node has."""
    held: ast.AST = statement.node
    for node in ast.walk(held) if reader.places else ():  # of what was nested too deeply to be read there are none
        if isinstance(node, ast.expr) and node in reader.places:
            own = reader.source.range(node)
            if own.start <= where.start and where.end <= own.end:
                held = node
    return held


def _part(reader: _Reader, node: ast.AST | None, callee: str, stores: bool) -> tuple[ast.AST | None, str]:
    """The node that an instruction belongs to, and which of its instructions it is.

    From Python 3.13 on the steps of a ``for`` and of a ``with`` have the range of what they work on.
    """
    around = reader.steps_of.get(node) if node is not None else None
    if callee.endswith(("__iter__", "__aiter__", "__next__", "__anext__", "__exit__", "__aexit__")):
        node = around or node
    if isinstance(node, (*_FOR, Comprehension)) and callee.endswith("iter__"):
        return node, "before"
    if isinstance(node, Comprehension) and callee.endswith("next__"):
        return node, "next"
    if node is not None and callee.endswith("__bool__"):
        asker = reader.asked_at.get(node, node)
        return asker, "test" if isinstance(asker, Comprehension) else ""
    if isinstance(node, WITH) and callee.endswith("exit__"):
        return node, "after"
    return node, "store" if stores and isinstance(node, ast.Subscript | ast.Attribute | ast.Name) else ""


def _step(place: Place, part: str, consumed: Place | None) -> Place:
    """Where one of the instructions of a node stands, if it has several."""
    if not part:
        return place
    node, loops, parts = place.node, place.loops, place.parts
    if part == "before" and isinstance(node, _FOR):
        loops, parts = loops[:-1], parts[:-1]
        return replace(place, order=place.before, loops=loops, parts=parts, is_head=False, always=False, next={})
    if part == "before":
        return replace(place, order=place.before, always=False, next={})
    if part == "next" and place.loop is not None:
        loops, parts = (*loops, place.loop), (*parts, (node, "round"))
        return replace(place, order=place.before + 1, loops=loops, parts=parts, is_head=True, always=False, next={})
    if part == "test" and place.loop is not None:
        loops, parts = (*loops, place.loop), (*parts, (node, "round"))
        return replace(place, order=place.tested, loops=loops, parts=parts, always=False, next={})
    if part in ("after", "store"):
        return replace(place, order=place.after, is_exit=part == "after", always=False, next={})
    if consumed is not None and consumed.loop is not None:
        loops, parts = (*loops, consumed.loop), (*parts, (consumed.node, "round"))
    return replace(place, loops=loops, parts=parts, always=False, next={})


# ---------------------------------------------------------------- reading


class _Reader:
    """Walks one function in the order of evaluation and notes each node; with it the lambdas and classes in it."""

    def __init__(self, source: Statements, function: int) -> None:
        self.source = source
        self.places: dict[ast.AST, Place] = {}
        self.by_range: dict[Span, ast.AST] = {}
        self.steps_of: dict[ast.AST, ast.stmt | Comprehension] = {}
        """What a ``for`` goes over or a ``with`` enters: that statement."""
        self.asked_at: dict[ast.AST, ast.stmt | ast.expr] = {}
        """Conditions and their operands: where their truth is asked for, which may have the range of any of them."""
        self._order = 0
        self._waiting: list[tuple[ast.Lambda | ast.ClassDef, Statement]] = []
        node = source.all[function].node if function >= 0 else None
        self.suspends = isinstance(node, ast.AsyncFunctionDef) or (node is not None and yields(node))
        try:
            self._read(function)
        except RecursionError:  # an expression nested that deeply is no place of a loop
            self.places.clear()

    def _read(self, function: int) -> None:
        outside = self.source.all[function]  # takes the place of a statement until the first one comes
        self._suite(function, "body", Surroundings((function, 0), outside))
        for number, (node, statement) in enumerate(self._waiting, 1):
            begin = Surroundings((function, number), statement)
            if isinstance(node, ast.Lambda):
                self._expression(node.body, begin)
            else:
                self._suite(statement.number, "body", begin)

    def _suite(self, number: int, name: str, context: Surroundings, place: int = 0) -> None:
        """The statements of a suite; behind one that may jump away, none is certain to run."""
        always = context.always
        for each in self.source.suites.get((number, name, place), ()):
            statement = self.source.all[each]
            self._statement(statement, replace(context, statement=statement, always=always, is_head=False))
            always = always and not may_jump(statement.node)

    def _note(self, node: ast.AST, context: Surroundings) -> Place:
        self._order += 1
        place = self.places[node] = Place(
            context.function, context.statement, context.loops, context.parts, context.always, context.is_head,
            order=self._order, node=node, source=self.source,
        )  # fmt: skip
        if isinstance(node, ast.expr | ast.stmt):
            for each in self.source.ranges(node):
                # A statement and its expression share a range: what is computed is the expression.
                self.by_range.setdefault(each, node)
        return place

    # ------------------------------------------------------------ statements

    def _statement(self, statement: Statement, context: Surroundings) -> None:
        node = statement.node
        if isinstance(node, _FOR):
            self._for(statement, node, context)
        elif isinstance(node, ast.While):
            self._while(statement, node, context)
        elif isinstance(node, ast.If):
            self._condition(node.test, node, context)
            self._note(node, context)
            self._suite(statement.number, "body", context.inside(node, "body"))
            self._suite(statement.number, "orelse", context.inside(node, "orelse"))
        elif isinstance(node, WITH):
            for item in node.items:
                self._expression(item.context_expr, context)
                self.steps_of[item.context_expr] = node
            place = self._note(node, context)
            self._suite(statement.number, "body", context.inside(node, "body", always=True))
            self._order += 1
            place.after = self._order
        elif isinstance(node, ast.Try | ast.TryStar):
            self._suite(statement.number, "body", context.inside(node, "body", always=not node.handlers))
            for place, _ in enumerate(node.handlers):
                self._suite(statement.number, "handlers", context.inside(node, f"handler {place}"), place)
            self._suite(statement.number, "orelse", context.inside(node, "orelse"))
            self._suite(statement.number, "finalbody", context.inside(node, "finalbody", always=True))
        elif isinstance(node, ast.Match):
            self._expression(node.subject, context)
            for place, case in enumerate(node.cases):
                inner = context.inside(node, f"case {place}")
                if case.guard is not None:
                    self._expression(case.guard, context.inside(node, "guard"))
                self._suite(statement.number, "cases", inner, place)
        else:
            self._simple(statement, node, context)

    def _for(self, statement: Statement, node: ast.For | ast.AsyncFor, context: Surroundings) -> None:
        self._expression(node.iter, context)
        self.steps_of[node.iter] = node
        self._order += 1
        before = self._order
        target, iterable = self.source.text(node.target), self.source.text(node.iter)
        word = "async for" if isinstance(node, ast.AsyncFor) else "for"
        loop = Loop(node, f"{word} {target} in {iterable}:", may_break(node))
        head = context.inside(node, "round", always=True, loop=loop, is_head=True)
        self._note(node, head).before = before
        self._expression(node.target, head)
        self._suite(statement.number, "body", head)
        self._suite(statement.number, "orelse", context.inside(node, "orelse"))

    def _while(self, statement: Statement, node: ast.While, context: Surroundings) -> None:
        loop = Loop(node, f"while {self.source.text(node.test)}:", may_break(node))
        head = context.inside(node, "round", always=True, loop=loop, is_head=True)
        self._condition(node.test, node, head)
        self._note(node, head)
        self._suite(statement.number, "body", head)
        self._suite(statement.number, "orelse", context.inside(node, "orelse"))

    def _simple(self, statement: Statement, node: ast.stmt, context: Surroundings) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for each in evaluated(node):
                self._expression(each, context)
            if isinstance(node, ast.ClassDef):
                self._waiting.append((node, statement))
            self._note(node, context)
            return
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [*([node.value] if node.value else []), *targets]
        elif isinstance(node, ast.AugAssign):
            parts = [node.target, node.value]
        elif isinstance(node, ast.Assert):
            self._condition(node.test, node, context)
            parts = []
        else:
            parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        for each in parts:
            self._expression(each, context)
        self._note(node, context)
        if isinstance(node, ast.AugAssign):
            self._order += 1
            self.places[node.target].after = self._order
        elif isinstance(node, ast.Assert) and node.msg is not None:
            self._expression(node.msg, context.inside(node, "rest"))

    # ------------------------------------------------------------ expressions

    def _condition(self, test: ast.expr, asker: ast.stmt | ast.expr, context: Surroundings) -> None:
        """What something depends on: the place of the asker, which is noted behind it, is where its truth is asked."""
        for each in operands(test):
            self.asked_at.setdefault(each, asker)
        self._expression(test, context)

    def _expression(self, node: ast.AST, context: Surroundings) -> None:
        """Parts before the whole, as they are evaluated; what is unpacked before what it goes into."""
        if isinstance(node, ast.Lambda):
            for each in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._expression(each, context)
            self._waiting.append((node, context.statement))
        elif isinstance(node, Comprehension):
            loop, before, tested = self._comprehension(node, context)
            place = self._note(node, context)
            place.loop, place.before, place.tested, place.after = loop, before, tested, place.order
            return
        elif isinstance(node, ast.IfExp):
            self._condition(node.test, node, context)
            self._note(node, context)
            self._expression(node.body, context.inside(node, "body", is_head=context.is_head))
            self._expression(node.orelse, context.inside(node, "orelse", is_head=context.is_head))
            return
        elif isinstance(node, ast.BoolOp):
            for each in operands(node):
                self.asked_at.setdefault(each, node)
            self._expression(node.values[0], context)
            for each in node.values[1:]:
                self._expression(each, context.inside(node, "rest", is_head=context.is_head))
        elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store):
            self._note(node, context)
            for each in node.elts:
                self._expression(each, context)
            return
        else:
            for each in ast.iter_child_nodes(node):
                if not isinstance(each, ast.expr_context | ast.operator | ast.unaryop | ast.cmpop):
                    self._expression(each, context)
        place = self._note(node, context)
        place.after = place.order

    def _comprehension(self, node: Comprehension, context: Surroundings) -> tuple[Loop, int, int]:
        """The first iterable is evaluated outside of the loop, all else in it; orders of its start and its tests."""
        first, *others = node.generators
        self._expression(first.iter, context)
        self.steps_of[first.iter] = node
        self._order += 2
        before = self._order - 1
        loop = Loop(node, self.source.text(node), False)
        inner = context.inside(node, "round", always=True, loop=loop)
        for each in (first, *others):
            if each is not first:
                inner = inner.inside(each, "rest")
                self._expression(each.iter, inner)
            self._expression(each.target, inner)
            for condition in each.ifs:
                self._condition(condition, node, inner)
                inner = inner.inside(condition, "rest")
        self._order += 1
        tested = self._order
        for each in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._expression(each, inner)
        return loop, before, tested

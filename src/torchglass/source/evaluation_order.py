"""Read one function in the order of evaluation, and give each of its statements and expressions a place.

In ``for x in load(): y = f(x)`` the places are, in this order: the call of ``load``, the ``for`` that makes the
iterator, the ``for`` that takes the next item, ``x``, the call of ``f``, and the assignment. All but the first two are
inside the loop.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from torchglass.source.jumps import may_break, may_jump, yields
from torchglass.source.places import FOR, Comprehension, Loop, Place, Surroundings
from torchglass.source.statements import (
    WITH,
    Span,
    Statement,
    Statements,
    Suite,
    evaluated,
    operands,
)


class FunctionReader:
    """Walks one function in the order of evaluation, and makes a place for each node.

    The lambdas and classes in it are functions of their own in ``Place.function``, read after it.
    """

    def __init__(self, source: Statements, function: int) -> None:
        self.source = source
        self.places: dict[ast.AST, Place] = {}
        self.by_range: dict[Span, ast.AST] = {}
        self.statement_using: dict[ast.AST, ast.stmt | Comprehension] = {}
        """The ``for``, ``with`` or comprehension that iterates over or enters an expression."""
        self.tester_of: dict[ast.AST, ast.stmt | ast.expr] = {}
        """The statement or expression that tests a condition, for the condition and each of its operands.

        The instruction of the test may have the range of any of them.
        """
        self._order = 0
        self._waiting: list[tuple[ast.Lambda | ast.ClassDef, Statement]] = []
        """Lambdas and classes that are still to be read, each with its statement."""
        self.suspends = False
        """Whether the function is a coroutine or a generator."""
        if function >= 0:
            node = source.all[function].node
            self.suspends = isinstance(node, ast.AsyncFunctionDef) or yields(node)
        try:
            self._read(function)
        except RecursionError:
            # Code that is nested so deeply gets no places, so that no loops are shown in it.
            self.places.clear()

    def _read(self, function: int) -> None:
        # Surroundings need a statement. This one is replaced as soon as the first statement is read.
        any_statement = self.source.all[function]
        self._suite(function, "body", Surroundings((function, 0), any_statement))
        for number, (node, statement) in enumerate(self._waiting, 1):
            surroundings = Surroundings((function, number), statement)
            if isinstance(node, ast.Lambda):
                self._expression(node.body, surroundings)
            else:
                self._suite(statement.number, "body", surroundings)

    def _suite(self, owner: int, name: str, context: Surroundings, index: int = 0) -> None:
        """Read the statements of a suite. After one that may jump, the others do not always run."""
        always = context.always
        for number in self.source.suites.get(Suite(owner, name, index), ()):
            statement = self.source.all[number]
            inner = replace(context, statement=statement, always=always, is_head=False)
            self._statement(statement, inner)
            always = always and not may_jump(statement.node)

    def _add_place(self, node: ast.AST, context: Surroundings) -> Place:
        place = Place(
            function=context.function,
            statement=context.statement,
            loops=context.loops,
            parts=context.parts,
            always=context.always,
            is_head=context.is_head,
            order=self._next_order(),
            node=node,
            source=self.source,
        )
        self.places[node] = place
        if isinstance(node, ast.expr | ast.stmt):
            for span in self.source.ranges(node):
                # An expression statement and its expression have the same range, which stands for the expression.
                self.by_range.setdefault(span, node)
        return place

    # ------------------------------------------------------------ statements

    def _statement(self, statement: Statement, context: Surroundings) -> None:
        node = statement.node
        if isinstance(node, FOR):
            self._for(statement, node, context)
        elif isinstance(node, ast.While):
            self._while(statement, node, context)
        elif isinstance(node, ast.If):
            self._condition(node.test, node, context)
            self._add_place(node, context)
            self._suite(statement.number, "body", context.inside(node, "body"))
            self._suite(statement.number, "orelse", context.inside(node, "orelse"))
        elif isinstance(node, WITH):
            self._with(statement, node, context)
        elif isinstance(node, ast.Try | ast.TryStar):
            self._try(statement, node, context)
        elif isinstance(node, ast.Match):
            self._match(statement, node, context)
        else:
            self._simple(statement, node, context)

    def _with(
        self, statement: Statement, node: ast.With | ast.AsyncWith, context: Surroundings
    ) -> None:
        for item in node.items:
            self._expression(item.context_expr, context)
            self.statement_using[item.context_expr] = node
        place = self._add_place(node, context)
        self._suite(statement.number, "body", context.inside(node, "body", always=True))
        place.after = self._next_order()

    def _try(
        self, statement: Statement, node: ast.Try | ast.TryStar, context: Surroundings
    ) -> None:
        number = statement.number
        body = context.inside(node, "body", always=not node.handlers)
        self._suite(number, "body", body)
        for index in range(len(node.handlers)):
            handler = context.inside(node, f"handler {index}")
            self._suite(number, "handlers", handler, index)
        self._suite(number, "orelse", context.inside(node, "orelse"))
        self._suite(number, "finalbody", context.inside(node, "finalbody", always=True))

    def _match(self, statement: Statement, node: ast.Match, context: Surroundings) -> None:
        self._expression(node.subject, context)
        for index, case in enumerate(node.cases):
            if case.guard is not None:
                self._expression(case.guard, context.inside(node, "guard"))
            inner = context.inside(node, f"case {index}")
            self._suite(statement.number, "cases", inner, index)

    def _for(
        self, statement: Statement, node: ast.For | ast.AsyncFor, context: Surroundings
    ) -> None:
        self._expression(node.iter, context)
        self.statement_using[node.iter] = node
        before = self._next_order()
        target = self.source.text(node.target)
        iterable = self.source.text(node.iter)
        word = "for"
        if isinstance(node, ast.AsyncFor):
            word = "async for"
        loop = Loop(node, f"{word} {target} in {iterable}:", may_break(node))
        head = context.inside(node, "iteration", always=True, loop=loop, is_head=True)
        self._add_place(node, head).before = before
        self._expression(node.target, head)
        self._suite(statement.number, "body", head)
        self._suite(statement.number, "orelse", context.inside(node, "orelse"))

    def _while(self, statement: Statement, node: ast.While, context: Surroundings) -> None:
        loop = Loop(node, f"while {self.source.text(node.test)}:", may_break(node))
        head = context.inside(node, "iteration", always=True, loop=loop, is_head=True)
        self._condition(node.test, node, head)
        self._add_place(node, head)
        self._suite(statement.number, "body", head)
        self._suite(statement.number, "orelse", context.inside(node, "orelse"))

    def _simple(self, statement: Statement, node: ast.stmt, context: Surroundings) -> None:
        if isinstance(node, ast.Assert):
            self._condition(node.test, node, context)
            self._add_place(node, context)
            if node.msg is not None:
                self._expression(node.msg, context.inside(node, "rest"))
            return
        for part in _parts_of(node):
            self._expression(part, context)
        self._add_place(node, context)
        if isinstance(node, ast.ClassDef):
            self._waiting.append((node, statement))
        elif isinstance(node, ast.AugAssign):
            self.places[node.target].after = self._next_order()

    # ------------------------------------------------------------ expressions

    def _condition(
        self, test: ast.expr, tester: ast.stmt | ast.expr, context: Surroundings
    ) -> None:
        """Read a condition, and note which statement or expression tests it."""
        for operand in operands(test):
            self.tester_of.setdefault(operand, tester)
        self._expression(test, context)

    def _expression(self, node: ast.AST, context: Surroundings) -> None:
        """Read an expression in the order of evaluation: parts before the whole, and a tuple before its targets."""
        if isinstance(node, ast.Lambda):
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._expression(default, context)
            self._waiting.append((node, context.statement))
        elif isinstance(node, Comprehension):
            self._comprehension(node, context)
            return
        elif isinstance(node, ast.IfExp):
            self._condition(node.test, node, context)
            self._add_place(node, context)
            self._expression(node.body, context.inside(node, "body", is_head=context.is_head))
            self._expression(node.orelse, context.inside(node, "orelse", is_head=context.is_head))
            return
        elif isinstance(node, ast.BoolOp):
            for operand in operands(node):
                self.tester_of.setdefault(operand, node)
            self._expression(node.values[0], context)
            for operand in node.values[1:]:
                self._expression(operand, context.inside(node, "rest", is_head=context.is_head))
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            self._comparisons(node, context)
            return
        elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store):
            self._add_place(node, context)
            for target in node.elts:
                self._expression(target, context)
            return
        else:
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.expr_context | ast.operator | ast.unaryop | ast.cmpop):
                    self._expression(child, context)
        place = self._add_place(node, context)
        place.after = place.order

    def _comparisons(self, node: ast.Compare, context: Surroundings) -> None:
        """Read ``a < b < c``. Each comparison follows its second operand."""
        self._expression(node.left, context)
        orders: list[int] = []
        for operand in node.comparators:
            inner = context
            if orders:
                inner = context.inside(node, "rest", is_head=context.is_head)
            self._expression(operand, inner)
            orders.append(self._next_order())
        place = self._add_place(node, context)
        place.chain = tuple(orders)
        place.after = place.order

    def _comprehension(self, node: Comprehension, context: Surroundings) -> None:
        """Read a comprehension. The first iterable is evaluated before the loop."""
        first, *others = node.generators
        self._expression(first.iter, context)
        self.statement_using[first.iter] = node
        before = self._next_order()
        self._order += 1
        loop = Loop(node, self.source.text(node), breaks=False)
        inner = context.inside(node, "iteration", always=True, loop=loop)
        for generator in (first, *others):
            if generator is not first:
                inner = inner.inside(generator, "rest")
                self._expression(generator.iter, inner)
            self._expression(generator.target, inner)
            for condition in generator.ifs:
                self._condition(condition, node, inner)
                inner = inner.inside(condition, "rest")
        tested = self._next_order()
        if isinstance(node, ast.DictComp):
            self._expression(node.key, inner)
            self._expression(node.value, inner)
        else:
            self._expression(node.elt, inner)
        place = self._add_place(node, context)
        place.loop = loop
        place.before = before
        place.tested = tested
        place.after = place.order

    def _next_order(self) -> int:
        self._order += 1
        return self._order


def _parts_of(node: ast.stmt) -> list[ast.expr]:
    """Return the expressions in a simple statement or the head of a definition, in the order of evaluation."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return list(evaluated(node))
    if isinstance(node, ast.Assign):
        return [node.value, *node.targets]
    if isinstance(node, ast.AnnAssign) and node.value:
        return [node.value, node.target]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.AnnAssign):
        return [node.target]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]

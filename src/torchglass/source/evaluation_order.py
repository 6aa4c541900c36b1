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
        node = None
        if function >= 0:
            node = source.all[function].node
        self.suspends = isinstance(node, ast.AsyncFunctionDef) or (
            node is not None and yields(node)
        )
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
            self._statement(
                statement, replace(context, statement=statement, always=always, is_head=False)
            )
            always = always and not may_jump(statement.node)

    def _add_place(self, node: ast.AST, context: Surroundings) -> Place:
        self._order += 1
        place = self.places[node] = Place(
            context.function, context.statement, context.loops, context.parts, context.always, context.is_head,
            order=self._order, node=node, source=self.source,
        )  # fmt: skip
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
            for item in node.items:
                self._expression(item.context_expr, context)
                self.statement_using[item.context_expr] = node
            place = self._add_place(node, context)
            self._suite(statement.number, "body", context.inside(node, "body", always=True))
            self._order += 1
            place.after = self._order
        elif isinstance(node, ast.Try | ast.TryStar):
            self._suite(
                statement.number, "body", context.inside(node, "body", always=not node.handlers)
            )
            for index, _ in enumerate(node.handlers):
                self._suite(
                    statement.number, "handlers", context.inside(node, f"handler {index}"), index
                )
            self._suite(statement.number, "orelse", context.inside(node, "orelse"))
            self._suite(
                statement.number, "finalbody", context.inside(node, "finalbody", always=True)
            )
        elif isinstance(node, ast.Match):
            self._expression(node.subject, context)
            for index, case in enumerate(node.cases):
                inner = context.inside(node, f"case {index}")
                if case.guard is not None:
                    self._expression(case.guard, context.inside(node, "guard"))
                self._suite(statement.number, "cases", inner, index)
        else:
            self._simple(statement, node, context)

    def _for(
        self, statement: Statement, node: ast.For | ast.AsyncFor, context: Surroundings
    ) -> None:
        self._expression(node.iter, context)
        self.statement_using[node.iter] = node
        self._order += 1
        before = self._order
        target = self.source.text(node.target)
        iterable = self.source.text(node.iter)
        if isinstance(node, ast.AsyncFor):
            word = "async for"
        else:
            word = "for"
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
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for expression in evaluated(node):
                self._expression(expression, context)
            if isinstance(node, ast.ClassDef):
                self._waiting.append((node, statement))
            self._add_place(node, context)
            return
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if isinstance(node, ast.Assign):
                targets = node.targets
            else:
                targets = [node.target]
            parts = list(targets)
            if node.value:
                parts.insert(0, node.value)
        elif isinstance(node, ast.AugAssign):
            parts = [node.target, node.value]
        elif isinstance(node, ast.Assert):
            self._condition(node.test, node, context)
            parts = []
        else:
            parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for part in parts:
            self._expression(part, context)
        self._add_place(node, context)
        if isinstance(node, ast.AugAssign):
            self._order += 1
            self.places[node.target].after = self._order
        elif isinstance(node, ast.Assert) and node.msg is not None:
            self._expression(node.msg, context.inside(node, "rest"))

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
            loop, before, tested = self._comprehension(node, context)
            place = self._add_place(node, context)
            place.loop = loop
            place.before = before
            place.tested = tested
            place.after = place.order
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
            chain = self._comparisons(node, context)
            place = self._add_place(node, context)
            place.chain = chain
            place.after = place.order
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

    def _comparisons(self, node: ast.Compare, context: Surroundings) -> tuple[int, ...]:
        """Read ``a < b < c`` and return the order of each comparison, which follows its second operand."""
        self._expression(node.left, context)
        orders: list[int] = []
        for operand in node.comparators:
            if orders:
                inner = context.inside(node, "rest", is_head=context.is_head)
            else:
                inner = context
            self._expression(operand, inner)
            self._order += 1
            orders.append(self._order)
        return tuple(orders)

    def _comprehension(self, node: Comprehension, context: Surroundings) -> tuple[Loop, int, int]:
        """Read a comprehension, and return its loop with the orders of its start and of its tests.

        The first iterable is evaluated before the loop.
        """
        first, *others = node.generators
        self._expression(first.iter, context)
        self.statement_using[first.iter] = node
        self._order += 2
        before = self._order - 1
        loop = Loop(node, self.source.text(node), False)
        inner = context.inside(node, "iteration", always=True, loop=loop)
        for generator in (first, *others):
            if generator is not first:
                inner = inner.inside(generator, "rest")
                self._expression(generator.iter, inner)
            self._expression(generator.target, inner)
            for condition in generator.ifs:
                self._condition(condition, node, inner)
                inner = inner.inside(condition, "rest")
        self._order += 1
        tested = self._order
        if isinstance(node, ast.DictComp):
            results = [node.key, node.value]
        else:
            results = [node.elt]
        for result in results:
            self._expression(result, inner)
        return loop, before, tested

"""Tell from the source alone which statements must have run, once some statements of the file are known to have run.

A recording notes the statements that called torch. Others left no trace, and the text proves that they ran::

    def step(x):
        scale = 2              # runs before every statement below it
        y = x * scale          # recorded
        count += 1             # runs too, if the call is known to have ended without an error
        if y.sum() > 0:        # runs too; its body may not
            ...

Words used here: a statement *may jump* if it may skip the next one without an error, as ``return`` and ``break`` do.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from torchglass.source.jumps import LOOPS, walk_head
from torchglass.source.statements import WITH, Statement, Statements, Suite

_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom)
_TRY = (ast.Try, ast.TryStar)


class ControlFlow(Statements):
    """The statements of one file, with what the text says of how often each runs."""

    @cached_property
    def jumping(self) -> set[int]:
        """Return the statements that are or contain a ``return``, ``yield``, ``break`` or ``continue``.

        The next statement in their suite may not run, even without an error. A loop that contains only its own
        ``break`` or ``continue`` is not one of them.
        """
        numbers = self._containing(*_LEAVES)
        for statement in self.all:
            if not isinstance(statement.node, ast.Break | ast.Continue):
                continue
            enclosing = statement
            while not isinstance(enclosing.node, LOOPS):
                numbers.add(enclosing.number)
                if enclosing.parent < 0:
                    break
                enclosing = self.all[enclosing.parent]
        return numbers

    @cached_property
    def raising(self) -> set[int]:
        """Return the statements that are or contain a ``raise`` or an ``assert``."""
        return self._containing(ast.Raise, ast.Assert)

    def _containing(self, *kinds: type[ast.AST]) -> set[int]:
        """Return statements whose head has a node of these types, and all that contain them in their function."""
        numbers: set[int] = set()
        are_statements = all(issubclass(kind, ast.stmt) for kind in kinds)
        for statement in self.all:
            is_found = isinstance(statement.node, kinds)
            if not is_found and not are_statements:
                is_found = any(isinstance(node, kinds) for node in walk_head(statement.node))
            if not is_found:
                continue
            enclosing: Statement | None = statement
            while enclosing is not None:
                numbers.add(enclosing.number)
                enclosing = self.parent_in_function(enclosing)
        return numbers

    def is_plain_function(self, number: int) -> bool:
        """Return whether a call of this ``def`` runs it at once and returns what it returns."""
        node = self.all[number].node
        return isinstance(node, ast.FunctionDef) and number not in self._generators

    @cached_property
    def by_function(self) -> dict[int, list[Statement]]:
        """Return the statements of each function, without those of functions inside it."""
        statements: dict[int, list[Statement]] = {}
        for statement in self.all:
            statements.setdefault(statement.function, []).append(statement)
        return statements

    @cached_property
    def _generators(self) -> set[int]:
        found: set[int] = set()
        for statement in self.all:
            for node in walk_head(statement.node):
                if isinstance(node, ast.Yield | ast.YieldFrom) and statement.function >= 0:
                    found.add(statement.function)
        return found

    def runs_once_per_completed_call(self, statement: Statement) -> bool:
        """Return whether each call of its function that ends without an error runs this statement exactly once."""
        function = statement.function
        if (
            function < 0
            or not self.is_plain_function(function)
            or not self._is_unconditional(statement)
        ):
            return False
        return statement.number <= self._first_jumping.get(function, statement.number)

    def runs_once_per_call(self, statement: Statement, caught: bool) -> bool:
        """Return whether each call of its function runs this statement exactly once, also a call that fails.

        So the executions of this statement count the calls. ``caught`` says that functions called before the
        statement may raise errors, too, which are then caught. The condition of a ``while`` does not count, since it
        runs again; nor does a function with a cache, which may return without running.
        """
        if isinstance(statement.node, ast.While):
            return False
        if not self.runs_once_per_completed_call(statement):
            return False
        decorators: list[ast.expr] = getattr(
            self.all[statement.function].node, "decorator_list", []
        )
        if any("cache" in ast.dump(decorator) for decorator in decorators):
            return False
        if caught:
            first_failing = self._first_calling
        else:
            first_failing = self._first_raising
        return statement.number <= first_failing.get(statement.function, statement.number)

    def is_only_return(self, statement: Statement) -> bool:
        """Return whether each call of its function that ends without an error ends in this statement."""
        return statement.number in self._only_returns

    @cached_property
    def _only_returns(self) -> set[int]:
        numbers: set[int] = set()
        for statements in self.by_function.values():
            returns = [each for each in statements if isinstance(each.node, ast.Return)]
            if len(returns) == 1 and self.runs_once_per_completed_call(returns[0]):
                numbers.add(returns[0].number)
        return numbers

    @cached_property
    def certain_callers(self) -> dict[int, list[int]]:
        """Return, for each ``def``, the statements that call it each time they run.

        These are only plain functions of the module, called by a name that nothing else in the file may bind.
        """
        functions = {
            name: number for name, number in self._plain_names.items() if number is not None
        }
        callers: dict[int, list[int]] = {}
        for statement in self.all:
            if isinstance(statement.node, (*LOOPS, *WITH, ast.Assert)) or not functions:
                continue
            for node in walk_head(statement.node):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                number = functions.get(node.func.id)
                if number is None or statement.function == number:
                    continue
                span = self.range(node)
                if not self.is_repeated(statement, span) and not self.is_conditional(
                    statement, span
                ):
                    callers.setdefault(number, []).append(statement.number)
        return callers

    @cached_property
    def _plain_names(self) -> dict[str, int | None]:
        """Return the functions that the module defines without a decorator, by their names.

        The number is None if something else may bind the name, too.
        """
        functions: dict[str, int | None] = {}
        for statement in self.all:
            node = statement.node
            if (
                isinstance(node, ast.FunctionDef)
                and statement.parent < 0
                and not node.decorator_list
            ):
                if node.name in functions:
                    functions[node.name] = None
                else:
                    functions[node.name] = statement.number
        for name in _bound_names(self.tree):
            if name in functions:
                functions[name] = None
        for name, number in functions.items():
            if number is not None and not self.is_plain_function(number):
                functions[name] = None
        return functions

    def _is_unconditional(self, statement: Statement) -> bool:
        """Return whether a statement is in its function's body, or there in a ``with`` that swallows no error."""
        while statement.parent != statement.function:
            statement = self.all[statement.parent]
            if not isinstance(statement.node, ast.With) or may_swallow(statement.node):
                return False
        return statement.suite.name == "body"

    @cached_property
    def _first_jumping(self) -> dict[int, int]:
        """Return for each function the first unconditional statement that may jump."""
        return self._first_unconditional(self.jumping)

    @cached_property
    def _first_raising(self) -> dict[int, int]:
        """Return for each function the first unconditional statement that may raise an error itself."""
        return self._first_unconditional(self.raising)

    @cached_property
    def _first_calling(self) -> dict[int, int]:
        """Return for each function the first unconditional statement that may raise, or calls what may raise."""
        return self._first_unconditional(self.raising | self._containing(ast.Call))

    def _first_unconditional(self, numbers: set[int]) -> dict[int, int]:
        first: dict[int, int] = {}
        for number in sorted(numbers):
            if self._is_unconditional(self.all[number]):
                first.setdefault(self.all[number].function, number)
        return first


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the file may bind other than by a ``def`` of the module itself."""
    plain = {id(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        name: str | None = None
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        if isinstance(node, ast.arg):
            name = node.arg
        if isinstance(node, ast.alias):
            name = (node.asname or node.name).partition(".")[0]
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and id(node) not in plain
        ):
            name = node.name
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            name = node.name
        if name is not None:
            yield name


def may_swallow(node: ast.stmt) -> bool:
    """Return whether a statement may silently end its body early, as ``with suppress(…)`` does."""
    if isinstance(node, WITH):
        words = " ".join(ast.dump(item.context_expr) for item in node.items)
        return "suppress" in words or "raises" in words
    return False


def proven(
    source: ControlFlow, seen: Iterable[int], finished: Iterable[int], failed: Collection[int] = ()
) -> set[int]:
    """Return the statements that ran for certain.

    ``seen`` are the recorded statements. All statements before a recorded one ran too, in its suite and in the
    suites that contain it, up to its function. ``finished`` are recorded statements in calls that ended without an
    error: the statements after them ran too, up to the first that may jump. ``failed`` are statements that an error
    may have left: nothing is concluded of what follows them.
    """
    ran: set[int] = set()
    for number in seen:
        _add_with_earlier(source, number, ran)
    waiting = list(finished)
    done = set(waiting)
    while waiting:
        statement = source.all[waiting.pop()]
        following = (
            *_first_of_body(source, statement),
            *_next_statement(source, statement, failed),
        )
        for number in following:
            if number not in done:
                done.add(number)
                waiting.append(number)
                _add_with_earlier(source, number, ran)
    return ran


def _add_with_earlier(source: ControlFlow, number: int, ran: set[int]) -> None:
    """Add a statement that ran, and all that must have run before it in its function."""
    function = source.all[number].function
    while number >= 0 and number != function:
        if number in ran:
            return
        suite = source.suites[source.all[number].suite]
        ran.update(suite[: source.all[number].place + 1])
        number = source.all[number].parent


def _first_of_body(source: ControlFlow, statement: Statement) -> list[int]:
    """Return the first statement of the body of a ``with`` or ``try``, which runs whenever the statement does."""
    enters_body = isinstance(statement.node, WITH) and not may_be_left(source, statement)
    if enters_body or isinstance(statement.node, _TRY):
        return source.suites[Suite(statement.number, "body", 0)][:1]
    return []


def _next_statement(
    source: ControlFlow, statement: Statement, failed: Collection[int]
) -> list[int]:
    """Return the statement that ran after this one, in a call that ended without an error.

    It is the next in its suite or, at the end of the suite, the next after the statement that contains it. The rest
    of a suite is also skipped where the statement may jump, failed, or may have raised an error that was caught.
    """
    while True:
        suite = source.suites[statement.suite]
        is_certain = (
            statement.number not in source.jumping
            and statement.number not in failed
            and not may_be_left(source, statement)
        )
        if is_certain and statement.place + 1 < len(suite):
            return [suite[statement.place + 1]]
        parent = source.parent_in_function(statement)
        if parent is None:
            return []
        statement = parent


def may_be_left(source: ControlFlow, statement: Statement) -> bool:
    """Return whether the function may catch an error that the statement raises, and so go on after a part of it."""
    parent = source.parent_in_function(statement)
    while parent is not None:
        if (
            isinstance(parent.node, _TRY)
            and statement.suite.name == "body"
            and parent.node.handlers
        ):
            return True
        if may_swallow(parent.node):
            return True
        statement = parent
        parent = source.parent_in_function(statement)
    return False


def is_in_with(source: ControlFlow, statement: Statement) -> bool:
    """Return whether a ``with`` of the same function contains the statement: its context manager may catch errors."""
    parent = source.parent_in_function(statement)
    while parent is not None:
        if isinstance(parent.node, WITH):
            return True
        parent = source.parent_in_function(parent)
    return False

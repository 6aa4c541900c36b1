"""What may run after a statement, by the text alone: which ran for certain, and where a name got its value."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from functools import cached_property

from torchglass.source.statements import LOOPS, WITH, Statement, Statements, walk_head

_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom)
_TRY = (ast.Try, ast.TryStar)
_RESHAPING = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_".split()
)
"""Methods that give a tensor another shape in place."""


class ControlFlow(Statements):
    """The statements of one file, with what may follow each."""

    @cached_property
    def jumping(self) -> set[int]:
        """Statements after which the next one in their suite need not run, though no error occurs."""
        found = self._and_around(*_LEAVES)
        for statement in self.all:
            number = statement.number if isinstance(statement.node, ast.Break | ast.Continue) else -1
            while number >= 0 and not isinstance(self.all[number].node, LOOPS):
                found.add(number)
                number = self.all[number].parent
        return found

    @cached_property
    def raising(self) -> set[int]:
        """Statements in which the program itself may raise, with those around them in their function."""
        return self._and_around(ast.Raise, ast.Assert)

    def _and_around(self, *kinds: type[ast.AST]) -> set[int]:
        """Statements whose head holds such a node, and those around them in their function."""
        found: set[int] = set()
        for statement in self.all:
            number = statement.number if any(isinstance(node, kinds) for node in walk_head(statement.node)) else -1
            while number >= 0 and number != statement.function:
                found.add(number)
                number = self.all[number].parent
        return found

    def is_plain_function(self, number: int) -> bool:
        """Whether a call of this ``def`` runs it at once and gives what it returns."""
        node = self.all[number].node
        return isinstance(node, ast.FunctionDef) and number not in self._generators

    @cached_property
    def by_function(self) -> dict[int, list[Statement]]:
        """The statements of each function without those of functions inside."""
        found: dict[int, list[Statement]] = {}
        for each in self.all:
            found.setdefault(each.function, []).append(each)
        return found

    @cached_property
    def _generators(self) -> set[int]:
        yields = (ast.Yield, ast.YieldFrom)
        return {
            each.function
            for each in self.all
            if each.function >= 0 and any(isinstance(node, yields) for node in walk_head(each.node))
        }

    def runs_once(self, statement: Statement) -> bool:
        """Whether every call of its function that no error leaves comes to it, once."""
        function = statement.function
        if function < 0 or not self.is_plain_function(function) or not self._in_own_suite(statement):
            return False
        return statement.number <= self._first_leave.get(function, statement.number)

    def tells_calls(self, statement: Statement, caught: bool) -> bool:
        """Whether it runs once in every call of its function, be that left by an error or not.

        ``caught``: errors of what its function calls count too. The condition of a ``while`` runs again, and a
        cache may answer without a call.
        """
        if isinstance(statement.node, ast.While) or not self.runs_once(statement):
            return False
        decorators: list[ast.expr] = getattr(self.all[statement.function].node, "decorator_list", [])
        if any("cache" in ast.dump(each) for each in decorators):
            return False
        first = self._first_call if caught else self._first_raise
        return statement.number <= first.get(statement.function, statement.number)

    def is_only_return(self, statement: Statement) -> bool:
        """Whether every call of its function that no error leaves ends in this statement."""
        return statement.number in self._only_returns

    @cached_property
    def _only_returns(self) -> set[int]:
        found: set[int] = set()
        for inside in self.by_function.values():
            returns = [each for each in inside if isinstance(each.node, ast.Return)]
            found.update(each.number for each in returns if len(returns) == 1 and self.runs_once(each))
        return found

    def _in_own_suite(self, statement: Statement) -> bool:
        while statement.parent != statement.function:
            statement = self.all[statement.parent]
            if not isinstance(statement.node, ast.With) or may_swallow(statement.node):
                return False
        return statement.suite[1] == "body"

    @cached_property
    def _first_leave(self) -> dict[int, int]:
        """For each function the first statement of its own suite in which it may be left."""
        return self._first(self.jumping)

    @cached_property
    def _first_raise(self) -> dict[int, int]:
        return self._first(self.raising)

    @cached_property
    def _first_call(self) -> dict[int, int]:
        return self._first(self.raising | self._and_around(ast.Call))

    def _first(self, numbers: set[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for number in sorted(numbers):
            if self._in_own_suite(self.all[number]):
                found.setdefault(self.all[number].function, number)
        return found


def may_swallow(node: ast.stmt) -> bool:
    """``with suppress(…)``: what is in it may have ended early without a trace."""
    if isinstance(node, WITH):
        words = " ".join(ast.dump(item.context_expr) for item in node.items)
        return "suppress" in words or "raises" in words
    return False


# ---------------------------------------------------------------- what ran


def proven(source: ControlFlow, seen: Iterable[int], finished: Iterable[int], failed: Collection[int] = ()) -> set[int]:
    """The statements that ran for certain.

    ``seen`` are those with a step. Every statement before one that ran, in its suite and in the suites around
    it up to its function, ran too. After one of ``finished`` (in calls that are known to have come to their
    end without an error) the next ones ran, up to the first that may leave its suite; not so after one of
    ``failed``, which an error may have left.
    """
    ran: set[int] = set()
    for number in seen:
        _before(source, number, ran)
    waiting = list(finished)
    done = set(waiting)
    while waiting:
        statement = source.all[waiting.pop()]
        for number in (*_entered(source, statement), *_next(source, statement, failed)):
            if number not in done:
                done.add(number)
                waiting.append(number)
                _before(source, number, ran)
    return ran


def _before(source: ControlFlow, number: int, ran: set[int]) -> None:
    """A statement that ran, and all that must have run before it."""
    function = source.all[number].function
    while number >= 0 and number != function:
        if number in ran:
            return
        suite = source.suites[source.all[number].suite]
        ran.update(suite[: source.all[number].place + 1])
        number = source.all[number].parent


def _entered(source: ControlFlow, statement: Statement) -> list[int]:
    """The first statement inside of one whose suite begins whenever it does itself."""
    begins = isinstance(statement.node, WITH) and not may_be_left(source, statement)
    return source.suites[statement.number, "body", 0][:1] if begins or isinstance(statement.node, _TRY) else []


def _next(source: ControlFlow, statement: Statement, failed: Collection[int]) -> list[int]:
    """What ran next: the call came to its end, so a loop or an ``if`` around was left downwards.

    Not so where something may be left in another way: by ``return`` or ``break``, or by an error that is caught.
    """
    while True:
        suite = source.suites[statement.suite]
        left = statement.number in source.jumping or statement.number in failed or may_be_left(source, statement)
        if not left and statement.place + 1 < len(suite):
            return [suite[statement.place + 1]]
        if statement.parent < 0 or statement.parent == statement.function:
            return []
        statement = source.all[statement.parent]


def may_be_left(source: ControlFlow, statement: Statement) -> bool:
    """Whether an error inside it may be caught around it in the same function."""
    while statement.parent >= 0 and statement.parent != statement.function:
        part = statement.suite[1]
        statement = source.all[statement.parent]
        if isinstance(statement.node, _TRY) and statement.node.handlers and part == "body":
            return True
        if may_swallow(statement.node):
            return True
    return False


def is_in_with(source: ControlFlow, statement: Statement) -> bool:
    """Whether a context manager in the same function is around it: any of them may catch an error, and few do."""
    while statement.parent >= 0 and statement.parent != statement.function:
        statement = source.all[statement.parent]
        if isinstance(statement.node, WITH):
            return True
    return False


# ---------------------------------------------------------------- where a name got its value


def definition(source: ControlFlow, use: Statement, name: str) -> Statement | None:
    """The one statement that can have given ``name`` its value where ``use`` reads it; None when not certain.

    It stands before in the same suite or in one around it, and nothing between may bind the name anew.
    """
    if _is_shared(source, use.function, name):
        return None
    while True:
        suite = source.suites[use.suite]
        for number in reversed(suite[: use.place]):
            if _assigns(source.all[number].node, name):
                return source.all[number]
            if _touches(source.all[number].node, name):
                return None
        around = use.parent
        if around < 0 or around == use.function:
            return None
        use = source.all[around]
        # What stands in another part of a loop or a try may have run before.
        if not isinstance(use.node, ast.If | ast.With | ast.Match) and _touches(use.node, name):
            return None
        stored = [item.optional_vars for item in use.node.items] if isinstance(use.node, ast.With) else []
        if any(each is not None and _touches(each, name) for each in stored):
            return None


def runs_as_often(source: ControlFlow, given: Statement, use: Statement) -> bool:
    """Whether ``use`` runs whenever ``given`` did: not inside an ``if`` after it, nor with a way out between."""
    caught = may_be_left(source, use)
    while use.suite != given.suite:
        use = source.all[use.parent]
        if not isinstance(use.node, ast.With):
            return False
    if caught and use.place > given.place + 1:
        return False
    between = source.suites[use.suite][given.place : use.place]
    return source.jumping.isdisjoint(between) and source.raising.isdisjoint(between)


def _assigns(node: ast.stmt, name: str) -> bool:
    """Whether a plain assignment or an augmented one gives the name its value."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return False
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if isinstance(each, ast.Name) and each.id == name:
                return True
    return False


def _touches(node: ast.AST, name: str) -> bool:
    """Whether anything in it may bind the name, delete it, or reshape what it names."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load):
            return True
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.name == name:
            return True
        if isinstance(each, ast.alias) and (each.asname or each.name).partition(".")[0] == name:
            return True
        if isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and each.name == name:
            return True
        reshaped = each.value if isinstance(each, ast.Attribute) and each.attr in _RESHAPING else None
        if isinstance(reshaped, ast.Name) and reshaped.id == name:
            return True
    return False


def _is_shared(source: ControlFlow, function: int, name: str) -> bool:
    """Whether code outside the function's own body may bind the name: then the text proves nothing."""
    if function < 0:
        return True
    return any(
        isinstance(node, ast.Nonlocal | ast.Global) and name in node.names
        for node in ast.walk(source.all[function].node)
    )

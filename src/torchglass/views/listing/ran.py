"""Which statements ran: what follows from the steps that were seen, and no more."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from torchglass.views.listing.statements import WITH, Statement, Statements, may_swallow

_TRY = (ast.Try, ast.TryStar)


def proven(source: Statements, seen: Iterable[int], finished: Iterable[int], failed: Collection[int] = ()) -> set[int]:
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


def _before(source: Statements, number: int, ran: set[int]) -> None:
    """A statement that ran, and all that must have run before it."""
    function = source.all[number].function
    while number >= 0 and number != function:
        if number in ran:
            return
        suite = source.suites[source.all[number].suite]
        ran.update(suite[: source.all[number].place + 1])
        number = source.all[number].parent


def _entered(source: Statements, statement: Statement) -> list[int]:
    """The first statement inside of one whose suite begins whenever it does itself."""
    begins = isinstance(statement.node, WITH) and not may_be_left(source, statement)
    return source.suites[statement.number, "body", 0][:1] if begins or isinstance(statement.node, _TRY) else []


def _next(source: Statements, statement: Statement, failed: Collection[int]) -> list[int]:
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


def may_be_left(source: Statements, statement: Statement) -> bool:
    """Whether an error inside it may be caught around it in the same function."""
    while statement.parent >= 0 and statement.parent != statement.function:
        part = statement.suite[1]
        statement = source.all[statement.parent]
        if isinstance(statement.node, _TRY) and statement.node.handlers and part == "body":
            return True
        if may_swallow(statement.node):
            return True
    return False


def is_in_with(source: Statements, statement: Statement) -> bool:
    """Whether a context manager in the same function is around it: any of them may catch an error, and few do."""
    while statement.parent >= 0 and statement.parent != statement.function:
        statement = source.all[statement.parent]
        if isinstance(statement.node, WITH):
            return True
    return False

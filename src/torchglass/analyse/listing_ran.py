"""Which statements ran: what follows from the steps that were seen, and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchglass.analyse.listing_statements import Statement, Statements

_ENTERED = (ast.With, ast.AsyncWith, ast.Try)
"""Compound statements whose first suite begins whenever they do."""


def proven(source: Statements, seen: Iterable[int], finished: Iterable[int]) -> set[int]:
    """The statements that ran for certain.

    ``seen`` are those with a step. Every statement before one that ran, in its suite and in the suites around
    it up to its function, ran too. After one of ``finished`` (in calls that are known to have come to their
    end without an error) the next ones ran, up to the first that may leave its suite.
    """
    ran: set[int] = set()
    for number in seen:
        _before(source, number, ran)
    waiting = list(finished)
    done = set(waiting)
    while waiting:
        statement = source.all[waiting.pop()]
        for number in (*_entered(source, statement), *_next(source, statement)):
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
        ran.update(suite[: suite.index(number) + 1])
        number = source.all[number].parent


def _entered(source: Statements, statement: Statement) -> list[int]:
    if not isinstance(statement.node, _ENTERED):
        return []
    return source.suites[statement.number, "body", 0][:1]


def _next(source: Statements, statement: Statement) -> list[int]:
    if statement.number in source.jumping or _may_swallow(statement.node):
        return []
    suite = source.suites[statement.suite]
    place = suite.index(statement.number) + 1
    if place < len(suite):
        return suite[place : place + 1]
    around = source.all[statement.parent] if statement.parent >= 0 else None
    ends = around is not None and isinstance(around.node, ast.If | ast.With) and around.number not in source.jumping
    return _next(source, around) if ends and around is not None else []


def _may_swallow(node: ast.stmt) -> bool:
    """``with suppress(…)``: what is in it may have ended early without a trace."""
    if isinstance(node, ast.With):
        words = " ".join(ast.dump(item.context_expr) for item in node.items)
        return "suppress" in words or "raises" in words
    return False


def may_be_left(source: Statements, statement: Statement) -> bool:
    """Whether an error inside it may be caught around it in the same function."""
    while statement.parent >= 0 and statement.parent != statement.function:
        part = statement.suite[1]
        statement = source.all[statement.parent]
        if isinstance(statement.node, ast.Try) and statement.node.handlers and part == "body":
            return True
        if _may_swallow(statement.node):
            return True
    return False

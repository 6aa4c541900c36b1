"""What can have run between two places of one call: the rest of a round, the step to the next one, or another call."""

from __future__ import annotations

import ast

from torchglass.source.loops import Comprehension, Loop, Place
from torchglass.source.statements import LOOPS, Statement, Statements, may_break

_CALL_BACK = frozenset(
    "all any apply dict enumerate filter list map max min next reduce set sort sorted sum tuple zip".split()
)
"""What calls functions that it is given, or goes through generators, in one execution."""
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)
_JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def next_round(one: Place, other: Place) -> Loop | bool:
    """How ``other`` can have run after ``one`` in the same call: True, in the same round of all loops around both;
    a loop: in a new round of it; False: not at all, so that it was another call.
    """
    found = one.next.get(other)
    if found is None:
        found = one.next[other] = _next_round(one, other)
    return found


def calls_back(place: Place) -> bool:
    """Whether one execution of what is written may call a function of the program several times."""
    if not isinstance(place.node, ast.Call):
        return False
    called = place.node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name in _CALL_BACK


def _next_round(one: Place, other: Place) -> Loop | bool:
    if (other.order > one.order and _may_follow(one, other)) or _is_later_operand(one, other):
        return True
    for loop in reversed(one.loops):
        if loop in other.loops and _goes_round(one, loop):
            return loop
    return False


def _is_later_operand(one: Place, other: Place) -> bool:
    """Whether one is where the truth of several is asked for, and the other the second of these, or a later one.

    Python asks for the truth of each operand of an ``and`` in the range of the whole, so that it has the order of the
    last of them.
    """
    tested = one.node.test if isinstance(one.node, _TESTS) else one.node
    if not isinstance(one.node, (*_TESTS, ast.BoolOp, Comprehension)) or one.function != other.function:
        return False
    held = [node for node, part in other.parts if part == "rest"]
    return bool(held) and any(each in held for each in ast.walk(tested))


def _goes_round(place: Place, loop: Loop) -> bool:
    """Whether a round of the loop can come to its end behind the place."""
    if not isinstance(loop.node, ast.stmt) or (place.is_head and loop is place.loops[-1]):
        return True
    return _leaves(place, loop.node) is loop.node


def _may_follow(one: Place, other: Place) -> bool:
    """Whether a later place can be come to from another without going round a loop that is around both."""
    if other.is_exit and (other.node, "body") in one.parts:
        return True
    for (node, part), (same, another) in zip(one.parts, other.parts, strict=False):
        if node is not same:
            break
        if part != another:
            return _parts_follow(node, part, another)
    # Both are in the same parts, so that one is behind the other in a suite, or deeper in a statement of it.
    return _leaves(one, None, other) is True


def _parts_follow(node: ast.AST, part: str, another: str) -> bool:
    """Whether a later part of a statement or expression can be come to from another."""
    if isinstance(node, ast.If | ast.IfExp):
        return False
    if isinstance(node, ast.Match):
        return part == "guard" or another == "guard"
    if isinstance(node, ast.Try | ast.TryStar):
        return part == "body" or another == "finalbody"
    return True


def _leaves(place: Place, loop: ast.stmt | None, other: Place | None = None) -> ast.stmt | bool:
    """Where it goes on from a place when no error occurs: up to the end of a round of ``loop``, or to ``other``.

    The loop, or True, when that is come to; False when something on the way leaves it for good.
    """
    source, above = place.source, set[int]()
    if other is not None:
        number = other.statement.number
        while number >= 0:
            above.add(number)
            number = source.all[number].parent
    statement = place.statement
    while True:
        if other is not None and (statement.number in above or _is_behind(source, statement, above)):
            return not isinstance(statement.node, _JUMPS) or statement.number in above
        jump = _jump(source, statement)
        if isinstance(jump, ast.Return | ast.Raise):
            return isinstance(jump, ast.Raise) and _is_caught(source, statement) and (loop or True)
        if statement.parent < 0 or statement.parent == statement.function:
            return False
        around = source.all[statement.parent]
        if isinstance(jump, ast.Break | ast.Continue):
            while not isinstance(around.node, LOOPS):
                around = source.all[around.parent]
            if isinstance(jump, ast.Continue) and around.node is loop:
                return around.node
            if around.number in above or (isinstance(jump, ast.Break) and around.node is loop):
                return False
        elif isinstance(around.node, LOOPS) and statement.suite[1] == "body":
            if around.node is loop:
                return around.node
            if around.number in above or _is_endless(around.node):
                return False
        statement = around


def _is_behind(source: Statements, statement: Statement, above: set[int]) -> bool:
    """Whether a statement of the same suite, behind this one, is one of those."""
    jump = _jump(source, statement)
    for number in source.suites[statement.suite][statement.place + 1 :]:
        if number in above:
            return jump is None or source.all[number].start <= (jump.lineno, jump.col_offset)
    return False


def _jump(source: Statements, statement: Statement) -> ast.stmt | None:
    """The first statement from here on, in its suite, that jumps away for certain."""
    for number in source.suites[statement.suite][statement.place :]:
        if isinstance(source.all[number].node, _JUMPS):
            return source.all[number].node
    return None


def _is_caught(source: Statements, statement: Statement) -> bool:
    """Whether a ``raise`` may be caught in its own function."""
    while statement.parent >= 0 and statement.parent != statement.function:
        part, statement = statement.suite[1], source.all[statement.parent]
        if isinstance(statement.node, ast.Try | ast.TryStar) and part == "body" and statement.node.handlers:
            return True
    return False


def _is_endless(node: ast.stmt) -> bool:
    """``while True:`` without a ``break``."""
    return (
        isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and bool(node.test.value)
        and not may_break(node)
    )

"""Decide how one place of a function can have run after another: in the same iteration, a later one, or another call.

A recording knows in which order places ran, but not where an iteration began. The source shows that::

    def train(loader):
        for x in loader:
            y = model(x)
            if y.isnan(): continue
            log(y)

After ``model(x)``, ``log(y)`` can run in the same iteration. After ``log(y)``, ``model(x)`` can only run in the next
one. After ``len(loader)``, which follows the loop, ``model(x)`` can only run in another call of ``train``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from torchglass.source.jumps import LOOPS, may_break
from torchglass.source.places import FOR, Comprehension, Loop, Place, Succession
from torchglass.source.statements import Statement, Statements

_CALL_BACK = frozenset(
    "all any apply dict enumerate filter list map max min next reduce set sort sorted sum tuple zip".split()
)
"""Functions that call their arguments, or run generators, in one execution."""
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)
_JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_NUMBERING = frozenset(["enumerate", "range", "trange"])
"""Functions whose result gives another number to each iteration."""


def numbers_iterations(loop: Loop) -> bool:
    """Return whether the head of a loop gives each iteration another number, as ``for epoch in range(10):`` does."""
    if not isinstance(loop.node, FOR):
        return False
    iterable = loop.node.iter
    while isinstance(iterable, ast.Call):
        function = ast.unparse(iterable.func).rpartition(".")[2]
        if function in _NUMBERING:
            return True
        if function != "tqdm" or not iterable.args:
            return False
        iterable = iterable.args[0]
    return False


def succession(earlier: Place, later: Place) -> Loop | Succession:
    """Return how ``later`` can have run after ``earlier``.

    The result is SAME_ITERATION of all loops around both places, the loop that began a new iteration between them,
    or OTHER_CALL if one call cannot have run both in this order.
    """
    result = earlier.successions.get(later)
    if result is None:
        result = earlier.successions[later] = _succession(earlier, later)
    return result


def calls_back(place: Place) -> bool:
    """Return whether one execution of what is written may call a function of the program several times."""
    if not isinstance(place.node, ast.Call):
        return False
    called = place.node.func
    if isinstance(called, ast.Name):
        name = called.id
    elif isinstance(called, ast.Attribute):
        name = called.attr
    else:
        name = ""
    return name in _CALL_BACK


def _succession(earlier: Place, later: Place) -> Loop | Succession:
    if later.order > earlier.order and _may_follow(earlier, later):
        return Succession.SAME_ITERATION
    if _is_later_operand(earlier, later):
        return Succession.SAME_ITERATION
    for loop in reversed(earlier.loops):
        if loop in later.loops and _may_end_iteration(earlier, loop):
            return loop
    return Succession.OTHER_CALL


def _is_later_operand(test: Place, operand: Place) -> bool:
    """Return whether ``operand`` is the second or a later operand of the condition that ``test`` tests.

    Python tests the truth of each operand of ``a and b and c``, and of each comparison of ``a < b < c``. The
    instruction of each test has the range of the whole expression. So a test of ``a`` has a later order than ``b``,
    although ``b`` is evaluated after it.
    """
    if isinstance(test.node, _TESTS):
        expression = test.node.test
    elif isinstance(test.node, (ast.BoolOp, ast.Compare, Comprehension)):
        expression = test.node
    else:
        return False
    if test.function != operand.function:
        return False
    holders = [node for node, part in operand.parts if part == "rest"]
    return bool(holders) and any(node in holders for node in ast.walk(expression))


def _may_end_iteration(place: Place, loop: Loop) -> bool:
    """Return whether an iteration of the loop can come to its end after the place."""
    if not isinstance(loop.node, ast.stmt) or (place.is_head and loop is place.loops[-1]):
        return True
    return _reaches_end_of_iteration(place, loop)


def _may_follow(earlier: Place, later: Place) -> bool:
    """Return whether ``later`` can run after ``earlier`` in the same iteration of every loop around both."""
    if later.is_exit and (later.node, "body") in earlier.parts:
        return True
    for (node, part), (other_node, other_part) in zip(earlier.parts, later.parts, strict=False):
        if node is not other_node:
            break
        if part != other_part:
            return _part_may_follow(node, part, other_part)
    # Both are in the same parts: one comes after the other in a suite, or deeper in a statement of that suite.
    return _reaches(earlier, later)


def _part_may_follow(node: ast.AST, earlier_part: str, later_part: str) -> bool:
    """Return whether a later part of a statement or expression can run after an earlier part of it."""
    if isinstance(node, ast.If | ast.IfExp):
        return False
    if isinstance(node, ast.Match):
        return earlier_part == "guard" or later_part == "guard"
    if isinstance(node, ast.Try | ast.TryStar):
        return earlier_part == "body" or later_part == "finalbody"
    return True


def _reaches_end_of_iteration(place: Place, loop: Loop) -> bool:
    """Return whether code that runs on from a place without an error comes to the end of the loop's iteration."""
    source = place.source
    statement = place.statement
    while True:
        jump = _first_jump(source, statement)
        if isinstance(jump, ast.Return):
            return False
        if isinstance(jump, ast.Raise):
            return _is_caught(source, statement)
        parent = source.parent_in_function(statement)
        if parent is None:
            return False
        if isinstance(jump, ast.Break | ast.Continue):
            parent = _innermost_loop(source, parent)
            if parent.node is loop.node:
                return isinstance(jump, ast.Continue)
        elif _is_loop_body(parent, statement):
            if parent.node is loop.node:
                return True
            if _is_endless(parent.node):
                return False
        statement = parent


def _reaches(earlier: Place, later: Place) -> bool:
    """Return whether code that runs on from a place without an error comes to ``later`` before any loop repeats."""
    source = earlier.source
    goal = _with_enclosing(source, later.statement)
    statement = earlier.statement
    while True:
        if statement.number in goal:
            return True
        if _is_followed_by_any(source, statement, goal):
            return not isinstance(statement.node, _JUMPS)
        jump = _first_jump(source, statement)
        if isinstance(jump, ast.Return):
            return False
        if isinstance(jump, ast.Raise):
            return _is_caught(source, statement)
        parent = source.parent_in_function(statement)
        if parent is None:
            return False
        if isinstance(jump, ast.Break | ast.Continue):
            parent = _innermost_loop(source, parent)
            if parent.number in goal:
                return False
        elif _is_loop_body(parent, statement) and (
            parent.number in goal or _is_endless(parent.node)
        ):
            return False
        statement = parent


def _is_loop_body(loop: Statement, statement: Statement) -> bool:
    """Return whether a statement is in the body of the loop that contains it, not in its ``else``."""
    return isinstance(loop.node, LOOPS) and statement.suite.name == "body"


def _with_enclosing(source: Statements, statement: Statement) -> set[int]:
    """Return the numbers of a statement and of all statements around it, also outside of its function."""
    numbers: set[int] = set()
    number = statement.number
    while number >= 0:
        numbers.add(number)
        number = source.all[number].parent
    return numbers


def _innermost_loop(source: Statements, statement: Statement) -> Statement:
    """Return the statement, or the nearest one around it, that is a loop."""
    while not isinstance(statement.node, LOOPS):
        statement = source.all[statement.parent]
    return statement


def _is_followed_by_any(source: Statements, statement: Statement, goal: Collection[int]) -> bool:
    """Return whether one of these statements comes later in the same suite, and before any jump out of it."""
    jump = _first_jump(source, statement)
    for number in source.suites[statement.suite][statement.place + 1 :]:
        if number in goal:
            return jump is None or source.all[number].start <= (jump.lineno, jump.col_offset)
    return False


def _first_jump(source: Statements, statement: Statement) -> ast.stmt | None:
    """Return the first statement that always jumps away, from this one on in its suite."""
    for number in source.suites[statement.suite][statement.place :]:
        if isinstance(source.all[number].node, _JUMPS):
            return source.all[number].node
    return None


def _is_caught(source: Statements, statement: Statement) -> bool:
    """Return whether a ``raise`` may be caught in its own function."""
    parent = source.parent_in_function(statement)
    while parent is not None:
        in_body = statement.suite.name == "body"
        if isinstance(parent.node, ast.Try | ast.TryStar) and in_body and parent.node.handlers:
            return True
        statement = parent
        parent = source.parent_in_function(statement)
    return False


def _is_endless(node: ast.stmt) -> bool:
    """Return whether a loop is ``while True:`` without a ``break``."""
    return (
        isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and bool(node.test.value)
        and not may_break(node)
    )

"""What makes code leave its place: ``return``, ``break`` and ``continue``, and the ``yield`` that suspends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside of one, without those of functions in it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each is node or not isinstance(each, Function):
            waiting.extend(ast.iter_child_nodes(each))


def yields(node: ast.AST) -> bool:
    """Whether a function is a generator or coroutine."""
    return any(isinstance(each, ast.Yield | ast.YieldFrom | ast.Await) for each in _own(node))


def may_jump(node: ast.stmt) -> bool:
    """Whether what follows a statement may be left out although no error occurs."""
    return any(isinstance(each, ast.Return | ast.Break | ast.Continue) for each in _own(node))


def may_break(node: ast.stmt) -> bool:
    """Whether a loop may be left before its end: by a ``return``, or a ``break`` that is its own."""
    waiting: list[ast.AST] = [*ast.iter_child_nodes(node)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Return | ast.Break):
            return True
        if isinstance(each, LOOPS):
            waiting.extend(inner for inner in _own(each) if isinstance(inner, ast.Return))
        elif not isinstance(each, Function):
            waiting.extend(ast.iter_child_nodes(each))
    return False

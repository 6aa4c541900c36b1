"""Find what makes code leave its place: ``return``, ``break`` and ``continue``, and the ``yield`` that suspends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS_AND_CLASSES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def walk(node: ast.AST, without: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """Yield a node and everything in it, outermost first; leave out nodes of these types and what they contain."""
    waiting: list[ast.AST] = [node]
    for parent in waiting:
        yield parent
        waiting.extend(
            child for child in ast.iter_child_nodes(parent) if not isinstance(child, without)
        )


def walk_head(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without those of the statements that it contains."""
    return walk(statement, ast.stmt)


def yields(node: ast.AST) -> bool:
    """Return whether a function is a generator or a coroutine."""
    return any(
        isinstance(child, ast.Yield | ast.YieldFrom | ast.Await)
        for child in walk(node, _FUNCTIONS_AND_CLASSES)
    )


def may_jump(node: ast.stmt) -> bool:
    """Return whether a statement may skip the next one without an error: it is or contains a jump."""
    return any(
        isinstance(child, ast.Return | ast.Break | ast.Continue)
        for child in walk(node, _FUNCTIONS_AND_CLASSES)
    )


def may_break(loop: Loop) -> bool:
    """Return whether a ``return``, or a ``break`` of this very loop, may leave the loop before its end.

    A ``break`` in the ``else:`` of a loop is one of the loop around it.
    """
    if any(isinstance(child, ast.Return) for child in walk(loop, _FUNCTIONS_AND_CLASSES)):
        return True
    waiting: list[ast.AST] = [*loop.body]
    for node in waiting:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, LOOPS):
            waiting.extend(node.orelse)
        elif not isinstance(node, _FUNCTIONS_AND_CLASSES):
            waiting.extend(ast.iter_child_nodes(node))
    return False

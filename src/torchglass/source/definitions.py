"""Find the only statement that can have given a name its value, where a later statement of the function reads it."""

from __future__ import annotations

import ast

from torchglass.source.flow import ControlFlow, may_be_left
from torchglass.source.statements import Statement

_RESHAPING = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_".split()
)
"""Methods that change the shape of a tensor in place."""


def definition(source: ControlFlow, use: Statement, name: str) -> Statement | None:
    """Return the only statement that can have given ``name`` its value where ``use`` reads it, or None if uncertain.

    That statement comes earlier in the same suite or in one that contains it, and nothing between may bind the name
    again. In this function ``y`` has no certain definition in the last line, but ``x`` has::

        def f():
            x = load()
            y = 1
            if x.any():
                y = 2
            return x + y
    """
    if _is_shared(source, use.function, name):
        return None
    while True:
        suite = source.suites[use.suite]
        for number in reversed(suite[: use.place]):
            node = source.all[number].node
            if _assigns(node, name):
                return source.all[number]
            if _may_change(node, name):
                return None
        parent = source.parent_in_function(use)
        if parent is None:
            return None
        use = parent
        # Another part of a loop or a try may have run before.
        if not isinstance(use.node, ast.If | ast.With | ast.Match) and _may_change(use.node, name):
            return None
        if isinstance(use.node, ast.With):
            targets = [item.optional_vars for item in use.node.items]
            if any(target is not None and _may_change(target, name) for target in targets):
                return None


def runs_as_often(source: ControlFlow, assignment: Statement, use: Statement) -> bool:
    """Return whether ``use`` runs whenever ``assignment`` did: there is no branch and no early exit between them."""
    caught = may_be_left(source, use)
    while use.suite != assignment.suite:
        use = source.all[use.parent]
        if not isinstance(use.node, ast.With):
            return False
    if caught and use.place > assignment.place + 1:
        return False
    between = source.suites[use.suite][assignment.place : use.place]
    return source.jumping.isdisjoint(between) and source.raising.isdisjoint(between)


def _assigns(node: ast.stmt, name: str) -> bool:
    """Return whether an assignment, plain or augmented, gives the name its value."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return False
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            parts = target.elts
        else:
            parts = [target]
        if any(isinstance(part, ast.Name) and part.id == name for part in parts):
            return True
    return False


def _may_change(root: ast.AST, name: str) -> bool:
    """Return whether anything in the node may bind or delete the name, or change the shape of its tensor."""
    for node in ast.walk(root):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name).partition(".")[0] == name:
            return True
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name == name:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _RESHAPING:
            tensor = node.value
            if isinstance(tensor, ast.Name) and tensor.id == name:
                return True
    return False


def _is_shared(source: ControlFlow, function: int, name: str) -> bool:
    """Return whether code outside the function's body may bind the name, so that its text proves nothing."""
    if function < 0:
        return True
    return any(
        isinstance(node, ast.Nonlocal | ast.Global) and name in node.names
        for node in ast.walk(source.all[function].node)
    )

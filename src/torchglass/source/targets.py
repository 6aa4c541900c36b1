"""Find the names that the result of an expression is assigned to, as written."""

from __future__ import annotations

import ast
from typing import NamedTuple

from torchglass.source.syntax import Syntax

Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete


class _Step(NamedTuple):
    """Where a value is in a tuple that is written out."""

    position: int
    length: int
    """The number of elements of the tuple."""


_Path = tuple[_Step, ...]
"""Where a value is in nested tuples, outermost first: (1 of 2, 0 of 2) for ``y`` in ``x, (y, z)``."""


def targets_of(syntax: Syntax, node: ast.expr) -> tuple[str, ...]:
    """Return the names that are assigned the value of this very expression, or () if it is only used in another.

    In ``a, b = f(x), g(h(y))`` the names of ``f(x)`` are ``("a",)``, and ``h(y)`` has none.
    """
    names: list[str] = []
    path: _Path = ()
    child: ast.AST = node
    parent = syntax.parent(child)
    # Climb to the statement, as long as the value of the parent is this value or contains it.
    while parent is not None:
        if isinstance(parent, ast.NamedExpr) and child is parent.value:
            if not path:
                names.append(syntax.text(parent.target))
        elif isinstance(parent, ast.Tuple | ast.List) and isinstance(parent.ctx, ast.Load):
            if _has_star(parent.elts):
                break
            step = _Step(_index(parent.elts, child), len(parent.elts))
            path = (step, *path)
        elif not _passes_on(parent, child):
            break
        child = parent
        parent = syntax.parent(parent)
    for target in _targets_of_statement(parent, child):
        names += _names_at_path(syntax, target, path)
    return tuple(names)


def target_names(syntax: Syntax, target: ast.expr) -> tuple[str, ...]:
    """Return the names of a target as written: ``a, *rest`` is two, anything else one."""
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_target_text(syntax, part) for part in target.elts)
    return (_target_text(syntax, target),)


def assignment_to(syntax: Syntax, target: ast.expr) -> Assignment | None:
    """Return the statement that assigns to or deletes this target, which may be part of a tuple of targets."""
    child, parent = _out_of_tuples(syntax, target)
    if isinstance(parent, ast.Assign | ast.Delete):
        if child in parent.targets:
            return parent
        return None
    if isinstance(parent, ast.AnnAssign | ast.AugAssign):
        if child is parent.target:
            return parent
        return None
    return None


def assigned_value(syntax: Syntax, target: ast.expr) -> ast.expr | None:
    """Return the expression whose value this very target gets, or None if the value is unpacked from another."""
    statement = assignment_to(syntax, target)
    outer = syntax.parent(target)
    if outer is statement:
        if statement is None or isinstance(statement, ast.Delete):
            return None
        return statement.value
    if not isinstance(outer, ast.Tuple | ast.List):
        return None
    values = assigned_value(syntax, outer)
    if not isinstance(values, ast.Tuple | ast.List):
        return None
    if _has_star(outer.elts) or _has_star(values.elts):
        return None
    return values.elts[_index(outer.elts, target)]


def _passes_on(parent: ast.AST, child: ast.AST) -> bool:
    """Return whether the parent's value is the child's."""
    if isinstance(parent, ast.IfExp):
        return child is not parent.test
    if isinstance(parent, ast.BoolOp):
        return child is parent.values[-1]
    return isinstance(parent, ast.Await)


def _targets_of_statement(statement: ast.AST | None, value: ast.AST) -> list[ast.expr]:
    """Return the targets to which a statement assigns exactly this value."""
    if isinstance(statement, ast.Assign) and value is statement.value:
        return statement.targets
    if isinstance(statement, ast.AnnAssign) and value is statement.value:
        return [statement.target]
    return []


def _names_at_path(syntax: Syntax, target: ast.expr, path: _Path) -> tuple[str, ...]:
    """Return the names in the part of a target that gets the value at a path of a written-out tuple."""
    if not path:
        return target_names(syntax, target)
    if not isinstance(target, ast.Tuple | ast.List):
        return ()
    index, length = path[0]
    inner_path = path[1:]
    star = _star_index(target.elts)
    if star is not None:
        # Of ``length`` values, ``*rest`` takes those that are left over by the other targets.
        last_in_star = star + length - len(target.elts)
        if star <= index <= last_in_star:
            if inner_path:
                return ()
            return (_target_text(syntax, target.elts[star]),)
        if index > last_in_star:
            index += len(target.elts) - length
    if index < len(target.elts):
        return _names_at_path(syntax, target.elts[index], inner_path)
    return ()


def _out_of_tuples(syntax: Syntax, target: ast.expr) -> tuple[ast.AST, ast.AST | None]:
    """Return the outermost tuple of targets that contains this one, or the target itself, and the node around it."""
    child: ast.AST = target
    parent = syntax.parent(child)
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
        child = parent
        parent = syntax.parent(parent)
    return child, parent


def _index(elements: list[ast.expr], node: ast.AST) -> int:
    """Return the index of this very node; ``list.index`` would compare nodes."""
    return next(index for index, element in enumerate(elements) if element is node)


def _star_index(elements: list[ast.expr]) -> int | None:
    """Return the index of ``*rest`` among targets; None if there is none."""
    for index, element in enumerate(elements):
        if isinstance(element, ast.Starred):
            return index
    return None


def _has_star(elements: list[ast.expr]) -> bool:
    return _star_index(elements) is not None


def _target_text(syntax: Syntax, target: ast.expr) -> str:
    if isinstance(target, ast.Starred):
        return f"*{syntax.text(target.value)}"
    return syntax.text(target)

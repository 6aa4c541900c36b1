"""Which names the result of an expression is assigned to, as written."""

from __future__ import annotations

import ast

from torchglass.source.syntax import Syntax

Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete
_Path = tuple[tuple[int, int], ...]
"""Through written-out tuples: (index, length) of each, the outermost first."""


def targets_of(syntax: Syntax, node: ast.expr) -> tuple[str, ...]:
    """The names that the value of this expression itself goes to; ``()`` for what is only a part of it."""
    names: list[str] = []
    path: _Path = ()
    child: ast.AST = node
    parent = syntax.parent(child)
    while parent is not None:
        if isinstance(parent, ast.NamedExpr) and child is parent.value:
            names += () if path else (syntax.text(parent.target),)
        elif isinstance(parent, ast.Tuple | ast.List) and isinstance(parent.ctx, ast.Load):
            if any(isinstance(each, ast.Starred) for each in parent.elts):
                break
            path = ((_index(parent.elts, child), len(parent.elts)), *path)
        elif not _passes_on(parent, child):
            break
        child, parent = parent, syntax.parent(parent)
    for target in _assigned_targets(parent, child):
        names += _along(syntax, target, path)
    return tuple(names)


def target_names(syntax: Syntax, target: ast.expr) -> tuple[str, ...]:
    """``a, *rest`` is two names, anything else one; as written."""
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(_text(syntax, each) for each in target.elts)
    return (_text(syntax, target),)


def assignment_to(syntax: Syntax, target: ast.expr) -> Assignment | None:
    """The statement that assigns to (or deletes) this target, also inside a tuple of targets."""
    child, parent = _out_of_tuples(syntax, target)
    if isinstance(parent, ast.Assign | ast.Delete):
        return parent if child in parent.targets else None
    if isinstance(parent, ast.AnnAssign | ast.AugAssign):
        return parent if child is parent.target else None
    return None


def assigned_value(syntax: Syntax, target: ast.expr) -> ast.expr | None:
    """The expression whose value this very target gets; None where that comes out of unpacking."""
    statement = assignment_to(syntax, target)
    value = None if statement is None or isinstance(statement, ast.Delete) else statement.value
    if syntax.parent(target) is statement:
        return value
    outer = syntax.parent(target)
    holder = assigned_value(syntax, outer) if isinstance(outer, ast.Tuple | ast.List) else None
    if not isinstance(outer, ast.Tuple | ast.List) or not isinstance(holder, ast.Tuple | ast.List):
        return None
    starred = any(isinstance(each, ast.Starred) for each in (*outer.elts, *holder.elts))
    return None if starred else holder.elts[_index(outer.elts, target)]


def _passes_on(parent: ast.AST, child: ast.AST) -> bool:
    """Whether the parent's value is the child's."""
    if isinstance(parent, ast.IfExp):
        return child is not parent.test
    if isinstance(parent, ast.BoolOp):
        return child is parent.values[-1]
    return isinstance(parent, ast.Await)


def _assigned_targets(statement: ast.AST | None, value: ast.AST) -> list[ast.expr]:
    if isinstance(statement, ast.Assign) and value is statement.value:
        return statement.targets
    if isinstance(statement, ast.AnnAssign) and value is statement.value:
        return [statement.target]
    return []


def _along(syntax: Syntax, target: ast.expr, path: _Path) -> tuple[str, ...]:
    """The names of the part of a target that a part of a written-out tuple goes to."""
    if not path:
        return target_names(syntax, target)
    if not isinstance(target, ast.Tuple | ast.List):
        return ()
    (index, length), *rest = path
    stars = [place for place, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
    surplus = length - len(target.elts)
    if stars and index > stars[0] + surplus:
        index -= surplus
    elif stars and index >= stars[0]:
        return () if rest else (_text(syntax, target.elts[stars[0]]),)
    return _along(syntax, target.elts[index], tuple(rest)) if index < len(target.elts) else ()


def _out_of_tuples(syntax: Syntax, target: ast.expr) -> tuple[ast.AST, ast.AST | None]:
    child: ast.AST = target
    parent = syntax.parent(child)
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
        child, parent = parent, syntax.parent(parent)
    return child, parent


def _index(elements: list[ast.expr], node: ast.AST) -> int:
    return next(place for place, each in enumerate(elements) if each is node)


def _text(syntax: Syntax, target: ast.expr) -> str:
    return f"*{syntax.text(target.value)}" if isinstance(target, ast.Starred) else syntax.text(target)

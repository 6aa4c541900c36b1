"""Where the value of a name was assigned, when the text alone proves it: for ``return out``."""

from __future__ import annotations

import ast

from torchglass.views.listing.ran import may_be_left
from torchglass.views.listing.statements import Statement, Statements

_RESHAPING = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_".split()
)
"""Methods that give a tensor another shape in place."""


def definition(source: Statements, use: Statement, name: str) -> Statement | None:
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
        if isinstance(use.node, ast.With) and _names_stored(use.node.items, name):
            return None


def runs_as_often(source: Statements, given: Statement, use: Statement) -> bool:
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
        if isinstance(each, ast.Attribute) and each.attr in _RESHAPING and _is_name(each.value, name):
            return True
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _names_stored(items: list[ast.withitem], name: str) -> bool:
    return any(item.optional_vars is not None and _touches(item.optional_vars, name) for item in items)


def _is_shared(source: Statements, function: int, name: str) -> bool:
    """Whether code outside the function's own body may bind the name: then the text proves nothing."""
    if function < 0:
        return True
    return any(
        isinstance(node, ast.Nonlocal | ast.Global) and name in node.names
        for node in ast.walk(source.all[function].node)
    )

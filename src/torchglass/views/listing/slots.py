"""What a statement gives a value to, by its text: the targets that it assigns, what it changes, what it returns."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

_Text = Callable[[ast.expr], str]
"""An expression as written."""


class AssignedSlot(NamedTuple):
    """Something that a statement gives a value to."""

    label: str
    """As written; ``""`` for what is returned."""
    kind: str
    """``assigned``, ``changed``, ``returned``, or ``computed`` and not kept."""
    nodes: tuple[ast.expr | ast.stmt, ...]
    """The expressions that the value comes from: more than one for ``a if c else b``."""
    whole: str = ""
    """Of ``x[0] = …``: ``x``, as written. That is what changes if it is a tensor, and the step stands at the target.

    Of ``torch.relu_(x)``: ``x``, which changes if that is a function and no method.
    """
    target: ast.expr | None = None
    part: int | None = None
    """Which part of that value it is; None: all of it."""
    length: int = 0
    starred: bool = False


def slots_of(node: ast.stmt, text: _Text) -> list[AssignedSlot]:
    """What a statement assigns, changes or returns; ``[]`` when nothing."""
    if isinstance(node, ast.Assign):
        return [slot for target in node.targets for slot in _targets(text, target, node.value)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _targets(text, node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return [_stored(text, node.target, "changed", (node,))]
    if isinstance(node, ast.Return) and node.value is not None:
        return _returned(node.value)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and node.value.value is not None:
        return _returned(node.value.value)
    if isinstance(node, ast.Expr):
        return _changed(text, node.value)
    return []


def _targets(text: _Text, target: ast.expr, value: ast.expr) -> list[AssignedSlot]:
    if not isinstance(target, ast.Tuple | ast.List):
        return [_stored(text, target, "assigned", _passing(value))]
    names = target.elts
    stars = [at for at, each in enumerate(names) if isinstance(each, ast.Starred)]
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    if len(values) == len(names) and not stars and not any(isinstance(each, ast.Starred) for each in values):
        pairs = zip(names, values, strict=True)
        return [slot for name, each in pairs for slot in _targets(text, name, each)]
    slots: list[AssignedSlot] = []
    for at, name in enumerate(names):
        starred = isinstance(name, ast.Starred)
        index = at - len(names) if stars and at > stars[0] else at
        # The unpacking of a tensor itself is a step at the targets.
        slot = AssignedSlot(text(name), "assigned", (*_passing(value), target))
        slots.append(slot._replace(part=index, length=len(names), starred=starred))
    return slots


def _returned(value: ast.expr) -> list[AssignedSlot]:
    if isinstance(value, ast.Tuple) and not any(isinstance(each, ast.Starred) for each in value.elts):
        return [AssignedSlot("", "returned", _passing(each), part=at, length=-1) for at, each in enumerate(value.elts)]
    return [AssignedSlot("", "returned", _passing(value))]


def _changed(text: _Text, value: ast.expr) -> list[AssignedSlot]:
    """``x.add_(1)`` changes ``x``; another expression by itself gives its value to nobody."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = value.func.attr
        if name.endswith("_") and not name.endswith("__"):
            given = text(value.args[0]) if value.args else ""
            return [AssignedSlot(text(value.func.value), "changed", (value,), given)]
    return [AssignedSlot("", "computed", _passing(value))]


def _stored(text: _Text, target: ast.expr, kind: str, nodes: tuple[ast.expr | ast.stmt, ...]) -> AssignedSlot:
    if isinstance(target, ast.Subscript):
        return AssignedSlot(text(target), kind, nodes, text(target.value), target)
    return AssignedSlot(text(target), kind, nodes)


def _passing(value: ast.expr) -> tuple[ast.expr, ...]:
    """The expressions whose value is this one's: both branches of ``a if c else b``."""
    if isinstance(value, ast.IfExp):
        return (value, *_passing(value.body), *_passing(value.orelse))
    if isinstance(value, ast.NamedExpr | ast.Await):
        return (value, *_passing(value.value))
    if isinstance(value, ast.BoolOp):
        return (value, *_passing(value.values[-1]))
    # What is formatted in a string is not the string.
    return () if isinstance(value, ast.JoinedStr) else (value,)

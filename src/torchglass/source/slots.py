"""List what a statement gives values to: the targets that it assigns, what it changes in place, what it returns."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

TextOf = Callable[[ast.expr], str]
"""Returns an expression as written."""


class AssignedSlot(NamedTuple):
    """A target to which a statement gives a value."""

    label: str
    """The target as written, or ``""`` for a returned value."""
    kind: str
    """``assigned``, ``changed``, ``returned``, or ``computed`` if the value is not kept."""
    nodes: tuple[ast.expr | ast.stmt, ...]
    """The expressions that the value comes from. There are several for ``a if c else b``."""
    whole: str = ""
    """What changes in place, as written: ``x`` for ``x[0] = …`` if that is a tensor, and for ``torch.relu_(x)``."""
    target: ast.expr | None = None
    """For ``x[0] = …`` the target, whose range the recorded write has."""
    part: int | None = None
    """The index of the value in a tuple that is unpacked or returned. None if the target gets the whole value."""
    length: int = 0
    """The number of targets that a tuple is unpacked to. -1 for a tuple that is returned."""
    starred: bool = False
    """Whether the target is ``*rest``."""


def slots_of(node: ast.stmt, text: TextOf) -> list[AssignedSlot]:
    """Return what a statement assigns, changes or returns, or an empty list."""
    if isinstance(node, ast.Assign):
        slots: list[AssignedSlot] = []
        for target in node.targets:
            slots += _slots_of_target(text, target, node.value)
        return slots
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _slots_of_target(text, node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return [_slot_of_name(text, node.target, "changed", (node,))]
    if isinstance(node, ast.Return) and node.value is not None:
        return _slots_of_return(node.value)
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Yield) and node.value.value is not None:
            return _slots_of_return(node.value.value)
        return _slots_of_expression(text, node.value)
    return []


def _slots_of_target(text: TextOf, target: ast.expr, value: ast.expr) -> list[AssignedSlot]:
    """Return a slot for each name in a target: two for ``a, b = x``."""
    if not isinstance(target, ast.Tuple | ast.List):
        return [_slot_of_name(text, target, "assigned", _sources_of(value))]
    values = _value_of_each(target.elts, value)
    if values is None:
        return _slots_of_unpacking(text, target, value)
    slots: list[AssignedSlot] = []
    for one_target, one_value in zip(target.elts, values, strict=True):
        slots += _slots_of_target(text, one_target, one_value)
    return slots


def _value_of_each(targets: list[ast.expr], value: ast.expr) -> list[ast.expr] | None:
    """Return the expression of each target of ``a, b = x, y``; None if the value is unpacked."""
    if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != len(targets):
        return None
    if any(isinstance(node, ast.Starred) for node in (*targets, *value.elts)):
        return None
    return value.elts


def _slots_of_unpacking(
    text: TextOf, target: ast.Tuple | ast.List, value: ast.expr
) -> list[AssignedSlot]:
    """Return a slot for each target of ``a, *rest, b = x``."""
    targets = target.elts
    # The last node is the target itself, whose range is recorded where a tensor is unpacked.
    nodes = (*_sources_of(value), target)
    slots: list[AssignedSlot] = []
    is_after_star = False
    for index, one_target in enumerate(targets):
        starred = isinstance(one_target, ast.Starred)
        part = index
        if is_after_star:
            part = index - len(targets)
        slots.append(
            AssignedSlot(
                text(one_target),
                "assigned",
                nodes,
                part=part,
                length=len(targets),
                starred=starred,
            )
        )
        is_after_star = is_after_star or starred
    return slots


def _slots_of_return(value: ast.expr) -> list[AssignedSlot]:
    """Return a slot for each element of a tuple that is written out and returned; otherwise one slot."""
    if isinstance(value, ast.Tuple) and not any(
        isinstance(element, ast.Starred) for element in value.elts
    ):
        return [
            AssignedSlot("", "returned", _sources_of(element), part=index, length=-1)
            for index, element in enumerate(value.elts)
        ]
    return [AssignedSlot("", "returned", _sources_of(value))]


def _slots_of_expression(text: TextOf, value: ast.expr) -> list[AssignedSlot]:
    """Return the target ``x`` of a call in place such as ``x.add_(1)``, or a slot without a target otherwise."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = value.func.attr
        if name.endswith("_") and not name.endswith("__"):
            first_argument = ""
            if value.args:
                first_argument = text(value.args[0])
            receiver = text(value.func.value)
            return [AssignedSlot(receiver, "changed", (value,), whole=first_argument)]
    return [AssignedSlot("", "computed", _sources_of(value))]


def _slot_of_name(
    text: TextOf, target: ast.expr, kind: str, nodes: tuple[ast.expr | ast.stmt, ...]
) -> AssignedSlot:
    """Return the slot of a target that is no tuple: ``x``, ``self.x`` or ``x[0]``."""
    if isinstance(target, ast.Subscript):
        return AssignedSlot(text(target), kind, nodes, whole=text(target.value), target=target)
    return AssignedSlot(text(target), kind, nodes)


def _sources_of(value: ast.expr) -> tuple[ast.expr, ...]:
    """Return an expression and the parts that its value may come from, such as both branches of ``a if c else b``."""
    if isinstance(value, ast.IfExp):
        return (value, *_sources_of(value.body), *_sources_of(value.orelse))
    if isinstance(value, ast.NamedExpr | ast.Await):
        return (value, *_sources_of(value.value))
    if isinstance(value, ast.BoolOp):
        return (value, *_sources_of(value.values[-1]))
    # The value of an f-string comes from none of its parts.
    if isinstance(value, ast.JoinedStr):
        return ()
    return (value,)

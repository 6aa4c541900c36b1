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
        return [
            slot for target in node.targets for slot in _slots_of_targets(text, target, node.value)
        ]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _slots_of_targets(text, node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return [_slot_of_target(text, node.target, "changed", (node,))]
    if isinstance(node, ast.Return) and node.value is not None:
        return _slots_of_return(node.value)
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Yield)
        and node.value.value is not None
    ):
        return _slots_of_return(node.value.value)
    if isinstance(node, ast.Expr):
        return _slots_of_expression(text, node.value)
    return []


def _slots_of_targets(text: TextOf, target: ast.expr, value: ast.expr) -> list[AssignedSlot]:
    if not isinstance(target, ast.Tuple | ast.List):
        return [_slot_of_target(text, target, "assigned", _sources_of(value))]
    targets = target.elts
    stars = [index for index, each in enumerate(targets) if isinstance(each, ast.Starred)]
    values: list[ast.expr] = []
    if isinstance(value, ast.Tuple | ast.List):
        values = value.elts
    slots: list[AssignedSlot] = []
    if (
        len(values) == len(targets)
        and not stars
        and not any(isinstance(each, ast.Starred) for each in values)
    ):
        for one_target, one_value in zip(targets, values, strict=True):
            slots += _slots_of_targets(text, one_target, one_value)
        return slots
    for index, one_target in enumerate(targets):
        part = index
        if stars and index > stars[0]:
            part = index - len(targets)
        # The last node is the target itself, whose range is recorded where a tensor is unpacked.
        slot = AssignedSlot(text(one_target), "assigned", (*_sources_of(value), target))
        starred = isinstance(one_target, ast.Starred)
        slots.append(slot._replace(part=part, length=len(targets), starred=starred))
    return slots


def _slots_of_return(value: ast.expr) -> list[AssignedSlot]:
    if isinstance(value, ast.Tuple) and not any(
        isinstance(each, ast.Starred) for each in value.elts
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
            return [AssignedSlot(text(value.func.value), "changed", (value,), first_argument)]
    return [AssignedSlot("", "computed", _sources_of(value))]


def _slot_of_target(
    text: TextOf, target: ast.expr, kind: str, nodes: tuple[ast.expr | ast.stmt, ...]
) -> AssignedSlot:
    if isinstance(target, ast.Subscript):
        return AssignedSlot(text(target), kind, nodes, text(target.value), target)
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

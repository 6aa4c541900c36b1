"""Which of the steps below a line its expression made itself: what they gave is what it gave."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.views.listing.frames import AlikeSteps, Frame, is_shown, is_transformed

CALLING_BACK = frozenset([*dir(builtins), *"sort reduce accumulate starmap sub subn apply_ map_".split()])
"""Functions in C that call one they are given: what they give is not what that one returns."""
_OF_OPERATORS = ("OpOverload.__call__", "OpOverloadPacket.__call__")
_OF_GRAPH_MODULES = "_WrappedCall.__call__"
_COMPARISONS = frozenset("< <= > >= == !=".split())
_OPERATORS = frozenset(f"Tensor.{name}" for name in "__getitem__ __setitem__ lt le gt ge eq ne".split())
"""Of which several may stand at one place."""


def made_by(frame: Frame) -> list[AlikeSteps]:
    """The steps of a line, as far as its expression made them itself; of aten ops all that ran on it."""
    return last_made(frame) or [each for each in frame.steps if each.is_op]


def last_made(frame: Frame) -> list[AlikeSteps]:
    """The calls that its expression made itself; of several in a row (``x[0] += 1``) the last.

    Several functions under one name (``layer(x)``) and several ways to one operator (``total += loss``, where
    ``total`` is a number at first) are calls of the same expression, each in its turn.
    """
    direct = [each for each in frame.steps if not each.is_op and _is_made_here(each.event)]
    if not direct:
        return []
    last = max(direct, key=lambda each: each.last).event
    same = [each for each in direct if _operator(each.event) == _operator(last)]
    if last.operator in _COMPARISONS and _is_chain(last.code):
        return [each for each in same if each.event.name == last.name]
    return same


def _operator(event: Event) -> str | None:
    """What an event is in its expression; where the text is not known the name must do."""
    return event.operator if event.code or event.name not in _OPERATORS else event.name


@lru_cache(maxsize=1024)
def _is_chain(code: str) -> bool:
    """``0 < x < 3``: both comparisons stand at one place."""
    try:
        node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(node, ast.Compare) and len(node.ops) > 1


def last_op(frame: Frame) -> list[AlikeSteps]:
    """The op that ran last on a line without calls: what it gave was computed there, for whatever use.

    Of what the autograd engine does by itself nothing is of interest to the line that began it.
    """
    ops = [] if last_made(frame) else [each for each in frame.steps if each.is_op]
    last = max(ops, key=lambda each: each.last).event if ops else None
    if last is None or (last.phase == "backward" and not is_shown(last.stack[-1])):
        return []
    return [each for each in ops if each.event.name == last.name]


def _is_made_here(event: Event) -> bool:
    """Whether the expression at its innermost frame made this call."""
    if event.kind == "variable":  # told of a step, and none itself
        return False
    if event.direct or not event.stack:
        return event.direct
    inner = event.stack[-1]
    if event.name == "Tensor.unbind" and inner.function == "Tensor.__iter__":
        return True  # ``a, b = tensor``: torch iterates, and the step stands at the targets
    if event.kind == "module" and inner.function == _OF_GRAPH_MODULES:
        return _is_plain_call(event.code)
    if inner.function in _OF_OPERATORS and len(event.stack) > 1:
        return is_transformed(event.stack[-2])
    # Where the text is not known it is not known what was written; but no frame of torch lies between.
    return is_transformed(inner) or (inner.origin == "user" and not event.code)


def _is_plain_call(code: str) -> bool:
    """``graph(x)``: no function in C that calls what it is given."""
    name = code.partition("(")[0].rpartition(".")[2]
    return name.isidentifier() and name not in CALLING_BACK


# ---------------------------------------------------------------- slots

# What a statement gives a value to, by its text: the targets that it assigns, what it changes, what it returns.

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

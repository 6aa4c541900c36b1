"""Which of the steps below a line its expression made itself: what they gave is what it gave."""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache

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

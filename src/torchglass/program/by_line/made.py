"""Finds the steps that a line's own expression made: the result of such a step is the result of the expression."""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache

from torchglass.events.types import Event
from torchglass.program.by_line.frames import AlikeSteps, Frame, is_shown, is_transformed

CALLING_BACK = frozenset(
    [*dir(builtins), *"sort reduce accumulate starmap sub subn apply_ map_".split()]
)
"""Functions in C that call a function that they are given. Their result is not the result of that function."""
_OP_CALLS = ("OpOverload.__call__", "OpOverloadPacket.__call__")
"""torch's methods that call an op: ``torch.ops.aten.add(x, y)``."""
_GRAPH_MODULE_CALL = "_WrappedCall.__call__"
"""torch's method that calls a module made by torch.fx."""
_COMPARISONS = frozenset("< <= > >= == !=".split())
_OPERATORS = frozenset(
    f"Tensor.{name}" for name in "__getitem__ __setitem__ lt le gt ge eq ne".split()
)
"""Operators that may come several times at one place, as in ``x[0] += 1`` and ``0 < x < 3``."""


def made_by(frame: Frame) -> list[AlikeSteps]:
    """Return the steps that a line's expression made; if it made none, all aten ops that ran on the line."""
    return last_made(frame) or _ops(frame)


def all_made(frame: Frame) -> list[AlikeSteps]:
    """Return all calls that a line's expression made; if it made none, all aten ops that ran on the line."""
    return _direct(frame) or _ops(frame)


def _direct(frame: Frame) -> list[AlikeSteps]:
    return [steps for steps in frame.steps if not steps.is_op and _is_made_here(steps.event)]


def _ops(frame: Frame) -> list[AlikeSteps]:
    return [steps for steps in frame.steps if steps.is_op]


def last_made(frame: Frame) -> list[AlikeSteps]:
    """Return the call that a line's expression made; of several in a row (``x[0] += 1``), the last.

    There is more than one if the expression called different functions in different runs: ``layer(x)``, or
    ``total += loss`` where ``total`` is a number at first.
    """
    direct = _direct(frame)
    if not direct:
        return []
    last = _latest(direct)
    operator = _operator(last)
    same = [steps for steps in direct if _operator(steps.event) == operator]
    if last.operator in _COMPARISONS and _is_chain(last.code):
        return [steps for steps in same if steps.event.name == last.name]
    return same


def _latest(several: list[AlikeSteps]) -> Event:
    """Return a sample of the steps that ran last."""
    return max(several, key=lambda steps: steps.last).event


def _operator(event: Event) -> str | None:
    """Return the operator of an event; if the source text is not known, its name stands for it."""
    if event.code or event.name not in _OPERATORS:
        return event.operator
    return event.name


@lru_cache(maxsize=1024)
def _is_chain(code: str) -> bool:
    """Return whether a text is a chain of comparisons, ``0 < x < 3``, which all have one place."""
    try:
        node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(node, ast.Compare) and len(node.ops) > 1


def last_op(frame: Frame) -> list[AlikeSteps]:
    """Return the op that ran last on a line whose expression made no call: the line computed its output.

    Ops that the autograd engine runs by itself do not count.
    """
    if last_made(frame):
        return []
    ops = _ops(frame)
    if not ops:
        return []
    last = _latest(ops)
    if last.phase == "backward" and not is_shown(last.stack[-1]):
        return []
    return [steps for steps in ops if steps.event.name == last.name]


def _is_made_here(event: Event) -> bool:
    """Return whether the expression at the innermost frame of an event made it."""
    if event.kind == "variable":
        # It reports what a step gave.
        return False
    if event.direct or not event.stack:
        return event.direct
    inner = event.stack[-1]
    if event.name == "Tensor.unbind" and inner.function == "Tensor.__iter__":
        # ``a, b = tensor``: torch iterates over the tensor, and the step has the place of the targets.
        return True
    if event.kind == "module" and inner.function == _GRAPH_MODULE_CALL:
        return _is_plain_call(event.code)
    if inner.function in _OP_CALLS and len(event.stack) > 1:
        return is_transformed(event.stack[-2])
    # Without the source text the expression is not known. But no frame of torch is in between.
    return is_transformed(inner) or (inner.origin == "user" and not event.code)


def _is_plain_call(code: str) -> bool:
    """Return whether a text is a call such as ``graph(x)``, and not of a C function that calls its argument."""
    name = code.partition("(")[0].rpartition(".")[2]
    return name.isidentifier() and name not in CALLING_BACK

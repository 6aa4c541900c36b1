"""What torch calls its functions and ops: names, parameters and notes, as rows of the journal."""

from __future__ import annotations

from typing import Any

from torchglass.capture.torch.naming import public_name
from torchglass.capture.torch.private import OpOverload
from torchglass.capture.torch.signatures import function_parameters, op_parameters
from torchglass.capture.transparency import fused, mode_sensitive
from torchglass.journal.rows import WhatRow, encoded

FUNCTION, OP = "function", "op"
_known: dict[tuple[int, bool], tuple[Any, bytes]] = {}
"""By ``id`` of a function of torch's own, and whether ops are recorded: kept for the process."""


_known_ops: dict[tuple[int, str | None], tuple[Any, bytes]] = {}
"""The same for ops, by their notes …"""
_KEPT = ("aten", "prim", "prims")
"""… of these names, which torch keeps for ever, too."""


def function_bytes(func: Any, ops_recorded: bool) -> bytes:
    """The row of a torch function."""
    known = _known.get((id(func), ops_recorded))
    if known is None or known[0] is not func:
        known = (func, encoded(_function_row(func, ops_recorded)))
        if is_torchs_own(func):
            _known[id(func), ops_recorded] = known
    return known[1]


def is_torchs_own(func: Any) -> bool:
    """Whether a function belongs to torch, which keeps it for ever."""
    return (getattr(func, "__module__", None) or "torch").startswith("torch")


def _function_row(func: Any, ops_recorded: bool) -> WhatRow:
    name = public_name(func)
    note = fused.NOTE if name in fused.FUSED else None
    if ops_recorded and func in mode_sensitive.sensitive_functions():
        note = mode_sensitive.NOTE
    names, rest = function_parameters(func)
    return WhatRow(FUNCTION, name, note, "", list(names), rest, getattr(func, "__name__", "") == "__get__")


def op_bytes(op: Any, note: str | None) -> bytes:
    """The row of an op."""
    known = _known_ops.get((id(op), note))
    if known is None or known[0] is not op:
        names, rest = op_parameters(op)
        known = (op, encoded(WhatRow(OP, op_name(op), note, "", list(names), rest, False)))
        if getattr(op, "namespace", None) in _KEPT:
            _known_ops[id(op), note] = known
    return known[1]


def op_name(op: Any) -> str:
    """``aten::mm``, with the overload unless it is the default one: ``aten::mul.Tensor``."""
    if isinstance(op, OpOverload):
        return op.name()
    name = op.name() if callable(getattr(op, "name", None)) else getattr(op, "__name__", type(op).__name__)
    return f"{getattr(op, 'namespace', None) or 'higher_order'}::{name}"

"""Offers torchspy's interface: save tensors from inside a forward, list the module calls in order, and draw them.

    from torchglass.compat.torchspy import CallTracer, DebugContext, TensorSaver, spy_save

Names are imported when they are first used, because drawing a call trace (``trace_graph``) does not need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchglass.compat.torchspy._base import BaseDebugger
    from torchglass.compat.torchspy.context import DebugContext, get_debug_context
    from torchglass.compat.torchspy.saver import TensorSaver, spy_save
    from torchglass.compat.torchspy.tracer import CallTracer

__all__ = [
    "BaseDebugger",
    "CallTracer",
    "DebugContext",
    "TensorSaver",
    "get_debug_context",
    "spy_save",
]

_HOMES = {
    "BaseDebugger": "_base",
    "CallTracer": "tracer",
    "DebugContext": "context",
    "TensorSaver": "saver",
    "get_debug_context": "context",
    "spy_save": "saver",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

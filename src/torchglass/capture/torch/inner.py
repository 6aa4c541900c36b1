"""Torch functions written in Python, called again with the recorder listening to what they call.

Inside a function mode only the outermost call is seen. To see the calls within, the handler calls a copy of the
function: the same code object with globals that answer False to the question "does something override this
call?", so that it goes straight to its body. (docs/decisions/0003-inner-functions.md)
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torchglass.capture.torch.naming import LEAVES

CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*_: Any) -> bool:
    return False


_globals: dict[int, dict[str, Any]] = {}
"""By id of a module's globals, which torch keeps for ever."""


def _answering_globals(original: dict[str, Any]) -> dict[str, Any]:
    found = _globals.get(id(original))
    if found is None:
        # A class for each module: ``__missing__`` as a C method of the real globals costs no Python call.
        cls = type("AnsweringGlobals", (dict,), {"__missing__": original.__getitem__})
        found = cls(dict.fromkeys(CHECKS, _no), __builtins__=original.get("__builtins__", builtins))
        _globals[id(original)] = found
    return found


def inner_copy(func: Any) -> Callable[..., Any] | None:
    """A copy of a Python torch function that skips its own override check; None where that cannot be.

    A function that makes no check of its own (``boolean_dispatch``, ``meshgrid``) passes the question on to the
    next, which would report the same function again, and one that asks ``torch.overrides`` by attribute
    (``nn.init``) would not be answered by its globals: these stay one event.
    """
    if type(func) is not FunctionType or func.__name__ in LEAVES:
        return None
    if not any(name in func.__code__.co_names and name in func.__globals__ for name in CHECKS):
        return None
    if not (getattr(func, "__module__", None) or "").startswith("torch"):
        return None  # the user's own function: its globals may change, and its checks are its own affair
    copy = FunctionType(
        func.__code__,
        _answering_globals(func.__globals__),
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy

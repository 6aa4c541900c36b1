"""Between numpy and torch: calls that no mode sees, and which tensor and array share their memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from torchglass.capture.calls import recorded_call
from torchglass.capture.log import LOGS
from torchglass.capture.session import FUNCTION, Session, What

SHARING = frozenset(["as_tensor", "asarray"])
"""Functions that modes see and that may give a tensor over the memory of an array."""


def make_conversion(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.from_numpy`` and its like, which are no torch functions to any mode, as function events."""

    def convert(*args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(*args, **kwargs)
        what = _number(log.session, original)
        result = recorded_call(log, what, sys._getframe(1), original, args, kwargs)
        share(log.session, args, result)
        return result

    convert.__name__, convert.__doc__ = original.__name__, original.__doc__
    return convert


def _number(session: Session, original: Any) -> int:
    key = (FUNCTION, original.__name__, "")
    number = session.named.get(key)
    if number is None:
        with session.lock:
            number = session.named[key] = len(session.whats)
            session.whats.append(What(FUNCTION, original))
    return number


def share(session: Session, args: tuple[Any, ...], result: Any) -> None:
    """Where the result lies in the memory of an array among the arguments, say so in its value."""
    try:
        numpy = sys.modules.get("numpy")
        given = args[0] if args else None
        if numpy is None or not issubclass(type(given), numpy.ndarray) or type(result) is not torch.Tensor:
            return
        with torch._C.DisableTorchFunction():
            first, last = numpy.lib.array_utils.byte_bounds(given)
            if first <= result.data_ptr() < max(last, first + 1):
                session.values.lies_in(result, given)
    except Exception as fault:
        session.fault(fault)

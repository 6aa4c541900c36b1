"""A call that a wrapper of ours makes for the program, as an event."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.torch.names import no_functions
from torchglass.journal.layout import NONE

__tracebackhide__ = True  # pytest leaves our frames out of its reports


def recorded_call(log: ThreadLog, what: int, frame: FrameType, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Open an event, call, close it; a fault of ours costs the event only."""
    session, parent, at = log.session, log.parent, NONE
    try:
        with no_functions():
            at = session.open_event(log, what, frame, args, kwargs)
    except BaseException as fault:
        log.parent = parent
        session.forgive(fault)
    if at < 0:
        return call(*args, **kwargs)
    try:
        result = call(*args, **kwargs)
    except BaseException as error:
        log.parent = parent
        session.fail_event(log, at, error)
        args = kwargs = None  # the traceback must not keep tensors alive
        raise
    log.parent = parent
    try:
        with no_functions():
            session.close_event(log, at, result)
    except BaseException as fault:
        session.forgive(fault)
    return result

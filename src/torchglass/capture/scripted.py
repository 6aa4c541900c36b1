"""Scripted functions as ``unseen`` events: what they take and give, and a note that their inside is C++."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from torchglass.capture.log import LOGS, NONE
from torchglass.capture.session import UNSEEN, survives

NOTE = "scripted: its inside is not seen; call the Python function it was made from to look inside"
_no_modes = torch._C.DisableTorchFunction


def make_script_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for ``ScriptFunction.__call__``."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_functions:
            return original(self, *args, **kwargs)
        session, parent, at = log.session, log.parent, NONE
        try:
            with _no_modes():
                at = session.open_event(log, session.what(UNSEEN, self.name, NOTE), sys._getframe(1), args, kwargs)
        except BaseException as fault:
            log.parent = parent
            if not survives(fault):
                raise
            session.fault(fault)
        if at < 0:
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            log.parent = parent
            session.fail_event(log, at, error)
            args = kwargs = None  # type: ignore[assignment]  # the traceback must not keep tensors alive
            raise
        log.parent = parent
        try:
            with _no_modes():
                session.close_event(log, at, result)
        except BaseException as fault:
            if not survives(fault):
                raise
            session.fault(fault)
        return result

    return __call__

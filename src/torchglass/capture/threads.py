"""Threads started inside a recording are recorded too: function modes are thread-local, so each gets its own.

Not seen: pools made before the block, and threads started below ``threading`` (``_thread.start_new_thread``).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torchglass.capture.log import LOGS, ThreadLog
from torchglass.capture.modes import FUNCTION_MODES, OP_MODES

_MARK = "_torchglass_starter"


def make_start(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Thread.start`` that remembers which recorded thread started this one."""

    def start(self: threading.Thread) -> Any:
        log = LOGS.get(get_ident())
        if log is not None and log.on:
            self.__dict__[_MARK] = log
        try:
            return original(self)
        except BaseException:  # it was started before, or there are too many
            self.__dict__.pop(_MARK, None)
            raise

    return start


def make_bootstrap(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Thread._bootstrap_inner`` that records what the thread does."""

    def _bootstrap_inner(self: threading.Thread) -> Any:
        starter: ThreadLog | None = self.__dict__.pop(_MARK, None)
        if starter is None or not starter.session.running:
            return original(self)
        log = None
        try:
            log = join(starter, self.name)
        except Exception as fault:
            starter.session.fault(fault)
        try:
            return original(self)
        finally:
            if log is not None:
                leave(log)

    return _bootstrap_inner


def join(starter: ThreadLog, name: str) -> ThreadLog:
    """Begin to record the calling thread into the session of the one that started it."""
    session = starter.session
    log = session.add_log(name)
    session.extend_windows(starter, log)
    frame = sys._getframe(1)
    log.base, log.anchor = session.stacks.whole(frame), id(frame)
    listen(log)
    return log


def listen(log: ThreadLog) -> None:
    """Put the modes that the session needs on the calling thread's stacks, unless they are there."""
    session = log.session
    if session.mode_class is not None and not log.has_mode:
        FUNCTION_MODES.push(session.mode_class())
        log.has_mode = True
    if session.op_mode_class is not None and session.records_ops and not log.has_op_mode:
        OP_MODES.push(session.op_mode_class())
        log.has_op_mode = True


def leave(log: ThreadLog) -> None:
    """Stop recording the calling thread, which ends: its modes die with it, as the stacks are the thread's own."""
    log.on = False
    if LOGS.get(log.ident) is log:
        del LOGS[log.ident]
    FUNCTION_MODES.take(log.session.mode_class)
    OP_MODES.take(log.session.op_mode_class)

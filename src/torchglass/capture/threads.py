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

OUR_THREADS = "torchglass "
"""How the names of our own threads begin; they are never recorded."""
_MARK = "_torchglass_starter"


def thread_label(log: ThreadLog) -> str:
    """The name of a thread and, in a child process, of what that process is for."""
    worker = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    name = "MainProcess" if process is None else process().name
    label = f"DataLoader worker {worker.id}" if worker is not None else "" if name == "MainProcess" else name
    return ", ".join(part for part in (label, "" if label and log.name == "MainThread" else log.name) if part)


def make_start(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Thread.start`` that remembers which recorded thread started this one."""

    def start(self: threading.Thread) -> Any:
        log = LOGS.get(get_ident())
        if log is not None and log.on and not self.name.startswith(OUR_THREADS):
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
    session.enter_thread(log)
    return log


def leave(log: ThreadLog) -> None:
    """Stop recording the calling thread, which ends."""
    log.on = False
    if LOGS.get(log.ident) is log:
        del LOGS[log.ident]
    log.session.leave_thread(log)

"""Threads started inside a recording are recorded too: function modes are thread-local, so each gets its own.

Not seen: pools made before the block, and threads started below ``threading`` (``_thread.start_new_thread``).
"""

from __future__ import annotations

import atexit
import gc
import sys
import threading
import time
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.torch.names import worker_info
from torchglass.compiled import extension

__tracebackhide__ = True  # pytest leaves our frames out of its reports

OUR_THREADS = "torchglass "
"""How the names of our own threads begin; they are never recorded."""
_MARK = "_torchglass_starter"
HANDLERS = ("__torch_function__", "__torch_dispatch__")
LONGEST_WAIT = 3.0
"""Seconds that the end of the program waits for daemon threads that are inside of a handler of ours."""
_for_ever = threading.Lock()
_for_ever.acquire()


def thread_label(log: ThreadLog) -> str:
    """The name of a thread and, in a child process, of what that process is for."""
    worker = worker_info()
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    name = "MainProcess" if process is None else process().name
    if worker is None and name == "MainProcess":
        return log.name
    label = f"DataLoader worker {worker.id}" if worker is not None else "" if name == "MainProcess" else name
    return ", ".join([part for part in (label, "" if log.name == "MainThread" else log.name) if part])


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
        except BaseException as fault:
            starter.session.forgive(fault)
        try:
            return original(self)
        finally:
            if log is not None:
                leave(log)

    return _bootstrap_inner


def join(starter: ThreadLog, name: str) -> ThreadLog:
    """Begin to record the calling thread into the session of the one that started it."""
    session = starter.session
    if threading.current_thread().daemon and not _waits_at_exit:
        _waits_at_exit.append(True)
        atexit.register(_wait_for_daemons)
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
    log.session.journal.ended(log)
    log.over = True


# ---------------------------------------------------------------- the end of the program
#
# Daemon threads go on while Python ends, and are ended where they next ask for its lock. Below a handler there are
# frames of C++, which cannot be left that way: the process would abort. Without us those threads are in Python there.

_waits_at_exit: list[bool] = []


def stay_out() -> None:
    """From a handler: a daemon thread that is still at work when Python ends goes no further, and harms nobody."""
    if LEAVING and threading.current_thread() is not threading.main_thread() and threading.current_thread().daemon:
        if extension is not None:
            extension.stay_aside()
        _for_ever.acquire()


def _wait_for_daemons() -> None:
    LEAVING.append(True)
    for ident in list(LOGS):
        if ident != get_ident():
            LOGS.pop(ident).on = False
    last = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < last and (_is_in_compiled() or any(map(_is_in_handler, _frames_of_others()))):
        time.sleep(0.001)


def _is_in_compiled() -> bool:
    """Handlers in C have no frame."""
    return extension is not None and extension.others_inside() > 0


def _frames_of_others() -> list[FrameType]:
    """A garbage collection inside of ``_current_frames`` can stop all threads for ever, on Python 3.11."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return [frame for ident, frame in sys._current_frames().items() if ident != get_ident()]
    finally:
        if collects:
            gc.enable()


def _is_in_handler(frame: FrameType | None) -> bool:
    """Whether a thread is inside of a handler, and not in one that stays there."""
    if frame is not None and frame.f_code is stay_out.__code__:
        return False
    while frame is not None:
        if frame.f_code.co_name in HANDLERS and str(frame.f_globals.get("__name__")).startswith("torchglass."):
            return True
        frame = frame.f_back
    return False

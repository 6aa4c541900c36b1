"""Records the threads that a recorded thread starts. Function modes are thread-local, so each thread gets its own.

Thread pools made before the block are not recorded, nor are threads started with ``_thread.start_new_thread``.
"""

from __future__ import annotations

import atexit
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchglass.capture.engine.log import LEAVING, LOGS, ThreadLog
from torchglass.capture.torch.names import worker_info
from torchglass.compiled import extension
from torchglass.system import current_thread, get_ident, main_thread, monotonic, sleep

__tracebackhide__ = True  # pytest leaves our frames out of its reports

OUR_THREADS = "torchglass "
"""The names of torchglass's threads begin with this; these threads are never recorded."""
_MARK = "_torchglass_starter"
HANDLERS = ("__torch_function__", "__torch_dispatch__")
LONGEST_WAIT = 3.0
"""The most seconds that the end of the program waits for daemon threads that are in one of our handlers."""
_for_ever = threading.Lock()
_for_ever.acquire()


def thread_label(log: ThreadLog) -> str:
    """Return the name of a thread; in a child process, the name of the process or DataLoader worker comes first."""
    worker = worker_info()
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    name = "MainProcess"
    if process is not None:
        name = process().name
    if worker is None and name == "MainProcess":
        return log.name
    if worker is not None:
        label = f"DataLoader worker {worker.id}"
    elif name == "MainProcess":
        label = ""
    else:
        label = name
    return ", ".join(
        [part for part in (label, "" if log.name == "MainThread" else log.name) if part]
    )


def make_start(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Thread.start`` to remember which recorded thread started this one."""

    def start(self: threading.Thread) -> Any:
        log = LOGS.get(get_ident())
        if log is not None and log.on and not self.name.startswith(OUR_THREADS):
            self.__dict__[_MARK] = log
        try:
            return original(self)
        except BaseException:  # the thread was started before, or there are too many threads
            self.__dict__.pop(_MARK, None)
            raise

    return start


def make_bootstrap(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Thread._bootstrap_inner`` to record the thread."""

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
    """Begin to record the calling thread into the session of the thread that started it."""
    session = starter.session
    if current_thread().daemon and not _waits_at_exit:
        _waits_at_exit.append(True)
        atexit.register(_wait_for_daemons)
    log = session.add_log(name)
    session.extend_windows(starter, log)
    frame = sys._getframe(1)
    log.base = session.stacks.whole(frame)
    log.anchor = id(frame)
    session.enter_thread(log)
    return log


def leave(log: ThreadLog) -> None:
    """Stop recording the calling thread, which is about to end."""
    log.on = False
    if LOGS.get(log.ident) is log:
        del LOGS[log.ident]
    log.session.leave_thread(log)
    log.session.journal.retire(log)
    log.over = True


# ---------------------------------------------------------------- the end of the program
#
# Daemon threads continue while Python exits, and are killed when they next take the GIL. A thread in one of our
# handlers has C++ frames of torch on its stack, which cannot be unwound, so the process would abort. Without torchglass
# the thread would not be in Python at that point. So the exit waits until no handler runs, and a daemon thread that
# enters a handler after that is blocked in ``stay_out``.

_waits_at_exit: list[bool] = []


def stay_out() -> None:
    """Block the calling thread for ever if Python is exiting and the thread is a daemon; handlers call this."""
    if LEAVING and current_thread() is not main_thread() and current_thread().daemon:
        if extension is not None:
            extension.stay_aside()
        _for_ever.acquire()


def _wait_for_daemons() -> None:
    LEAVING.append(True)
    for ident in list(LOGS):
        if ident != get_ident():
            LOGS.pop(ident).on = False
    last = monotonic() + LONGEST_WAIT
    while monotonic() < last and (
        _is_in_compiled() or any(map(_is_in_handler, _frames_of_others()))
    ):
        sleep(0.001)


def _is_in_compiled() -> bool:
    """Return whether a handler in C, which has no frame, is running."""
    return extension is not None and extension.others_inside() > 0


def _frames_of_others() -> list[FrameType]:
    """Return the running frames of all other threads.

    Garbage collection is off meanwhile: on Python 3.11, a collection in ``_current_frames`` can stop all threads.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return [frame for ident, frame in sys._current_frames().items() if ident != get_ident()]
    finally:
        if collects:
            gc.enable()


def _is_in_handler(frame: FrameType | None) -> bool:
    """Return whether a thread is in one of our handlers, and not already blocked in ``stay_out``."""
    if frame is not None and frame.f_code is stay_out.__code__:
        return False
    while frame is not None:
        if frame.f_code.co_name in HANDLERS and str(frame.f_globals.get("__name__")).startswith(
            "torchglass."
        ):
            return True
        frame = frame.f_back
    return False

"""Writes Tensor Tracker's lines to the console, and through ``logger`` into one file for each process and thread."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from torchglass.views.live import ttracker as lines
from torchglass.views.live.ttracker import ENGLISH, Words, words_for
from torchglass.views.text.style import Page, wants_color, writable

logger = logging.getLogger("torchglass.ttracker")
logger.setLevel(logging.INFO)  # added handlers get the lines, whatever the level of the root logger
logger.propagate = False  # the lines are already on the console

LONGEST_TAG = 100
_WRITTEN = "torchglass_written"
"""The attribute of a log record that holds the handlers that have written its line already."""


class ThreadFilesHandler(logging.Handler):
    """Writes each line to the file of the process and thread that logs it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.files = LineFiles(folder)

    def is_plain(self) -> bool:
        """Return whether lines may go straight to the file, because no formatter, filter or higher level is set."""
        return self.formatter is None and not self.filters and self.level <= logging.INFO

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log record, from this module or from the user's ``logger.info(…)``."""
        if self not in getattr(record, _WRITTEN, ()):
            self.files.write(self.format(record) + "\n")


def h4logger() -> ThreadFilesHandler:
    """Return a handler for ``logger`` that writes ``logs/<tag>/process_<pid>_thread_<tid>.log`` in the working
    directory.

    The tag is ``LTAG`` of the environment as it is now, made safe for a file name; without one, ``NOTAG``.
    Folder and file are made with a thread's first line, never before.
    """
    folder = Path("logs") / _safe(tag())
    try:
        folder = folder.absolute()
    except OSError:  # the working directory is gone: writing the first line will report that
        pass
    return ThreadFilesHandler(folder)


def _safe(tag: str) -> str:
    return re.sub(r"[^\w.-]", "_", tag).lstrip(".")[:LONGEST_TAG] or "NOTAG"


def log2file(message: Any) -> None:
    """Print a message and send it through ``logger``. With ``TORCHGLASS=0``, do nothing."""
    if not is_off():
        send(lines.message(str(message)))


def send(texts: list[str], style: str = "") -> None:
    """Print lines and log them. The style is only used on the console."""
    if console_is_on():
        _print(texts, style)
    if logger.handlers and logger.isEnabledFor(logging.INFO):
        _log(texts)


def _print(texts: list[str], style: str) -> None:
    stream = sys.stdout
    if stream is None:  # a program without a console
        return
    if style and wants_color(stream):
        page = Page(color=True)
        texts = [lines.painted(text, style, page) for text in texts]
    try:
        # In one piece: threads share the console.
        stream.write(writable("\n".join(texts) + "\n", stream))
    except (
        OSError,
        ValueError,
    ):  # closed, or nobody reads it any more: the program's next print will say so
        pass


def _log(texts: list[str]) -> None:
    """Log lines, directly to the files if ``logger`` has only our handlers: a log record costs more than a call."""
    direct: list[ThreadFilesHandler] = []
    if not logger.filters:
        direct = [
            handler
            for handler in logger.handlers
            if type(handler) is ThreadFilesHandler and handler.is_plain()
        ]
    text = "\n".join(texts) + "\n"
    for handler in direct:
        handler.files.write(text)
    if len(direct) < len(logger.handlers) or logger.propagate:
        for line in texts:
            extra = {_WRITTEN: direct}
            logger.handle(
                logger.makeRecord(
                    logger.name, logging.INFO, "torchglass", 0, line, (), None, extra=extra
                )
            )


# ---------------------------------------------------------------- faults


def guarded(tell: Callable[..., None]) -> Callable[..., None]:
    """Wrap a function so that its faults are reported once and lose only lines, but never stop the program."""

    @wraps(tell)
    def guarded_tell(*args: Any) -> None:
        try:
            tell(*args)
        except Exception as fault:
            _tell_fault(fault)

    return guarded_tell


_told: set[str] = set()


def _tell_fault(fault: Exception) -> None:
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?"
    if trace is not None:
        where = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
    text = (
        f"torchglass lost lines of its log by a fault of its own: {type(fault).__name__} at {where}"
    )
    if text not in _told:
        _told.add(text)
        _warn(text)


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:  # the program turns warnings into errors, but it has done nothing wrong
        pass


# ---------------------------------------------------------------- settings

# What the environment decides, read when it is needed, so that a program may set it after its imports.


def is_off() -> bool:
    """Return whether ``TORCHGLASS=0`` is set, which turns everything off."""
    return _setting("TORCHGLASS") == "0"


def console_is_on() -> bool:
    """Return whether lines are printed. With ``TORCHGLASS_CONSOLE=0``, they only go to the log files."""
    return _setting("TORCHGLASS_CONSOLE") != "0"


def words() -> Words:
    """Return the words of the lines. With ``TORCHGLASS_LANG=zh``, these are the words of Tensor Tracker's document."""
    language = _setting("TORCHGLASS_LANG")
    if language:
        return words_for(language)
    return ENGLISH


def tag() -> str:
    """Return the environment variable ``LTAG``, the name of the folder for this run's log files."""
    return os.environ.get("LTAG", "")


# Looking up an unset name takes 1 µs in os.environ and 0.1 µs in the dict below it. Every call looks up two names.
_VALUES: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
_KEYS = {
    name: os.environ.encodekey(name)
    for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG")
}


def _setting(name: str) -> str:
    value = _VALUES.get(_KEYS[name])
    if value is None:
        return ""
    return os.environ.decodevalue(value)


# ---------------------------------------------------------------- files

# Each process and thread has its own text file, so that workers never write into each other's lines.

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _OpenFile:
    """A file descriptor that is closed when its thread ends. Only the thread's ``threading.local`` refers to it."""

    __slots__ = ("__weakref__", "fd", "pid")

    def __init__(self, fd: int, pid: int) -> None:
        self.fd = fd
        self.pid = pid

    def close(self, close: Callable[[int], None] = os.close) -> None:
        fd = self.fd
        self.fd = -1
        if fd >= 0:
            try:
                close(fd)
            except OSError:
                pass

    __del__ = close


class LineFiles:
    """Appends text to ``process_<pid>_thread_<tid>.log`` in a folder. Faults are reported once and lose only lines.

    A folder that is removed while the program runs is not made again. The open files then have no name any more.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._local = threading.local()
        self._open_files: weakref.WeakSet[_OpenFile] = weakref.WeakSet()
        self._told = False
        _ALL.add(self)

    def write(self, text: str) -> None:
        """Append whole lines (the text ends in a newline) to the calling thread's file."""
        file: _OpenFile | None = getattr(self._local, "file", None)
        if file is None or file.pid != os.getpid():
            file = self._open()
        if file.fd < 0:
            return
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:  # a nearly full disk, or a signal, can take a part only
                data = data[os.write(file.fd, data) :]
        except OSError as fault:
            self._tell(fault)

    def path(self) -> Path:
        """Return the path of the calling thread's file, whether it exists or not."""
        return self.folder / f"process_{os.getpid()}_thread_{threading.get_native_id()}.log"

    def forget(self) -> None:
        """Close all open files, in a forked child. The next line opens a new file.

        The files of all threads are closed here, because other threads do not exist in the child but their files do.
        """
        for file in list(self._open_files):
            file.close()
        self._local = threading.local()

    def _open(self) -> _OpenFile:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path(), FLAGS, 0o666)
        except OSError as fault:
            self._tell(fault)
            fd = -1  # so that this thread does not try again for every line
        file = self._local.file = _OpenFile(fd, os.getpid())
        self._open_files.add(file)
        return file

    def _tell(self, fault: OSError) -> None:
        if self._told:
            return
        self._told = True
        _warn(
            f"torchglass cannot write its log in {str(self.folder)!r} ({fault.strerror or fault}): lines are missing "
            f"there, the program goes on. Run it from a folder that can be written, or leave the log handler out"
        )


_ALL: weakref.WeakSet[LineFiles] = weakref.WeakSet()


def _forget_the_parents() -> None:
    for files in list(_ALL):
        files.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents)
